"""Detection of repeated requests that have no idempotency key.

ORS clients have no key for a call. When they lose a connection before they have read a task id, they post the same
bytes again, which look like a new call with the same arguments. The delivery of the earlier reply
(`ludus.server.web.delivery`) decides which it is. If that reply was lost, the later request is a repeat, and is
answered with the work of the earlier one. If it was delivered, the later request is new. Until this is known, the later
request waits.

When a client sends a different request, lost requests from before are no longer resumed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ludus.server.web.delivery import Delivery

RETRY_PAUSE_SECONDS: Final = 0.2
"""The shortest pause before a repeat. `ors-sdk` and `openreward` send again 0.5 s after they lost a connection, so a
request that comes sooner after a complete reply was reset is not a repeat: the client had read the reply."""


class SentRequest:
    """One request, and the task id of the work that answers it."""

    __slots__ = ("before", "delivery", "task_id")

    def __init__(self, delivery: Delivery, before: SentRequest | None) -> None:
        self.delivery = delivery
        self.before = before
        """The request that this one may repeat; None once that is known."""
        self.task_id: str | None = None
        """The id of the work; None until it is begun or found."""


class Repeats:
    """The requests of a session whose replies may be lost, by their content."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[bytes, SentRequest] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def record(self, content: bytes, delivery: Delivery) -> SentRequest:
        """Record a request, and return its entry.

        Args:
            content: the content of the request; requests with equal contents are equal.
            delivery: the delivery of its reply.
        """
        before = self._latest.get(content)
        if before is None or before.delivery.verdict:
            if len(self._latest) > (before is not None):  # there are others
                self._latest = {
                    key: request for key, request in self._latest.items() if request.delivery.verdict is None
                }
            before = None
        request = self._latest[content] = SentRequest(delivery, before)
        return request

    async def repeated(self, sent: SentRequest, *, retries_slowly: bool) -> str | None:
        """Return the task id of the lost request that this one repeats; None for a new request.

        Args:
            sent: the request.
            retries_slowly: whether its client is known to pause before it sends a request again.
        """
        before = sent.before
        too_soon = asyncio.get_running_loop().time() - RETRY_PAUSE_SECONDS
        while before is not None:
            delivered = await before.delivery.wait()
            if delivered or (retries_slowly and before.delivery.lost_after(too_soon)):
                before = None
            elif before.task_id is not None:
                sent.task_id = before.task_id
                before = None
            else:  # its reply was lost before its work began
                before = before.before
        sent.before = None
        return sent.task_id

    def resumed(self, task_id: str, delivery: Delivery) -> None:
        """Record that work was requested again by its id: the delivery of this reply now decides for it."""
        for request in self._latest.values():
            if request.task_id == task_id:
                request.delivery = delivery
