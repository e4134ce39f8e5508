"""Tables: files of rows that are read one row at a time, never as a whole.

`scan` reads a file once from its beginning, and builds the index that `row` needs: for text files the offset of every
64th row, for Parquet and Arrow files the row counts of their parts.
"""

from __future__ import annotations

import csv
import json
import math
import os
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ludus.protocol.errors import AuthoringError

ROW_BYTES: Final = 64 * 1024 * 1024
"""The limit for one row of a text file."""
_BLOCK_ROWS: Final = 64
_BLOCK_BYTES: Final = 256 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_HEAD: Final = 100
"""The number of first rows that show which columns a JSON Lines file has."""


class Row(NamedTuple):
    """One row of a table."""

    values: Mapping[str, Any]
    place: str
    """Where the row is, such as `train.jsonl, line 17`."""


class Table:
    """A file of rows.

    Args:
        path: the file.
        shown: its name in messages.
    """

    kind = ""
    """The file format."""

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.shown = shown
        self.count = 0
        """The number of rows, known after `scan`."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        raise NotImplementedError

    def select(self, columns: Sequence[str]) -> None:
        """Read only these columns from now on, where the file format allows that."""

    def scan(self) -> Iterator[Row]:
        """Yield all rows in order, and build the index.

        Raises:
            AuthoringError: a row cannot be read; the message names the file and the line.
        """
        raise NotImplementedError

    def row(self, index: int) -> Row:
        """Return one row. May be called from several threads, after `scan`.

        Raises:
            AuthoringError: the file has changed since it was scanned.
        """
        raise NotImplementedError


class _Block(NamedTuple):
    """A part of a text file that begins with a row."""

    row: int
    offset: int
    line: int


class TextTable(Table):
    """A file of lines."""

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path, shown)
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise AuthoringError(f"{shown} cannot be read: {error.strerror}") from None
        weakref.finalize(self, os.close, self._file)
        self._stamp = self._stamp_now()
        self._rows, self._offsets, self._numbers = array("Q"), array("Q"), array("Q")

    def _stamp_now(self) -> tuple[int, int]:
        status = os.fstat(self._file)
        return status.st_mtime_ns, status.st_size

    def _parse(self, lines: Iterator[bytes], line: int) -> Iterator[tuple[Mapping[str, Any], int, int, int]]:
        """Yield the values of each row, with its offset in `lines`, its line and the offset after it."""
        raise NotImplementedError

    def _lines(self) -> Iterator[bytes]:
        with open(os.dup(self._file), "rb") as file:
            file.seek(0)
            number = 0
            while line := file.readline(ROW_BYTES + 1):
                number += 1
                if len(line) > ROW_BYTES:
                    raise AuthoringError(f"{self.shown}, line {number}: it is longer than {ROW_BYTES} bytes")
                yield line

    def scan(self) -> Iterator[Row]:
        """Yield all rows in order, and build the index."""
        self._rows, self._offsets, self._numbers = array("Q"), array("Q"), array("Q")
        self.count = 0
        for values, offset, line, _ in self._parse(self._lines(), 1):
            old = not self._rows or self.count - self._rows[-1] >= _BLOCK_ROWS
            if old or offset - self._offsets[-1] >= _BLOCK_BYTES:
                self._rows.append(self.count)
                self._offsets.append(offset)
                self._numbers.append(line)
            self.count += 1
            yield Row(values, f"{self.shown}, line {line}")

    def row(self, index: int) -> Row:
        """Return one row."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        block = bisect_right(self._rows, index) - 1
        begin, number = self._offsets[block], self._numbers[block]
        end = self._offsets[block + 1] if block + 1 < len(self._offsets) else self._stamp[1]
        if self._stamp_now() != self._stamp:
            raise AuthoringError(f"{self.shown} has changed since it was read; start the server again")
        data = b"".join(_read_all(self._file, begin, end))
        lines = (line + b"\n" for line in data.split(b"\n"))
        values, _, line, _ = next(islice(self._parse(lines, number), index - self._rows[block], None))
        return Row(values, f"{self.shown}, line {line}")


