"""Requests that are asked for again without a key: which of them are the same request.

Clients of ORS have no key for a call. When they lose a connection before they have read a task id, they post the same
bytes once more, and those bytes look like a new call with the same arguments. Which of the two it is follows from what
became of the earlier reply (`ludus.server.web.delivery`): a lost one makes the later request a repeat, which is
answered with the work of the earlier one; a delivered one makes it new. As long as that is open, the later request
waits.
A client that asks for something else has moved on: what it had lost by then is not taken up any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ludus.server.web.delivery import Delivery

UNHURRIED_SECONDS: Final = 0.2
"""`ors-sdk` and `openreward` ask again 0.5 s after they lost a connection. What they ask sooner after a whole reply was
reset is no repeat: they had read the reply."""


class Asked:
    """One request, and the work that answers it."""

    __slots__ = ("before", "delivery", "task_id")

    def __init__(self, delivery: Delivery, before: Asked | None) -> None:
        self.delivery = delivery
        self.before = before
        """The request that this one may repeat; None once that is known."""
        self.task_id: str | None = None
        """Of the work; None until it is begun or found."""


class Repeats:
    """The requests of a session whose replies may be lost, by what they ask."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[bytes, Asked] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def ask(self, content: bytes, delivery: Delivery) -> Asked:
        """Note a request.

        Args:
            content: what it asks; equal contents are equal requests.
            delivery: what becomes of its reply.
        """
        before = self._latest.get(content)
        if before is None or before.delivery.verdict:
            if len(self._latest) > (before is not None):  # there are others
                self._latest = {what: one for what, one in self._latest.items() if one.delivery.verdict is None}
            before = None
        asked = self._latest[content] = Asked(delivery, before)
        return asked

    async def repeated(self, asked: Asked, *, unhurried: bool) -> str | None:
        """The task id of the lost request that this one repeats; None for a new request.

        Args:
            asked: the request.
            unhurried: whether its client is known to pause before it asks again.
        """
        before = asked.before
        too_soon = asyncio.get_running_loop().time() - UNHURRIED_SECONDS
        while before is not None:
            delivered = await before.delivery.wait()
            if delivered or (unhurried and before.delivery.lost_after(too_soon)):
                before = None
            elif before.task_id is not None:
                asked.task_id = before.task_id
                before = None
            else:  # it was lost before its work began
                before = before.before
        asked.before = None
        return asked.task_id

    def resumed(self, task_id: str, delivery: Delivery) -> None:
        """Note that work was requested again by its id: now this reply decides whether the client has it."""
        for asked in self._latest.values():
            if asked.task_id == task_id:
                asked.delivery = delivery
