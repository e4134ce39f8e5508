"""The broker: a process that creates sandboxes for one process of an endpoint; `sandboxes.py` starts it.

It serves the protocol of `ludus sandboxd` on the socket that the endpoint sees, and holds the endpoint to its limits:
what its sandboxes may use together, show and reach. It trusts nothing that it is sent. It ends when its standard input
is closed, and its sandboxes end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from ludus.hub.endpoints.sandboxes import BrokerOrder
from ludus.protocol.errors import LudusError
from ludus.sandbox.box import RunnerBox
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.cgroups import Groups
from ludus.sandbox.core.errors import SandboxFailed, SandboxUnsupported
from ludus.sandbox.remote.daemon import Daemon, serving_sandboxes
from ludus.sandbox.remote.session import HostLimits
from ludus.server.web.logs import ConsoleFormatter

if TYPE_CHECKING:
    from ludus.sandbox import Limits, SandboxSettings

_CLIENTS: Final = 4
"""An endpoint's process is one client; more are sessions that have just ended."""
_REQUEST_BYTES: Final = 256 * 1024 * 1024
_SYSTEM: Final = "/usr"
"""What every sandbox shows of this machine, so that it may be shown at other paths as well."""
_PR_SET_PDEATHSIG: Final = 1


class BrokeredBubblewrap(Bubblewrap):
    """Bubblewrap sandboxes within the limits of an endpoint.

    Args:
        order: the limits.
    """

    def __init__(self, order: BrokerOrder) -> None:
        super().__init__(cgroups=False)
        self._order = order
        self._groups = Groups.at(order.groups) if order.groups is not None else None
        self._starting: list[Limits] = []

    async def _try(self) -> None:
        """Do nothing: the hub has created sandboxes already, that of the endpoint among them."""

    async def _check(self, settings: SandboxSettings) -> None:
        order, asked = self._order, settings.limits
        denied = sorted(set(settings.network) - set(order.network))
        if denied:
            raise SandboxUnsupported(
                f"the sandboxes of {order.title} may not reach {', '.join(denied)}: its manifest must name each host "
                "in `network`, and the operator of the hub must grant that in the setting `network`"
            )
        if _space(asked) > order.space or _tasks(asked) > order.processes:
            raise SandboxUnsupported(
                f"a sandbox with {_space(asked):,} bytes of memory and disk and {_tasks(asked)} processes does not fit "
                f"into {order.title}, whose sandboxes have {order.space:,} bytes and {order.processes} processes "
                "together: set smaller `limits` in `sandbox_settings`, or ask for more memory and disk in the manifest "
                "(`resources`)"
            )
        await super()._check(settings)

    async def _start(self, settings: SandboxSettings) -> RunnerBox:
        """Start a sandbox. Without control groups, what all may use is counted, whether they use it or not.

        Raises:
            SandboxFailed: it does not start, or there is no room for it.
        """
        if self._groups is None:
            used = [box.limits for box in self._pool.boxes] + self._starting
            space = sum(map(_space, used)) + _space(settings.limits)
            tasks = sum(map(_tasks, used)) + _tasks(settings.limits)
            if space > self._order.space or tasks > self._order.processes:
                raise SandboxFailed(
                    f"{self._order.title} has {len(used)} sandboxes, and the limits of its endpoint leave no room for "
                    "another; this machine has no control groups, so each counts with all that it may use"
                )
        self._starting.append(settings.limits)
        try:
            return await super()._start(settings)
        finally:
            self._starting.remove(settings.limits)


def _space(limits: Limits) -> int:
    return limits.memory + limits.disk


def _tasks(limits: Limits) -> int:
    return limits.processes + limits.spawned + 4


def main() -> int:
    """Serve until standard input is closed, and return the exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    handler = logging.StreamHandler()
    handler.setFormatter(ConsoleFormatter("[sandboxes] %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    order = BrokerOrder.model_validate_json(sys.stdin.buffer.readline() or b"null")
    try:
        asyncio.run(_serve(order))
    except LudusError as error:
        logging.getLogger("ludus.hub.endpoints").error("%s", error.message)
        return 1
    return 0


async def _serve(order: BrokerOrder) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    provider = BrokeredBubblewrap(order)
    await provider.open()
    limits = HostLimits(
        clients=_CLIENTS, boxes=order.count, boxes_per_client=order.count, bytes_per_client=_REQUEST_BYTES,
        known=order.known, readonly=(_SYSTEM,),
    )  # fmt: skip
    daemon = Daemon(provider, token=None, limits=limits)
    async with serving_sandboxes(daemon, listener=socket.socket(fileno=order.listener)):
        await stop.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
