"""The lines of a job, kept on disk until they are acknowledged or the room is needed.

Lines are in files without a name, which vanish with the process, however it ends. Only their positions are in memory.
A file is dropped as a whole, when no line in it is needed.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""A file that is as large as this is not written to any more."""


@dataclass(slots=True, eq=False)
class _Segment:
    file: IO[bytes]
    first: int
    """The number of its first line."""
    ends: array[int] = field(default_factory=lambda: array("Q"))
    """The end of each line."""

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0


class Spool:
    """Numbered lines. Reading and writing use the page cache, so they do not block for long.

    Args:
        folder: where the files are.
        segment_bytes: the size of a file.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: deque[_Segment] = deque()
        self.count = 0
        """The number of lines that were ever added."""
        self.size = 0
        """The bytes that are kept."""

    @property
    def first(self) -> int:
        """The number of the first line that is kept; `count` if none is."""
        return self._segments[0].first if self._segments else self.count

    def add(self, line: bytes) -> None:
        """Add a line.

        Raises:
            OSError: the disk is full.
        """
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            self._segments.append(_Segment(tempfile.TemporaryFile(dir=self._folder, buffering=0), self.count))
        segment = self._segments[-1]
        at = segment.size
        view = memoryview(line)
        while view:
            written = os.pwrite(segment.file.fileno(), view, at)
            at, view = at + written, view[written:]
        segment.ends.append(at)
        self.count += 1
        self.size += len(line)

    def read(self, number: int) -> bytes:
        """Return a line that is kept.

        Raises:
            LookupError: it was dropped, or was never added.
        """
        for segment in self._segments:
            place = number - segment.first
            if 0 <= place < len(segment.ends):
                start = segment.ends[place - 1] if place else 0
                return os.pread(segment.file.fileno(), segment.ends[place] - start, start)
        raise LookupError(f"line {number} is not kept; there are {self.first} to {self.count - 1}")

    def drop_before(self, number: int) -> None:
        """Drop files all of whose lines come before `number`."""
        while self._segments and self._segments[0].first + len(self._segments[0].ends) <= number:
            self._drop_first()

    def shrink(self, size: int, number: int) -> None:
        """Drop the oldest files until at most `size` bytes are kept, but none with a line from `number` on."""
        while self.size > size and self._segments:
            first = self._segments[0]
            if first.first + len(first.ends) > number:
                return
            self._drop_first()

    def close(self) -> None:
        """Drop everything."""
        while self._segments:
            self._drop_first()

    def _drop_first(self) -> None:
        segment = self._segments.popleft()
        self.size -= segment.size
        segment.file.close()
