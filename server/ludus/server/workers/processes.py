"""The processes of workers, on this machine.

A process is started in two phases: it loads the environments (`Launcher.start`), and only after another order it
opens its journal and serves (`Process.serve`). So a process can load while the one before still serves, and take the
episodes over in the time that the journal needs. `Process.release` is the other half of such a handover.

`python -m ludus.server.workers.child` (`child.py`) is the other side: it reads lines of JSON from its standard input
and writes lines to a file descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ludus.server.workers.orders import HAND_OVER, SERVE, Order
from ludus.server.workers.parent import BEAT

__all__ = ["NotStarted"]


_BEAT: Final = b'{"%b"' % BEAT.encode()

EXIT_SECONDS: Final = 15.0
"""How long a process may take to end after the time for its running steps, before it is killed."""


class NotStarted(Exception):
    """A process has ended, or said why it cannot serve, before it served."""


class Process(Protocol):
    """A process of a worker.

    Attributes:
        title: what names it in the log.
        environments: the names of its environments; empty before it serves.
    """

    title: str
    environments: list[str]

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs, or if it is not known."""
        ...

    def note_question(self) -> None:
        """Note that it is being asked for its load."""
        ...

    async def turns(self) -> int:
        """Return the number of its event loop's last sign of life; 0 if that is not known."""
        ...

    async def serve(self, seconds: float) -> tuple[str, int]:
        """Let it open its journal and serve, and return its host and port.

        Raises:
            NotStarted: it cannot, or not within so many seconds; it has ended.
        """
        ...

    async def release(self, seconds: float) -> None:
        """Let it end in order. Return once another process may open its journal; kill it after so many seconds."""
        ...

    async def leave(self, seconds: float) -> None:
        """Wait until a process that was asked to end has ended; kill it after so many seconds."""
        ...

    async def stop(self, seconds: float) -> None:
        """Let it end in order, and wait for that; kill it after so many seconds."""
        ...

    async def wait(self) -> None:
        """Wait until it has ended."""
        ...

    async def kill(self) -> None:
        """Kill it, which also ends a process that is paused, and wait for its end."""
        ...

    def kill_now(self) -> None:
        """Kill it without waiting for its end."""
        ...


class Launcher(Protocol):
    """Starts processes of workers."""

    async def start(self, order: Order, seconds: float) -> Process:
        """Start a process, and return it once it has loaded its environments.

        Raises:
            NotStarted: it cannot load them, or not within so many seconds.
        """
        ...

    async def close(self) -> None:
        """Give up what it needed to start processes; they have ended."""
        ...


class LocalProcess:
    """A process of this machine.

    Args:
        process: the process.
        lines: what it says, line by line.
    """

    def __init__(self, process: asyncio.subprocess.Process, lines: Lines) -> None:
        self._process = process
        self._lines = lines
        self.title = f"process {process.pid}"
        self.environments: list[str] = []

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.returncode

    def note_question(self) -> None:
        """Do nothing: such a process can always be killed."""

    async def turns(self) -> int:
        """Return the number of its last sign of life; see `Process.turns`."""
        return self._lines.turns

    async def load(self, order: Order, seconds: float) -> None:
        """Give it its order, and wait until it has loaded its environments.

        Raises:
            NotStarted: it cannot, or not within so many seconds.
        """
        write_line(self._process, order.model_dump(mode="json"))
        await self._answer(seconds)

    async def serve(self, seconds: float) -> tuple[str, int]:
        """Let it open its journal and serve; see `Process.serve`."""
        write_line(self._process, SERVE)
        reply = await self._answer(seconds)
        self.environments = reply["environments"]
        return reply["host"], reply["port"]

    async def release(self, seconds: float) -> None:
        """Let it end in order, and return once its journal is free; see `Process.release`."""
        write_line(self._process, HAND_OVER)
        try:
            async with asyncio.timeout(seconds):
                if not await self._lines.read():
                    await self.wait()
        except TimeoutError:
            await self.kill()

    async def stop(self, seconds: float) -> None:
        """Let it end in order, and wait for that; see `Process.stop`."""
        self._signal(signal.SIGTERM)
        await self.leave(seconds)

    async def leave(self, seconds: float) -> None:
        """Wait for its end; see `Process.leave`."""
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()
        self._lines.close()

    async def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.kill_now()
        await self.wait()

    def kill_now(self) -> None:
        """Kill it without waiting for its end."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _answer(self, seconds: float) -> dict[str, Any]:
        """Return what it answers.

        Raises:
            NotStarted: it says why it cannot, ends without a word, or does not answer in time; it has ended.
        """
        try:
            async with asyncio.timeout(seconds):
                line = await self._lines.read()
        except TimeoutError:
            line = b'{"error": "it did not start in time"}'
        ended = {"error": "its process ended before it served; see its log"}
        reply: dict[str, Any] = json.loads(line) if line else ended
        if "error" in reply:
            await self.kill()
            raise NotStarted(reply["error"])
        return reply


class LocalLauncher:
    """Starts processes on this machine.

    Args:
        variables: variables that are added to the processes' environment.
        folder: the folder in which they run; that of this process by default.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, folder: str | None = None) -> None:
        self._variables = variables
        self._folder = folder

    async def start(self, order: Order, seconds: float) -> LocalProcess:
        """Start a process, and return it once it has loaded its environments; see `Launcher.start`."""
        process, lines = await spawn("ludus.server.workers.child", self._variables, self._folder)
        local = LocalProcess(process, lines)
        try:
            await local.load(order.model_copy(update={"parent": os.getpid(), "signs_of_life": True}), seconds)
        except BaseException:
            await local.kill()
            raise
        return local

    async def close(self) -> None:
        """Do nothing; see `Launcher.close`."""


async def spawn(
    module: str, variables: Mapping[str, str] | None = None, folder: str | None = None
) -> tuple[asyncio.subprocess.Process, Lines]:
    """Start a Python module as a process that follows this one (see `parent`), and return what it answers, too."""
    read_end, write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, str(write),
            stdin=asyncio.subprocess.PIPE, pass_fds=(write,), cwd=folder, env={**os.environ, **(variables or {})},
        )  # fmt: skip
        return process, await Lines.of(read_end)
    finally:
        os.close(write)
        os.close(read_end)


def write_line(process: asyncio.subprocess.Process, line: object) -> None:
    """Write a line of JSON to a process that `spawn` has started; one that has ended does not get it."""
    assert process.stdin is not None
    if not process.stdin.is_closing():
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.write(json.dumps(line).encode() + b"\n")


class Lines(asyncio.Protocol):
    """The lines that a process writes to a pipe.

    Attributes:
        turns: the number of the last sign of life (`Answers.beat`); 0 before the first one.
    """

    def __init__(self) -> None:
        self.turns = 0
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._ended = False
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def of(cls, descriptor: int) -> Lines:
        """Read from a file descriptor, which stays the caller's."""
        _, lines = await asyncio.get_running_loop().connect_read_pipe(cls, os.fdopen(os.dup(descriptor), "rb", 0))
        return lines

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the lines that are complete, and note signs of life."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(_BEAT):
                self.turns = json.loads(line)[BEAT]
            else:
                self._lines.put_nowait(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no further line comes."""
        self._ended = True
        self._lines.put_nowait(b"")

    async def read(self) -> bytes:
        """Return the next line; empty if the process has ended."""
        if self._ended and self._lines.empty():
            return b""
        return await self._lines.get()

    def close(self) -> None:
        """Read no more."""
        if self._transport is not None:
            self._transport.close()
