"""The one background process of a container whose image has no Python, through a shell of the engine.

How this works:

- The shell that waits in the container (`container.py`) runs the process as its only line. Its connection to the
  engine carries the standard input of the process, and its two outputs in frames.
- `_read` passes on output as long as its window has room. The frames of both outputs share the connection, so a
  process whose standard error is not read waits, as at a full pipe.
- `_watch` ends the process at its limits, which it looks at as often as a command's are.
- A signal reaches every process of the sandbox's user, since the process's number is not known outside. The shell
  ignores those that it can.
- A shell that starts another command ends everything before it. So commands and files wait until this process has
  ended: they are refused meanwhile (`ContainerBox._line`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ludus.sandbox import shell_scripts as scripts
from ludus.sandbox.cgroups import Usage
from ludus.sandbox.container_files import ContainerFiles
from ludus.sandbox.container_results import Output, broken_limit, limit_from_counters, result_of
from ludus.sandbox.core.errors import SandboxFailed, SandboxUnsupported
from ludus.sandbox.core.processes import WINDOW, Process, ProcessEnd
from ludus.sandbox.engine_calls import close_stream

if TYPE_CHECKING:
    from ludus.sandbox.base import Command, SandboxBase
    from ludus.sandbox.core.endings import LimitName
    from ludus.sandbox.core.model import Limits, SandboxSettings
    from ludus.sandbox.core.terminal import Terminal

_HEAD: Final = struct.Struct(">BxxxI")
_PART: Final = 1 << 16
LOOK_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 0.02
"""How often a container is looked at if no control group limits it."""
OLDEST_PYTHON: Final = "3.9"
"""The oldest Python that can run our program inside, which images without it do without."""


@dataclass(slots=True)
class Shell:
    """A shell in a container, started ahead, that waits for the line that it is to run."""

    id: str
    stream: Any
    socket: socket.socket
    early: bytes
    """Output that arrived together with the head of the engine's response."""
    reset: bool = False
    """Whether the engine reset the connection instead of ending the output."""

    def close(self) -> None:
        """Close the connection to the shell."""
        close_stream(self.stream)


def line_of(command: Command, watched: bool) -> str:
    """Return the line with which the shell runs a background process."""
    if any("\0" in word for word in command.argv):
        return "echo 'embedded null byte' >&2; exit 126\n"
    words = [*(f"{name}={value}" for name, value in command.env.items()), *command.argv]
    return (
        "trap : HUP INT QUIT USR1 USR2 ALRM TERM; "
        f"chmod 700 {scripts.HOME}; cd -P -- {scripts.quoted(command.cwd)} && "
        f"case $PWD/ in {scripts.HOME}/*) ;; *) false;; esac || exit 125; "
        f"({scripts.limits(_of_spawned(command.limits), watched)}; {scripts.FIRST_TO_GO}; "
        f"exec env -i {' '.join(map(scripts.quoted, words))}); code=$?; {scripts.END_ALL} 2>/dev/null; exit $code\n"
    )