class JsonLinesTable(TextTable):
    """A file with one JSON object on each line; empty lines are skipped."""

    kind = "JSON Lines"

    @property
    def columns(self) -> Sequence[str]:
        """The names in the first rows."""
        found: dict[str, None] = {}
        for values, *_ in islice(self._parse(self._lines(), 1), _HEAD):
            found.update(dict.fromkeys(values))
        return tuple(found)

    def _parse(self, lines: Iterator[bytes], line: int) -> Iterator[tuple[Mapping[str, Any], int, int, int]]:
        offset = 0
        for number, data in enumerate(lines, line):
            after = offset + len(data)
            text = data.removeprefix(_BOM) if number == 1 else data
            if not text.isspace() and text:
                yield self._object(text, number), offset, number, after
            offset = after

    def _object(self, data: bytes, line: int) -> Mapping[str, Any]:
        place = f"{self.shown}, line {line}"
        try:
            found = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
        except UnicodeDecodeError as error:
            raise AuthoringError(f"{place}: it is not UTF-8 (byte {error.start} of the line)") from None
        except RecursionError:
            raise AuthoringError(f"{place}: it is nested too deeply") from None
        except ValueError as error:
            raise AuthoringError(f"{place}: it is no JSON object: {error}") from None
        if not isinstance(found, dict):
            hint = "; write one object on each line" if isinstance(found, list) else ""
            raise AuthoringError(f"{place}: it is no JSON object but {type(found).__name__}{hint}")
        return found


class CsvTable(TextTable):
    """A file of comma- or tab-separated values, whose first row names the columns."""

    kind = "CSV"

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path, shown)
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        csv.field_size_limit(max(csv.field_size_limit(), ROW_BYTES))
        header = next(self._records(self._lines(), 1), None)
        names = [name.strip() for name in header[0]] if header is not None else []
        if not names:
            raise AuthoringError(f"{shown} is empty; its first line must name the columns")
        for name in names:
            if not name or names.count(name) > 1:
                what = f"two columns are named {name!r}" if name else "a column has no name"
                raise AuthoringError(f"{shown}, line 1: {what}; the first line must name each column once")
        self._names = tuple(names)

    @property
    def columns(self) -> Sequence[str]:
        """The names in the first row."""
        return self._names

    def _parse(self, lines: Iterator[bytes], line: int) -> Iterator[tuple[Mapping[str, Any], int, int, int]]:
        header = line == 1
        for fields, offset, number, after in self._records(lines, line):
            if header:
                header = False
                continue
            if len(fields) != len(self._names):
                raise AuthoringError(
                    f"{self.shown}, line {number}: it has {len(fields)} values, and there are {len(self._names)} "
                    "columns"
                )
            yield dict(zip(self._names, fields, strict=True)), offset, number, after

    def _records(self, lines: Iterator[bytes], line: int) -> Iterator[tuple[list[str], int, int, int]]:
        """Yield the fields of each record; a quoted field may span lines."""
        read = [0, line]

        def decoded() -> Iterator[str]:
            for data in lines:
                try:
                    text = (data.removeprefix(_BOM) if read[1] == 1 else data).decode("utf-8")
                except UnicodeDecodeError as error:
                    place = f"{self.shown}, line {read[1]}"
                    raise AuthoringError(f"{place}: it is not UTF-8 (byte {error.start} of the line)") from None
                read[0] += len(data)
                read[1] += 1
                yield text

        reader = csv.reader(decoded(), delimiter=self._delimiter, strict=True)
        while True:
            offset, number = read
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise AuthoringError(f"{self.shown}, line {number}: it is no {self.kind}: {error}") from None
            if fields:
                yield fields, offset, number, read[0]


def _read_all(file: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        data = os.pread(file, end - begin, begin)
        if not data:
            return
        begin += len(data)
        yield data


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
