"""The sandboxes of one process of an endpoint, as the hub sees them.

How this works:

* An endpoint's process has no rights to create a sandbox itself: its system-call filter refuses namespaces. It asks a
  broker instead, over a Unix socket that its own sandbox shows at `SOCKET`, in the protocol of `ludus sandboxd`.
* The broker (`broker.py`) is a process of the hub, one for each process of an endpoint, so that what a package sends it
  can hurt no other package and not the hub. It starts when the first connection arrives.
* What the broker creates are ordinary bubblewrap sandboxes next to that of the endpoint, not within it: each has its
  own user id and namespaces, and sees neither the endpoint's files and processes nor the socket.
* One control group is around the endpoint's process, its broker and its sandboxes, with the limits of the endpoint. A
  second one, within it, leaves the sandboxes `SHARE` of that, so that they cannot starve the process itself.
* The broker ends with the process, and with the hub, however those end; its sandboxes end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict

from ludus.hub.endpoints.places import SANDBOXES
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.core.stale import OWNER

if TYPE_CHECKING:
    from ludus.sandbox import Limits, Sandbox, SandboxSettings
    from ludus.sandbox.cgroups import Group, Groups

log = logging.getLogger("ludus.hub.endpoints")

SHARE: Final = 0.75
"""How much of the memory, the disk and the processes of an endpoint its sandboxes may have together."""

_STOP_SECONDS: Final = 10.0
_STARTS: Final = 8
"""How many times the broker of one process is started: each time that it ends, all sandboxes of that are lost."""
_BACKLOG: Final = 16


class BrokerOrder(BaseModel):
    """What a broker may create. Sizes are in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    """The release, for messages."""
    listener: int
    """The descriptor of the socket on which it listens."""
    groups: dict[str, Any] | None
    """Where the control groups of sandboxes are; None if the hub has none. See `Groups.describe`."""
    space: int
    """Memory and disk of all sandboxes together."""
    processes: int
    """Processes of all sandboxes together."""
    count: int
    """Sandboxes at one time."""
    known: tuple[tuple[str, str], ...]
    """The folders that sandboxes may show: (path in the endpoint, path on this machine)."""
    network: tuple[str, ...]
    """The hosts that sandboxes may reach."""


class ProcessSandboxes:
    """The place of one process of an endpoint and of its sandboxes.

    Args:
        provider: the hub's sandboxes.
        title: the release, for messages.
        limits: those of the process.
        count: how many sandboxes it may have at one time.
        known, network: see `BrokerOrder`.
        note: gets what the broker writes, line by line.
    """

    def __init__(
        self, provider: Bubblewrap, title: str, limits: Limits, count: int, known: tuple[tuple[str, str], ...],
        network: tuple[str, ...], note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._provider = provider
        self._title = title
        self._limits = limits
        self._count = count
        self._known = known
        self._network = network
        self._note = note
        self._folder: Path | None = None
        self._listener: socket.socket | None = None
        self._groups: Groups | None = None
        self._inner: Groups | None = None
        self._made: list[Group] = []
        self._running: asyncio.Task[None] | None = None
        self._starts = 0
        self._closing: asyncio.Task[None] | None = None

    async def create(self, settings: SandboxSettings) -> Sandbox:
        """Return the sandbox of the process itself, which shows the broker's socket.

        Raises:
            SandboxFailed: it could not be started.
        """
        try:
            self._open()
            shown = (*settings.readonly, (str(self._folder), SANDBOXES))
            provider = self._provider if self._groups is None else self._provider.within(self._groups)
            return await provider.create(settings.model_copy(update={"readonly": shown}))
        except BaseException as error:
            await self.aclose()
            if isinstance(error, OSError):
                raise SandboxFailed(f"the sandbox of an endpoint cannot be prepared: {error}") from None
            raise

    async def aclose(self) -> None:
        """End all sandboxes and the broker, and remove the control groups; the process must have ended."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    def _open(self) -> None:
        if (base := self._provider.groups) is not None:
            limits = self._limits
            tasks = limits.processes + limits.spawned + 4
            outer, self._groups = base.nest(limits.memory + limits.disk, tasks)
            self._made.append(outer)
            inner, self._inner = self._groups.nest(self._space, self._processes)
            self._made.append(inner)
        made = Path(tempfile.mkdtemp(prefix=f"{OWNER}-"))  # no other user can enter it
        self._folder = made / "shown"
        self._folder.mkdir(mode=0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "socket"))
        os.chmod(self._folder, 0o755)
        os.chmod(self._folder / "socket", 0o666)  # the process has a user id of its own
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._begin)

    @property
    def _space(self) -> int:
        return int(SHARE * (self._limits.memory + self._limits.disk))

    @property
    def _processes(self) -> int:
        return int(SHARE * self._limits.processes)

    def _begin(self) -> None:
        """Start the broker, which accepts the connection that has arrived."""
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._starts += 1
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Run the broker until it ends, and wait for the next connection if the process goes on."""
        assert self._listener is not None
        try:
            await self._run_broker(self._listener)
        except OSError as error:
            log.warning("the broker of %s cannot be started: %s", self._title, error)
        if self._starts < _STARTS:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._begin)
        else:
            self._note(f"[its sandboxes have been lost {_STARTS} times, so it gets no more]")
            self._listener.close()

    async def _run_broker(self, listener: socket.socket) -> None:
        order = BrokerOrder(
            title=self._title, listener=listener.fileno(), space=self._space, processes=self._processes,
            groups=self._inner.describe() if self._inner is not None else None, count=self._count, known=self._known,
            network=self._network,
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-m", "ludus.hub.endpoints.broker", stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, pass_fds=(listener.fileno(),),
            env=_variables(), start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            if self._groups is not None:
                group = self._groups.new()
                self._made.append(group)
                group.make(self._limits.memory + self._limits.disk, self._limits.processes)
                group.add(process.pid)
            process.stdin.write(order.model_dump_json().encode() + b"\n")
            while line := await process.stderr.readline():
                self._note(line.decode("utf-8", "replace"))
            await process.wait()
        finally:
            process.stdin.close()
            await asyncio.shield(asyncio.ensure_future(_wait_or_kill(process)))

    async def _close(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(ValueError, OSError):
                asyncio.get_running_loop().remove_reader(self._listener.fileno())
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder.parent, ignore_errors=True)
        for group in reversed(self._made):
            await group.remove(inner=True)


async def _wait_or_kill(process: asyncio.subprocess.Process) -> None:
    """Wait until a broker whose input was closed has ended its sandboxes; kill it, and them with it, if it does not."""
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _variables() -> dict[str, str]:
    """Return the environment variables of a broker: where programs and modules are, and nothing else of the hub."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR", "LANG") if name in os.environ}