class ShellProcess:
    """The `Link` of the process.

    Args:
        container: where it runs.
        shell: the shell that runs it.
        line: the shell's line.
        limits: those of the process.
        on_end: called once when it has ended.
    """

    def __init__(
        self, container: ContainerBackground, shell: Shell, line: str, limits: Limits, on_end: Callable[[], None]
    ) -> None:
        self.process = Process(self)
        self._container = container
        self._shell = shell
        self._limits = limits
        self._on_end = on_end
        self.running = True
        """Whether it has not ended."""
        self._limit: LimitName | None = None
        self._peak = 0
        """The most memory that its sandbox was seen to use, in bytes."""
        self._gone = False
        self._room = [WINDOW, WINDOW]
        self._granted = asyncio.Event()
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._input.put_nowait(line.encode("utf-8", "surrogateescape"))
        self._line_left = True
        self._ending: asyncio.Task[None] | None = None
        self._signals: set[asyncio.Task[None]] = set()
        self._main = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Stop at the end of the sandbox, which ends the process."""
        self._main.cancel()
        await asyncio.gather(self._main, return_exceptions=True)

    # ── what the process's user asks for ───────────────────────────────────────────────────────────────────────────

    def send_input(self, data: bytes, eof: bool) -> None:
        """See `Link.send_input`."""
        if data:
            self._input.put_nowait(data)
        if eof:
            self._input.put_nowait(None)

    def grant(self, stream: int, size: int) -> None:
        """See `Link.grant`."""
        self._room[stream] += size
        self._granted.set()

    def signal(self, number: int, group: bool) -> None:
        """Send a signal to every process of the sandbox's user; see the module."""
        task = asyncio.get_running_loop().create_task(self._container.signal_all(number))
        self._signals.add(task)
        task.add_done_callback(self._signals.discard)

    def resize(self, rows: int, columns: int) -> None:
        """Do nothing: there is no terminal."""

    def kill(self) -> None:
        """See `Link.kill`."""
        if self._ending is None and self.running:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    def abandon(self) -> None:
        """See `Link.abandon`."""
        for stream in (0, 1):
            self.grant(stream, 1 << 62)
        self.kill()

    async def _end(self) -> None:
        self._gone = await self._container.end_all()
        if self._gone:
            self._main.cancel()  # the engine does not always end the output of a container that is removed

    # ── its course ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        began, before = time.monotonic(), self._container.usage()
        tasks = [asyncio.ensure_future(coroutine) for coroutine in (self._write(), self._watch(began, before))]
        outcome: ProcessEnd | SandboxFailed = SandboxFailed("the sandbox is gone: it was closed")
        try:
            outcome = await self._outcome(began, before)
        except asyncio.CancelledError:
            if self._gone:
                outcome = ProcessEnd(None, 9, self._limit, time.monotonic() - began, 0.0, self._peak, rebuilt=True)
        except Exception as error:
            outcome = SandboxFailed(f"the sandbox is gone: {str(error) or type(error).__name__}")
        finally:
            for task in (*tasks, *self._signals):
                task.cancel()
            await asyncio.gather(*tasks, *self._signals, return_exceptions=True)
            self._shell.close()
            self.running = False
            self._on_end()
            if isinstance(outcome, ProcessEnd):
                self.process.finish(outcome)
                for stream in (0, 1):
                    self.process.receive_end(stream)
            else:
                self.process.lose(outcome)

    async def _outcome(self, began: float, before: Usage) -> ProcessEnd:
        """Pass on the output until the process has ended, and return how it did."""
        counters = self._container.limit_counters()
        await self._read()
        code = await self._container.exit_code(self._shell.id)
        if code is None:
            raise EOFError("the engine has lost a process that still runs")
        usage = self._container.usage()
        limit = self._limit
        if limit is None and code != 0:
            limit = limit_from_counters(counters, self._container.limit_counters(), self._limits)
        peak_usage = replace(usage, memory=self._peak)
        result = result_of(
            Output(0), code, limit, time.monotonic() - began, before, peak_usage, usage, _of_spawned(self._limits)
        )
        return ProcessEnd(
            result.exit_code, result.signal, result.limit, result.seconds, result.cpu_seconds, result.peak_memory
        )

    async def _read(self) -> None:
        """Pass on the output until the engine ends it."""
        total = 0
        while head := await self._exactly(_HEAD.size):
            number, remaining = _HEAD.unpack(head)
            stream = 1 if number == 2 else 0
            while remaining:
                while self._room[stream] <= 0:
                    self._granted.clear()
                    await self._granted.wait()
                part = await self._exactly(min(remaining, self._room[stream], _PART))
                if not part:
                    return
                remaining -= len(part)
                total += len(part)
                self._room[stream] -= len(part)
                if total > self._limits.spawned_output:
                    self._break("output")
                if self._limit is None:
                    self.process.receive(stream, part)

    async def _exactly(self, size: int) -> bytes:
        loop, buffer = asyncio.get_running_loop(), b""
        with suppress(ConnectionResetError):  # also behind the output of a process that did not read all its input
            while len(buffer) < size and (part := await loop.sock_recv(self._shell.socket, size - len(buffer))):
                buffer += part
        return buffer if len(buffer) == size else b""

    async def _write(self) -> None:
        loop, connection = asyncio.get_running_loop(), self._shell.socket
        try:
            while (data := await self._input.get()) is not None:
                await loop.sock_sendall(connection, data)
                if not self._line_left:
                    self.process.note_taken(len(data))
                self._line_left = False
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            self.process.refuse_input()

    async def _watch(self, began: float, before: Usage) -> None:
        allowed = _of_spawned(self._limits)
        while self._limit is None:
            await asyncio.sleep(WATCH_SECONDS if self._container.watched else LOOK_SECONDS)
            now = self._container.usage()
            self._peak = max(self._peak, now.memory)
            limit = broken_limit(now, before, allowed)
            if limit is None and time.monotonic() - began > self._limits.spawned_seconds:
                limit = "seconds"
            if limit is not None:
                self._break(limit)

    def _break(self, limit: LimitName) -> None:
        if self._limit is None:
            self._limit = limit
            self.abandon()


