"""Background processes of a sandbox as the server sees them; a backend connects each with its `Link`.

How this works:

- The backend passes on what happens: `receive` for output, `receive_end` for the end of a stream, `note_taken` and
  `refuse_input` for input, `finish` for the end of the process, `lose` for the loss of the sandbox.
- Output is held here until it is read. Each stream has a window: the sandbox sends at most `WINDOW` bytes that were not
  read yet, so a process that floods its output waits for its reader, and holds no more than that of this server's
  memory. Each read grants what it took.
- Input has the same window in the other direction: `write` waits while the process has `WINDOW` bytes to take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from ludus.sandbox.core.endings import Ending, LimitName
from ludus.sandbox.core.errors import SandboxFailed, SandboxInputClosed

WINDOW: Final = 256 * 1024
"""Bytes of one stream that may be on the way or unread."""
_GRANT: Final = WINDOW // 4
"""How many bytes are read before the sandbox may send more; each grant is a message."""


@dataclass(frozen=True, slots=True)
class ProcessEnd(Ending):
    """How a background process ended."""

    exit_code: int | None
    """The exit code; None if a signal ended the process."""
    signal: int | None
    """The signal that ended the process; None if it exited."""
    limit: LimitName | None
    """The limit that ended it or made it fail, by its name in `Limits`; None if there was no such limit."""
    seconds: float
    cpu_seconds: float
    """CPU time of all its processes, as far as it could be observed."""
    peak_memory: int
    """Bytes: the largest process or the largest observed sum over all processes."""
    rebuilt: bool = False
    """Whether another command made the whole sandbox end, and this process with it."""


class Link(Protocol):
    """What a process asks of its backend. None of these waits, and none fails if the process has ended."""

    def send_input(self, data: bytes, eof: bool) -> None:
        """Add to the process's standard input; with `eof` it is closed after that."""
        ...

    def grant(self, stream: int, size: int) -> None:
        """Allow `size` more bytes of a stream: 0 is standard output, 1 standard error."""
        ...

    def signal(self, number: int, group: bool) -> None:
        """Send a signal to the process, or to its process group."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""
        ...

    def kill(self) -> None:
        """End it and all processes that it started; `finish` follows."""
        ...

    def abandon(self) -> None:
        """The same, and drop output that has not been read."""
        ...


class OutputStream:
    """Standard output or standard error of a background process. Only one task may read at a time."""

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number
        self._data = bytearray()
        self._taken = 0
        self._eof = False
        self._lost: SandboxFailed | None = None
        self._changed = asyncio.Event()

    @property
    def at_end(self) -> bool:
        """Whether the stream has ended and all of it was read."""
        return self._eof and not self._data

    async def read(self, size: int = WINDOW) -> bytes:
        """Return the next bytes, at least one and at most `size`, as soon as there are any; b"" at the end.

        Raises:
            SandboxFailed: the sandbox is gone for a reason other than the process.
        """
        while not self._data and not self._eof:
            await self._wait()
        return self._take(min(size, len(self._data)))

    async def read_line(self, limit: int = 64 * 1024) -> bytes:
        """Return the next line with its end; the last one may have none. b"" at the end of the stream.

        Args:
            limit: the most bytes of a line, at most `WINDOW`. A longer line comes in parts of this size.

        Raises:
            SandboxFailed: as in `read`.
        """
        if not 0 < limit <= WINDOW:
            raise ValueError(f"limit must be 1 to {WINDOW:,} bytes, not {limit:,}")
        searched = 0
        while True:
            end = self._data.find(b"\n", searched)
            if 0 <= end < limit:
                return self._take(end + 1)
            if len(self._data) >= limit or self._eof:
                return self._take(min(limit, len(self._data)))
            searched = len(self._data)
            await self._wait()

    async def read_all(self, limit: int = 16 * 1024 * 1024) -> bytes:
        """Return everything up to the end of the stream, at most `limit` bytes.

        Raises:
            SandboxFailed: as in `read`.
        """
        parts = bytearray()
        while len(parts) < limit and (part := await self.read(limit - len(parts))):
            parts += part
        return bytes(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while line := await self.read_line():
            yield line

    async def _wait(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._taken:  # a reader that waits for more than is here must not wait for its own grant
            self._grant()
        self._changed.clear()
        await self._changed.wait()

    def _take(self, size: int) -> bytes:
        data = bytes(self._data[:size])
        del self._data[:size]
        self._taken += size
        if self._taken >= _GRANT:
            self._grant()
        return data

    def _grant(self) -> None:
        size, self._taken = self._taken, 0
        if not self._eof:
            self._link.grant(self._number, size)

    def receive(self, data: bytes) -> None:
        """Add output that has arrived."""
        self._data += data
        self._changed.set()

    def end(self, lost: SandboxFailed | None = None) -> None:
        """Mark the end of the stream, or the loss of the sandbox: what has arrived can still be read."""
        if lost is None:
            self._eof = True
        elif not self._eof:
            self._lost = lost
        self._changed.set()


class Process:
    """A background process of a sandbox, as returned by `Sandbox.spawn`.

    `async with` kills it at the end of the block. Otherwise it ends with the sandbox at the latest.

    Attributes:
        stdout, stderr: its output. Read both, or redirect one: a process waits when it has written 256 KiB that were
            not read.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.stdout = OutputStream(link, 0)
        self.stderr = OutputStream(link, 1)
        self._end: ProcessEnd | None = None
        self._lost: SandboxFailed | None = None
        self._ended = asyncio.Event()
        self._room = WINDOW
        self._refuses = False
        self._has_room = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def end(self) -> ProcessEnd | None:
        """How it ended; None while it runs."""
        return self._end

    async def write(self, data: bytes) -> None:
        """Write to its standard input; wait while the process has more than 256 KiB to take.

        Raises:
            SandboxInputClosed: it has closed its standard input, or has ended.
            SandboxFailed: the sandbox is gone for a reason other than the process.
        """
        async with self._writing:
            view = memoryview(data)
            while view:
                await self._wait_for_room()
                part = view[: self._room]
                self._room -= len(part)
                self._link.send_input(bytes(part), False)
                view = view[len(part) :]
        self._check_input()

    async def close_stdin(self) -> None:
        """Close its standard input, after what was written."""
        async with self._writing:
            if not self._refuses and self._end is None and self._lost is None:
                self._refuses = True
                self._link.send_input(b"", True)

    async def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process that was started, or with `group` to its process group.

        Nothing happens if it has ended.
        """
        if not 1 <= number <= 64:
            raise ValueError(f"{number} is not the number of a signal: use one of `signal.Signals`")
        self._link.signal(int(number), group)

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended, and return how. Output that was not read stays readable.

        Raises:
            SandboxFailed: the sandbox is gone for a reason other than the process.
        """
        while self._end is None:
            if self._lost is not None:
                raise self._lost
            await self._ended.wait()
        return self._end

    async def kill(self) -> ProcessEnd:
        """End it and all processes that it started, and return how it ended.

        Raises:
            SandboxFailed: as in `wait`.
        """
        self.request_kill()
        return await self.wait()

    def request_kill(self) -> None:
        """As `kill`, without waiting."""
        if self._end is None and self._lost is None:
            self._link.kill()

    async def aclose(self) -> None:
        """End it if it runs, and drop output that was not read."""
        if self._lost is None:
            self._link.abandon()
            try:
                await self.wait()
            except SandboxFailed:
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _wait_for_room(self) -> None:
        while True:
            self._check_input()
            if self._room > 0:
                return
            self._has_room.clear()
            await self._has_room.wait()

    def _check_input(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._end is not None:
            raise SandboxInputClosed(f"the process takes no input, since it has ended: {self._end.ending}")
        if self._refuses:
            raise SandboxInputClosed("the standard input of the process is closed")

    # ── what the backend reports ───────────────────────────────────────────────────────────────────────────────────

    def receive(self, stream: int, data: bytes) -> None:
        """Add output: stream 0 is standard output, 1 standard error."""
        (self.stderr if stream else self.stdout).receive(data)

    def receive_end(self, stream: int) -> None:
        """Mark the end of a stream."""
        (self.stderr if stream else self.stdout).end()

    def note_taken(self, size: int) -> None:
        """Note that the process has taken `size` bytes of its input."""
        self._room += size
        self._has_room.set()

    def refuse_input(self) -> None:
        """Note that the process has closed its input."""
        self._refuses = True
        self._has_room.set()

    def finish(self, end: ProcessEnd) -> None:
        """Note how the process ended."""
        if self._end is None and self._lost is None:
            self._end = end
        self._ended.set()
        self._has_room.set()

    def lose(self, error: SandboxFailed) -> None:
        """Note that the sandbox is gone."""
        if self._end is None and self._lost is None:
            self._lost = error
        for stream in (self.stdout, self.stderr):
            stream.end(error)
        self._ended.set()
        self._has_room.set()
