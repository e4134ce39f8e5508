"""The base class of all sandboxes: it runs operations in turn, survives a canceled caller, forks, and closes once."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ludus.sandbox.core.allowlist import Allowlist, proxy_variables
from ludus.sandbox.core.errors import SandboxFailed, SandboxLimitReached, SandboxUnsupported
from ludus.sandbox.core.model import Limits, NetworkUse, RunResult, Sandbox, SandboxSettings
from ludus.sandbox.core.processes import Process
from ludus.sandbox.network.netns_listener import ADDRESS
from ludus.telemetry.tracing import active

if TYPE_CHECKING:
    from ludus.sandbox.cassettes.tape import Tape
    from ludus.sandbox.core.ports import Port
    from ludus.sandbox.core.terminal import Terminal
    from ludus.sandbox.network.proxy import EgressProxy

log = logging.getLogger("ludus.sandbox")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments of `run`, `spawn` or `open_terminal`, combined with the sandbox's own environment and limits."""

    argv: list[str]
    stdin: bytes
    env: dict[str, str]
    cwd: str
    limits: Limits
    terminal: tuple[int, int] | None = None
    """The rows and columns of its terminal, if it runs on one."""


class SandboxBase(Sandbox, ABC):
    """What all backends share. A backend implements how a command runs, how files are accessed, and how to close."""

    def __init__(
        self, settings: SandboxSettings, env: Mapping[str, str],
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
    ) -> None:  # fmt: skip
        self.settings = settings
        self.limits = settings.limits
        self.background: Process | None = None
        allowed = Allowlist(settings.network)
        self._env = {**env, **(proxy_variables(ADDRESS, allowed) if settings.network else {}), **dict(settings.env)}
        self._another = another
        self._on_close = on_close
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._lost = False
        """Whether the last command ended everything in the sandbox, so that it must be rebuilt."""
        self._rebuilding: asyncio.Task[None] | None = None
        self._egress: EgressProxy | None = None
        self._background: set[object] = set()
        """A mark for each background process, those included that are being started."""
        self._in_command = False
        """Whether a `run` is in progress."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the sandbox can be used."""

    @abstractmethod
    async def _run(self, command: Command) -> RunResult:
        """Run one command; called in turn."""

    async def _spawn(self, command: Command, on_end: Callable[[], None]) -> Process | Terminal:
        """Start a background process, on a terminal if the command has one; not called in turn.

        Args:
            command: what to start.
            on_end: called once when the process has ended, also by the end of the sandbox.

        Raises:
            SandboxLimitReached: a limit leaves no room for it.
        """
        raise SandboxUnsupported(f"{self.settings.provider} sandboxes cannot run background processes")

    async def _connect(self, port: int) -> socket.socket:
        """Connect to a port on the sandbox's loopback; not called in turn.

        Raises:
            SandboxPortClosed: nothing accepts the connection.
        """
        raise SandboxUnsupported(f"{self.settings.provider} sandboxes cannot connect to ports")

    @abstractmethod
    async def _rebuild(self) -> None:
        """Start everything in the sandbox again, with the files that were saved.

        Raises:
            SandboxFailed: it cannot be rebuilt.
        """

    @abstractmethod
    def _stop(self) -> None:
        """End the running command soon, since no caller waits for it. A file operation may run to its end."""

    @abstractmethod
    def _kill(self) -> None:
        """Start ending everything in the sandbox, without waiting: an event loop that ends may not wait."""

    @abstractmethod
    async def _close(self) -> None:
        """End everything in the sandbox and remove it; called once, or again if the first call was canceled."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: str = ".",
        limits: Limits | None = None,
    ) -> RunResult:  # fmt: skip
        """See `Sandbox.run`."""
        command = self._command(argv, env, cwd, limits, stdin)
        tracing = active()
        if tracing is None:
            return await self._in_turn(lambda: self._run_watched(command))
        with tracing.span("sandbox command", {"ludus.sandbox": self.settings.provider}) as span:
            result = await self._in_turn(lambda: self._run_watched(command))
            if result.exit_code is not None:
                span.set_attribute("process.exit.code", result.exit_code)
            return result

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = ".",
        limits: Limits | None = None,
    ) -> Process:  # fmt: skip
        """See `Sandbox.spawn`."""
        process = await self._start_background(self._command(argv, env, cwd, limits))
        assert isinstance(process, Process)
        return process

    async def open_terminal(
        self, argv: Sequence[str] = ("/bin/sh",), *, rows: int = 24, columns: int = 80,
        env: Mapping[str, str] | None = None, cwd: str = ".", limits: Limits | None = None,
    ) -> Terminal:  # fmt: skip
        """See `Sandbox.open_terminal`."""
        from ludus.sandbox.core.terminal import Terminal, check_size  # imported here because few environments need it

        check_size(rows, columns)
        command = self._command(argv, {"TERM": "linux", **(env or {})}, cwd, limits)
        terminal = await self._start_background(replace(command, terminal=(rows, columns)))
        assert isinstance(terminal, Terminal)
        return terminal

    async def connect(self, port: int) -> socket.socket:
        """See `Sandbox.connect`."""
        if not 1 <= port <= 65535:
            raise ValueError(f"{port} is not a TCP port: these are 1 to 65,535")
        if not (self.settings.loopback or self.settings.network):
            raise SandboxUnsupported(
                "commands of this sandbox may not open sockets, so it has no ports: set `loopback=True` in the settings"
            )
        await self._wait_until_usable()
        return await self._connect(port)

    async def expose(self, port: int, *, seconds: float = 30.0) -> Port:
        """See `Sandbox.expose`."""
        from ludus.sandbox.core.ports import wait_for_port  # aiohttp takes 0.1 s, and few environments need it

        return await wait_for_port(self.connect, port, seconds)

    def _command(
        self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str, limits: Limits | None, stdin: bytes = b""
    ) -> Command:
        if isinstance(argv, str) or not argv:
            raise ValueError("argv must be a non-empty list: the program and its arguments")
        allowed = self.limits if limits is None else limits.within(self.limits)
        variables = {str(name): str(value) for name, value in {**self._env, **(env or {})}.items()}
        return Command(list(map(str, argv)), stdin, variables, str(cwd), allowed)

    async def _start_background(self, command: Command) -> Process | Terminal:
        await self._wait_until_usable()
        self.check_cassette()
        running = len(self._background)
        if running >= self.limits.spawned:
            raise SandboxLimitReached(
                f"{running} background processes run in the sandbox, as many as its limit on `spawned` allows: end one "
                "first, or raise the limit"
            )
        # No await between the check above and this: two calls at once would both pass the limit.
        token = object()
        self._background.add(token)
        if self._egress is not None and running == 0 and not self._in_command:
            self._egress.begin()
        try:
            return await self._spawn(command, lambda: self._end_background(token))
        except BaseException:
            self._end_background(token)
            raise

    def _end_background(self, token: object) -> None:
        """Note that a background process has ended, or was not started."""
        self._background.discard(token)
        if self._egress is not None and not self._background and not self._in_command:
            self._egress.stop()

    async def _wait_until_usable(self) -> None:
        """Rebuild the sandbox if it must be, without waiting for a command that runs in it."""
        if self._lost:
            await self._in_turn(self._make_usable)

    async def _make_usable(self) -> None:
        """Rebuild the sandbox if its last command ended it; called in turn.

        Raises:
            SandboxFailed: it cannot be rebuilt, or it was closed.
        """
        if not self._lost or self._closing is not None:
            return
        # A task of its own, so that `aclose` can cancel the rebuild without canceling this caller.
        self._rebuilding = asyncio.get_running_loop().create_task(self._rebuild())
        try:
            await self._rebuilding
        except asyncio.CancelledError:
            if self._closing is None:
                raise
            raise SandboxFailed("the sandbox is gone: it was closed") from None
        except BaseException:
            await self.aclose()
            raise
        self._lost = False

    @property
    def tape(self) -> Tape | None:
        """The cassette that answers the requests of its programs, if its settings name one."""
        return None if self._egress is None else self._egress.tape

    def check_cassette(self) -> None:
        """Raise an error if its programs have requested what its cassette does not have.

        Raises:
            CassetteMiss: so that the episode is unscored.
        """
        if self.tape is not None and self.tape.failure is not None:
            raise self.tape.failure

    def _open_egress(self, listener: socket.socket) -> None:
        """Create the egress proxy to the hosts of the allowlist, on a listening socket in the sandbox's own network."""
        from ludus.sandbox.network.proxy import EgressProxy  # imported here because few environments need it

        tape = None
        if self.settings.cassette is not None:
            from ludus.sandbox.cassettes.tape import Tape

            tape = Tape(self.settings.cassette)
        self._egress = EgressProxy(listener, Allowlist(self.settings.network), self.limits.traffic, tape=tape)

    async def _run_watched(self, command: Command) -> RunResult:
        """Run one command while the egress proxy accepts connections; add the network use to its result."""
        await self._make_usable()
        egress = self._egress
        if egress is None or self._closing is not None:
            return await self._run(command)
        # Read before the command: one that finds the traffic spent already did not exceed the limit itself.
        had_room = not egress.spent
        egress.begin()
        self._in_command = True
        used: tuple[NetworkUse, ...] = ()
        try:
            result = await self._run(command)
        finally:
            self._in_command = False
            # Background processes still use the proxy; then the last of them to end stops it.
            used = egress.uses() if self._background else await egress.finish()
        for use in used:
            if use.refused is not None:
                log.info("%s", use)
        self.check_cassette()
        failed = result.limit is None and result.exit_code != 0
        out_of_traffic = failed and had_room and egress.spent
        return replace(result, network=used, limit="traffic" if out_of_traffic else result.limit)

    async def _in_turn(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation after those before it have ended.

        When the caller is canceled, an operation that still waits never starts, a running command is ended, and the
        sandbox stays usable for the next caller.
        """
        begun = False

        async def run_in_turn() -> T:
            nonlocal begun
            async with self._turn:
                begun = True
                return await operation()

        # A task of its own: a canceled caller must not stop an operation halfway, which would leave an unknown state.
        task = asyncio.get_running_loop().create_task(run_in_turn())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not begun:
                task.cancel()
            elif not task.done():
                self._stop()
            # asyncio reports an exception that is never read, and this caller is gone.
            task.add_done_callback(_forget)
            raise

    async def fork(self) -> SandboxBase:
        """See `Sandbox.fork`."""
        snapshot = await self.snapshot()
        copy = await self._another(self.settings)
        try:
            if self._egress is not None and self._egress.tape is not None and copy._egress is not None:
                copy._egress.tape = self._egress.tape.again()
            await copy.restore(snapshot)
        except BaseException:
            await copy.aclose()
            raise
        return copy

    async def aclose(self) -> None:
        """See `Sandbox.aclose`."""
        if self._closing is None or self._closing.cancelled():
            # Kill before the first await: an event loop that is ending may never run the task.
            self._kill()
            self._closing = asyncio.get_running_loop().create_task(self._close_once())
        await asyncio.shield(self._closing)

    async def _close_once(self) -> None:
        try:
            if self._rebuilding is not None:
                # A rebuild that went on would start processes after `_close` has ended the others.
                self._rebuilding.cancel()
                await asyncio.gather(self._rebuilding, return_exceptions=True)
            if self._egress is not None:
                await self._egress.aclose()
            await self._close()
        except asyncio.CancelledError:
            raise  # the provider keeps this sandbox in its list and can close it again
        except BaseException:
            self._on_close(self)
            raise
        self._on_close(self)


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