class ContainerBackground(ContainerFiles):
    """The background process of a sandbox in a container, and what is refused there.

    Args:
        watched: whether no control group limits the container.
        lacking: why the program inside, which other processes and ports need, cannot run in it.
        settings, env, another, on_close: see `SandboxBase`.
    """

    def __init__(
        self, settings: SandboxSettings, env: Mapping[str, str],
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
        watched: bool, lacking: str,
    ) -> None:  # fmt: skip
        super().__init__(settings, env, another, on_close)
        self.watched = watched
        self._lacking = lacking
        self._alone: ShellProcess | None = None
        """The last background process; while it runs, there is no shell that waits."""

    @abstractmethod
    async def take_shell(self) -> Shell:
        """Return the shell that waits, which the caller closes.

        Raises:
            SandboxFailed: there is none any more.
        """

    @abstractmethod
    def start_shell(self) -> None:
        """Start a shell that waits, unless the container is gone."""

    @abstractmethod
    def usage(self) -> Usage:
        """Return what the processes use, as far as it is visible here."""

    @abstractmethod
    def limit_counters(self) -> tuple[int, int, int]:
        """Return the counters of broken limits."""

    @abstractmethod
    async def exit_code(self, shell: str) -> int | None:
        """Return a shell's exit code; None if it stays unknown."""

    @abstractmethod
    async def signal_all(self, number: int) -> None:
        """Send a signal to every process of the sandbox's user."""

    @abstractmethod
    async def end_all(self) -> bool:
        """End every process except the first; return whether the container had to be removed."""

    async def _spawn(self, command: Command, on_end: Callable[[], None]) -> Process | Terminal:
        if command.terminal is not None:
            raise SandboxUnsupported(self._cannot("open terminals"))
        beginning = asyncio.ensure_future(self._in_turn(lambda: self._spawn_in_turn(command, on_end)))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(_end_unwanted)
            raise

    async def _spawn_in_turn(self, command: Command, on_end: Callable[[], None]) -> Process:
        """Run the command in the shell that waits; until it has ended, nothing else can be done in the sandbox."""
        self._check_alone()
        if command.cwd != ".":
            await self._run(replace(command, argv=["true"]))  # raises if there is no such directory

        def end() -> None:
            self.start_shell()
            on_end()

        shell = await self.take_shell()
        self._alone = ShellProcess(self, shell, line_of(command, self.watched), command.limits, end)
        return self._alone.process

    def _check_alone(self) -> None:
        if self._alone is not None and self._alone.running:
            raise SandboxUnsupported(self._cannot("do anything else while a background process runs in them"))

    async def _connect(self, port: int) -> socket.socket:
        raise SandboxUnsupported(self._cannot("connect to ports"))

    def _cannot(self, action: str) -> str:
        image = self.settings.image or self.settings.build
        return (
            f"sandboxes in the image {image!r} cannot {action}, since {self._lacking}; install Python {OLDEST_PYTHON} "
            "or newer in it as `python3`"
        )


def _end_unwanted(beginning: asyncio.Future[Process]) -> None:
    """End a process whose caller was canceled."""
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().request_kill()


def _of_spawned(limits: Limits) -> Limits:
    return limits.but(cpu_seconds=limits.spawned_cpu_seconds)
