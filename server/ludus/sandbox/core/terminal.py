"""A terminal in a sandbox: a background process whose output is drawn on a screen, which is read as text.

The emulator is pyte. Its input is untrusted, so it is fed in small pieces: between them other work has its turn, a
control sequence that does not end is dropped, and what it would collect without a limit has one.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyte

from ludus.sandbox.core.processes import Link, Process, ProcessEnd

_PIECE: Final = 4096
_OPEN_PIECES: Final = 4
"""How many pieces a control sequence may span."""
_MARKS: Final = 8
"""How many characters a cell may hold: one, and the combining marks on it."""
_SAVED: Final = 16
"""How many cursor positions a program can save."""
_ANSWERS: Final = 1024
"""How many bytes of answers to a program's questions may wait."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What a terminal shows at one moment."""

    lines: tuple[str, ...]
    """The rows, without spaces at their ends."""
    row: int
    """The row of the cursor, from 0."""
    column: int
    """The column of the cursor, from 0."""
    title: str
    """The title that a program has set."""

    @property
    def text(self) -> str:
        """The rows as text, without empty rows at the end."""
        return "\n".join(self.lines).rstrip("\n")


class _Emulator(pyte.Screen):
    """pyte's screen, with limits on what a program can make it collect."""

    def __init__(self, columns: int, rows: int) -> None:
        self.answers = ""
        super().__init__(columns, rows)

    def write_process_input(self, data: str) -> None:
        """Keep an answer to the program."""
        self.answers = (self.answers + data)[:_ANSWERS]

    def save_cursor(self) -> None:
        """Save the cursor's position; only the last few are kept."""
        super().save_cursor()
        del self.savepoints[:-_SAVED]

    def draw(self, data: str) -> None:
        """Draw text, without more combining marks than a cell may hold."""
        if data.isascii():
            super().draw(data)
            return
        for char in data:
            if not unicodedata.combining(char) or len(self._last_cell()) < _MARKS:
                super().draw(char)

    def _last_cell(self) -> str:
        row, column = self.cursor.y, self.cursor.x - 1
        if column < 0:
            row, column = row - 1, self.columns - 1
        return self.buffer[max(0, row)][column].data

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Ignore a program's own request for 132 columns."""

    def set_size(self, rows: int, columns: int) -> None:
        """Resize the screen; rows are dropped at the top only if those up to the cursor do not fit."""
        dropped = max(0, self.cursor.y + 1 - rows)
        for y in range(max(rows, self.lines)):
            line = self.buffer.pop(y + dropped, None) if dropped else self.buffer.get(y)
            if line is not None and y < rows:
                self.buffer[y] = line
        for y in [y for y in self.buffer if y >= rows]:
            del self.buffer[y]
        self.lines, self.columns = rows, columns
        self.cursor.y -= dropped
        self.cursor.x = min(self.cursor.x, columns - 1)
        self.set_margins()


class Terminal:
    """A terminal in a sandbox, as returned by `Sandbox.open_terminal`. Only one task may use it at a time.

    `async with` ends its program at the end of the block. Otherwise it ends with the sandbox at the latest.

    Attributes:
        process: the program on the terminal.
    """

    def __init__(self, link: Link, rows: int, columns: int) -> None:
        self.process = Process(link)
        self._link = link
        self._emulator = _Emulator(columns, rows)
        self._stream: Any = pyte.Stream(self._emulator)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open_pieces = 0

    @property
    def end(self) -> ProcessEnd | None:
        """How its program ended; None while it runs."""
        return self.process.end

    async def write(self, data: str | bytes) -> None:
        r"""Type: text as UTF-8, or bytes. A line ends with `"\n"` or `"\r"`, and `"\x03"` is Ctrl-C.

        Raises:
            SandboxInputClosed: its program has ended or has closed the terminal.
            SandboxFailed: the sandbox is gone for a reason other than its program.
        """
        await self.process.write(data.encode() if isinstance(data, str) else data)

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of the screen, each side 1 to 1,000; its programs are notified."""
        check_size(rows, columns)
        self._emulator.set_size(rows, columns)
        self._link.resize(rows, columns)

    async def screen(self, *, quiet: float = 0.1, seconds: float = 5.0) -> Screen:
        """Return what the terminal shows once nothing new was written for `quiet` seconds.

        Args:
            quiet: for how long there must be no output.
            seconds: for how long to wait for that; a program that never stops writing has the screen of that moment.

        Raises:
            SandboxFailed: as in `write`.
        """
        return await self._draw_until(lambda _: False, quiet, seconds)

    async def wait_for(self, text: str, *, seconds: float = 10.0) -> Screen:
        """Return what the terminal shows as soon as `text` is on it, or after `seconds`, or when its program has ended.

        Args:
            text: what to wait for. Rows are separated by line ends, and end with any number of spaces: a prompt is
                found with the space after it.
            seconds: for how long to wait.

        Raises:
            SandboxFailed: as in `write`.
        """
        pattern = re.compile(" *\n".join(map(re.escape, text.split("\n"))))
        width = self._emulator.columns
        return await self._draw_until(
            lambda screen: pattern.search("\n".join(line.ljust(width) for line in screen.lines)) is not None,
            seconds, seconds,
        )  # fmt: skip

    async def aclose(self) -> None:
        """End its program."""
        await self.process.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _draw_until(self, is_enough: Callable[[Screen], bool], quiet: float, seconds: float) -> Screen:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            screen = self._shown()
            remaining = deadline - loop.time()
            if remaining <= 0 or self.process.stdout.at_end or is_enough(screen):
                return screen
            try:
                async with asyncio.timeout(min(quiet, remaining)):
                    data = await self.process.stdout.read(_PIECE)
            except TimeoutError:
                return self._shown()
            began = time.perf_counter()
            self._feed(data)
            # Drawing takes at most half of the event loop's time, however much a program writes.
            await asyncio.sleep(min(time.perf_counter() - began, 0.05))
            if self._emulator.answers and self.process.end is None:
                answers, self._emulator.answers = self._emulator.answers, ""
                self._link.send_input(answers.encode(), False)

    def _feed(self, data: bytes) -> None:
        try:
            self._stream.feed(self._decoder.decode(data))
        except (ValueError, TypeError, IndexError, KeyError, AssertionError):
            self._stream = pyte.Stream(self._emulator)  # a sequence that the emulator cannot read
            self._open_pieces = 0
            return
        self._open_pieces = 0 if self._stream._taking_plain_text else self._open_pieces + 1
        if self._open_pieces > _OPEN_PIECES:
            self._stream = pyte.Stream(self._emulator)
            self._open_pieces = 0

    def _shown(self) -> Screen:
        emulator, cursor = self._emulator, self._emulator.cursor
        columns = range(emulator.columns)
        lines = tuple("".join(emulator.buffer[y][x].data for x in columns).rstrip() for y in range(emulator.lines))
        column = min(cursor.x, emulator.columns - 1)
        return Screen(lines, cursor.y, column, self._emulator.title[:_PIECE])


def check_size(rows: int, columns: int) -> None:
    """Raise ValueError if a terminal cannot have this size."""
    if not (1 <= rows <= 1000 and 1 <= columns <= 1000):
        raise ValueError(f"a terminal has 1 to 1,000 rows and columns, not {rows} and {columns}")
