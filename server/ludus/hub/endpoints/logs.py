"""The last lines that an endpoint has written, for its owner."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ludus.protocol.text import escape_controls

LINE_BYTES = 8 * 1024
"""The longest line that is kept in one piece."""


class LogRing:
    """Keeps the last lines, up to a number of bytes.

    Args:
        limit: the number of bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._count = 0
        """How many lines there were, ever."""
        self._changed = asyncio.Event()

    def add(self, line: str) -> None:
        """Add a line, and drop the oldest ones that have no room any more.

        Its control characters become escapes: an untrusted process wrote it, and its owner reads it in a terminal.
        """
        line = escape_controls(line.rstrip("\r\n")[:LINE_BYTES]).replace("\n", "\\n")[:LINE_BYTES]
        self._lines.append(line)
        self._count += 1
        self._bytes += len(line.encode("utf-8", "replace")) + 1
        while self._bytes > self._limit and len(self._lines) > 1:
            self._bytes -= len(self._lines.popleft().encode("utf-8", "replace")) + 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def tail(self, lines: int = 20) -> str:
        """Return the last lines as text."""
        return "\n".join(list(self._lines)[-lines:])

    async def follow(self, *, on: bool = True) -> AsyncIterator[str]:
        """Yield the kept lines, then new ones as they come.

        A reader that is slower than the endpoint misses the lines that were dropped meanwhile.

        Args:
            on: False ends after the kept lines.
        """
        read = self._count - len(self._lines)
        while True:
            changed = self._changed
            read = max(read, self._count - len(self._lines))
            while read < self._count:
                at = read - (self._count - len(self._lines))
                read += 1
                yield self._lines[at]
                read = max(read, self._count - len(self._lines))
            if not on:
                return
            if read == self._count and changed is self._changed:
                await changed.wait()
