"""The rows of a split: which rows of which tables they are, and their ids, in a few bytes for each row."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from ludus.formats.dataset.tables import Row, Table
from ludus.formats.dataset.tasks import DatasetTask, TaskMaker
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError
from ludus.server import Split

_PARTS: Final = 256


class IdIndex:
    """Finds positions by id. It holds 16 bytes for each id, and not the ids themselves."""

    def __init__(self) -> None:
        self._hashes = [array("Q") for _ in range(_PARTS)]
        self._positions = [array("Q") for _ in range(_PARTS)]

    def add(self, task_id: str, position: int) -> None:
        """Add an id."""
        number = id_hash(task_id)
        self._hashes[number % _PARTS].append(number)
        self._positions[number % _PARTS].append(position)

    def candidates(self, task_id: str) -> Iterator[int]:
        """Yield the positions that may have an id: the right one, and those with the same hash."""
        number = id_hash(task_id)
        hashes, positions = self._hashes[number % _PARTS], self._positions[number % _PARTS]
        start = 0
        while True:
            try:
                start = hashes.index(number, start)
            except ValueError:
                return
            yield positions[start]
            start += 1

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of positions, the earlier one first, whose ids have the same hash."""
        for hashes, positions in zip(self._hashes, self._positions, strict=True):
            if len(set(hashes)) == len(hashes):
                continue
            first: dict[int, int] = {}
            for number, position in zip(hashes, positions, strict=True):
                if number in first:
                    yield first[number], position
                first.setdefault(number, position)


class Rows:
    """The rows of one split.

    Args:
        tables: the tables of its source, in order.
        prefix: what the ids begin with, if no column has ids.
        chosen: whether only some rows of the source belong to it.
        named: whether a column has ids.
    """

    def __init__(self, tables: Sequence[Table], prefix: str, *, chosen: bool, named: bool) -> None:
        self.tables = tables
        self.prefix = prefix
        self.count = 0
        self._begins = [0]
        self._numbers = array("Q") if chosen else None
        self._ids = IdIndex() if named else None

    def add(self, number: int, task_id: str) -> None:
        """Add a row by its number in the source, in ascending order."""
        if self._numbers is not None:
            self._numbers.append(number)
        if self._ids is not None:
            self._ids.add(task_id, self.count)
        self.count += 1

    def finish(self, make: Callable[[Row, str], DatasetTask]) -> None:
        """Check the ids, once all rows are added.

        Raises:
            AuthoringError: two rows have the same id; the message names both.
        """
        self._begins = [0, *accumulate(table.count for table in self.tables)]
        for first, second in self._ids.repeated() if self._ids is not None else ():
            (row, name), (again, other) = self.row(first), self.row(second)
            task_id = make(row, name).id
            if task_id == make(again, other).id:
                raise AuthoringError(
                    f"{again.place}: its id {task_id!r} is also the id of {row.place}; ids must be unique within a "
                    "split: name another column with id=COLUMN, or number the rows with id= (empty)"
                )

    def row(self, position: int) -> tuple[Row, str]:
        """Return the row at a position of the split, with the id that it has if no column has ids."""
        number = self._numbers[position] if self._numbers is not None else position
        table = bisect_right(self._begins, number) - 1
        return self.tables[table].row(number - self._begins[table]), f"{self.prefix}-{number}"

    def positions(self, task_id: str) -> Iterator[int]:
        """Yield the positions that may have an id."""
        if self._ids is not None:
            yield from self._ids.candidates(task_id)
            return
        digits = task_id.removeprefix(f"{self.prefix}-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 17):
            return
        number = int(digits)
        position = number if self._numbers is None else bisect_left(self._numbers, number)
        if position < self.count and (self._numbers is None or self._numbers[position] == number):
            yield position


class RowSplit(Split[DatasetTask]):
    """A split whose tasks are made of rows when they are requested."""

    rows: Rows
    maker: TaskMaker

    @classmethod
    def of(cls, rows: Rows, maker: TaskMaker, type: SplitType) -> RowSplit:
        """Return the split of rows."""
        split = cls.lazy(lambda index: maker.make(*rows.row(index)), rows.count, type)
        split.rows, split.maker = rows, maker
        return split

    def find(self, task_id: str) -> tuple[int, DatasetTask]:
        """Return the index and the task of an id; any number of tasks can be searched.

        Raises:
            KeyError: there is no such task.
        """
        for position in self.rows.positions(task_id):
            task = self.get(position)
            if task.id == task_id:
                return position, task
        raise KeyError(task_id)


def id_hash(task_id: str) -> int:
    """Return a number from 0 to 2**64 - 1 for an id, the same in every process."""
    return int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "big")
