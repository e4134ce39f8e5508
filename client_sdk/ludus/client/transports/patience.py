"""Waits for a server that refuses a request for one of its limits, and sends the request again under its key.

How this works:

* A refusal for a limit is a `CapacityError` with `retry_after`. The request is sent again after that time, until
  `seconds` have passed since the first refusal. A refusal that says to wait longer than that is raised at once.
* On a wire that keeps order, further steps of the episode may already be on their way behind a refused one. The server
  refuses them as steps out of order. They wait for the steps before them, and are then sent again as well.
* ORS has no keys for a whole request of the client, which may be several HTTP requests. There, `OrsHttp` waits in the
  same way for each of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from ludus.client.transports.base import Retries, WireAround
from ludus.protocol.episodes import StepParams
from ludus.protocol.errors import CapacityError, StepConflict
from ludus.protocol.model import WireModel

if TYPE_CHECKING:
    from ludus.client.transports.base import Wire
    from ludus.protocol.methods import Method

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

FIRST_PAUSE: Final = 0.005
LAST_PAUSE: Final = 2.0


def limit_retries(seconds: float) -> Retries:
    """Return the retries of one request that a server refuses for a limit, within a time in seconds."""
    return Retries(seconds, FIRST_PAUSE, LAST_PAUSE)


class PatientWire(WireAround):
    """A wire whose requests wait while the server refuses them for a limit.

    Args:
        inner: the wire.
        seconds: how long a request waits, from the first refusal on; 0 to raise the first one.
    """

    def __init__(self, inner: Wire, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._held: dict[str, dict[int, asyncio.Future[None]]] = {}
        """Steps that wait, by episode and number; each future is done when the step has its outcome."""

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`. Each try has the whole `timeout`."""
        if not self._held:
            try:
                return await self._inner.request(method, params, timeout=timeout)
            except CapacityError as error:
                refused: CapacityError | StepConflict = error
                if error.retry_after is None or error.retry_after > self._seconds:
                    raise
            except StepConflict as error:
                refused = error
                if self._before(params) is None:
                    raise
        elif self._before(params) is None:
            return await self._patiently(method, params, timeout, None)
        else:
            return await self._as_step(method, params, timeout, None)
        if isinstance(params, StepParams):
            return await self._as_step(method, params, timeout, refused)
        return await self._patiently(method, params, timeout, refused)

    def _before(self, params: WireModel) -> list[asyncio.Future[None]] | None:
        """Return the steps that wait and are before this one in its episode; None if there is none."""
        if not isinstance(params, StepParams) or (held_steps := self._held.get(params.episode)) is None:
            return None
        return [future for number, future in held_steps.items() if number < params.step] or None

    async def _as_step(
        self, method: Method[P, R], params: P, timeout: float | None, refused: CapacityError | StepConflict | None
    ) -> R:
        """Send a step until it is accepted; steps behind it wait meanwhile."""
        assert isinstance(params, StepParams)
        held_steps = self._held.setdefault(params.episode, {})
        future = held_steps[params.step] = asyncio.get_running_loop().create_future()
        try:
            return await self._patiently(method, params, timeout, refused)
        finally:
            future.set_result(None)
            if held_steps.get(params.step) is future:
                del held_steps[params.step]
            if not held_steps and self._held.get(params.episode) is held_steps:
                del self._held[params.episode]

    async def _patiently(
        self, method: Method[P, R], params: P, timeout: float | None, refused: CapacityError | StepConflict | None
    ) -> R:
        retries = limit_retries(self._seconds)
        while True:
            if isinstance(refused, CapacityError) and not (
                refused.retry_after is not None and await retries.wait(refused.retry_after)
            ):
                raise refused
            if (before := self._before(params)) is not None:
                await asyncio.wait(before)
            elif isinstance(refused, StepConflict):
                raise refused
            try:
                return await self._inner.request(method, params, timeout=timeout)
            except (CapacityError, StepConflict) as error:
                refused = error
