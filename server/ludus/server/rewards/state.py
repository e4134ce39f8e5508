"""Checks of what the policy left behind: rows of an SQLite database, files of a directory."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import sqlite3
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from ludus.server.rewards.attempt import Attempt, Of, resolve
from ludus.server.rewards.boxes import fetch_database, fetch_tree, verifier_of
from ludus.server.rewards.nodes import Begun, Check, Offload
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

Row = tuple[Any, ...]
Tables = Mapping[str, Counter[Row]]
"""Each table's rows, each with how often it occurs; a row holds (column, value) pairs."""

_READ_SECONDS: Final = 10.0


class UnreadableState(Exception):
    """What the policy left cannot be read; the message says why. It is the policy's doing, so it is worth 0."""


@dataclass(frozen=True)
class DatabaseState(Check):
    """Compares an SQLite database with the state that it should have.

    Without `initial`, 1 when every row is as expected, else 0. With it, changes are what counts: the share of the
    required ones, lowered by each that nobody asked for (found changes that are right, of all found or required). Rows
    are compared without regard to order.
    """

    blocking: ClassVar[bool] = True

    database: Of[str | os.PathLike[str]]
    expected: Of[str | os.PathLike[str]]
    """A database file as it should be."""
    initial: Of[str | os.PathLike[str]] | None = None
    """A database file as it was at the beginning."""
    tables: Collection[str] | None = None
    """Only these; None for all."""
    ignore: Collection[str] = ()
    """Columns that do not count, as `column` or `table.column`: timestamps, generated ids."""
    max_rows: int = 100_000
    """More rows than that in all tables are not read; the state is then worth 0."""
    max_bytes: int = 256 * 1024 * 1024
    """Nor is a larger file."""
    in_box: bool = False
    """Whether `database` is a path in the environment's `verifier()` box."""

    def begin(self, attempt: Attempt, offload: Offload) -> Begun:
        """In a thread, once the file is on this machine."""
        return self._wait(self._in_box(attempt, offload)) if self.in_box else super().begin(attempt, offload)

    async def _in_box(self, attempt: Attempt, offload: Offload) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with verifier_of(attempt) as box:
                try:
                    path = await fetch_database(box, resolve(self.database, attempt), Path(folder), self.max_bytes)
                except sqlite3.DatabaseError as error:
                    return Verdict(0.0, str(error))
            return await offload(replace(self, database=path).check, attempt)

    def check(self, attempt: Attempt) -> Verdict:
        """Read and compare."""
        wanted = self._read(attempt, self.expected)
        before = self._read(attempt, self.initial) if self.initial is not None else None
        try:
            found = self._read(attempt, self.database)
        except (UnreadableState, sqlite3.DatabaseError) as error:
            return Verdict(0.0, f"the database cannot be read: {error}")
        if before is None:
            wrong = _changes(wanted, found)
            return Verdict(float(not wrong), _tell(wrong, "differs by ", cells=False))
        required, made = _changes(before, wanted), _changes(before, found)
        right = sum((required & made).values())
        every = sum((required | made).values())
        if not every:
            return Verdict(1.0, "nothing had to change, and nothing did")
        said = f"{right} of {sum(required.values())} required changes, {sum((made - required).values())} others"
        told = [said, _tell(required - made, "missing: ", cells=False), _tell(made - required, "not asked for: ")]
        return Verdict(right / every, "; ".join(filter(None, told)))

    def _read(self, attempt: Attempt, place: Any) -> Tables:
        path = Path(resolve(place, attempt))
        if not stat.S_ISREG(path.lstat().st_mode if path.is_symlink() or path.exists() else 0):
            raise UnreadableState(f"{path.name} is no file")
        if path.stat().st_size > self.max_bytes:
            raise UnreadableState(f"it is larger than {self.max_bytes} bytes")
        deadline = time.monotonic() + _READ_SECONDS
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = bytes
            connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            return self._tables(connection)
        finally:
            connection.close()

    def _tables(self, connection: sqlite3.Connection) -> Tables:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        names = sorted(name.decode("utf-8", "replace") for (name,) in listed)
        found: dict[str, Counter[Row]] = {}
        left = self.max_rows
        for name in names:
            if name.startswith("sqlite_") or (self.tables is not None and name not in self.tables):
                continue
            cursor = connection.execute(f'SELECT * FROM "{name.replace(chr(34), chr(34) * 2)}" LIMIT {left + 1}')
            columns = [column[0] for column in cursor.description]
            kept = [n for n, c in enumerate(columns) if c not in self.ignore and f"{name}.{c}" not in self.ignore]
            rows = cursor.fetchall()
            left -= len(rows)
            if left < 0:
                raise UnreadableState(f"it has more than {self.max_rows} rows")
            found[name] = Counter(tuple((columns[n], row[n]) for n in kept) for row in rows)
        return found


@dataclass(frozen=True)
class FileTree(Check):
    """Compares the files below a directory with what they should be: the share that is right.

    What is expected is a directory, or a mapping of paths to contents, where None stands for a file that must not be
    there and a function judges the content. Files that nobody expects count as wrong where `exact`. Links are not
    followed: a link is wrong wherever a file is expected.
    """

    blocking: ClassVar[bool] = True

    directory: Of[str | os.PathLike[str]]
    expected: Of[str | os.PathLike[str] | Mapping[str, str | bytes | None | Callable[[bytes], bool]]]
    exact: bool = False
    ignore: Collection[str] = ("*.pyc", "__pycache__/*")
    """Patterns of paths that do not count."""
    max_bytes: int = 64 * 1024 * 1024
    """A file that is larger is wrong."""
    max_files: int = 10_000
    """Of more files, the tree is worth 0."""
    in_box: bool = False
    """Whether `directory` is a path in the environment's `verifier()` box."""

    def begin(self, attempt: Attempt, offload: Offload) -> Begun:
        """In a thread, once the files are on this machine."""
        return self._wait(self._in_box(attempt, offload)) if self.in_box else super().begin(attempt, offload)

    async def _in_box(self, attempt: Attempt, offload: Offload) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "tree")
            async with verifier_of(attempt) as box:
                source = str(resolve(self.directory, attempt))
                if not await fetch_tree(box, source, root, files=self.max_files, limit=self.max_bytes):
                    return Verdict(0.0, f"there are more than {self.max_files} files")
            return await offload(replace(self, directory=root).check, attempt)

    def check(self, attempt: Attempt) -> Verdict:
        """Read and compare."""
        root = Path(resolve(self.directory, attempt))
        expected = resolve(self.expected, attempt)
        if isinstance(expected, str | os.PathLike):
            expected = {path: (Path(expected) / path).read_bytes() for path in self._files(Path(expected))}
        try:
            found = set(self._files(root))
        except UnreadableState as error:
            return Verdict(0.0, str(error))
        wrong = [path for path, wanted in expected.items() if not self._right(root, path, wanted, found)]
        extra = sorted(found - set(expected)) if self.exact else []
        count = len(expected) + len(extra)
        if not count:
            return Verdict(1.0, "no file was expected")
        said = [f"{len(expected) - len(wrong)}/{len(expected)} files are right"]
        said += [f"{short(path)} is not" for path in wrong[:5]] + [f"{short(path)} is extra" for path in extra[:5]]
        return Verdict((len(expected) - len(wrong)) / count, "; ".join(said))

    def _right(self, root: Path, path: str, wanted: Any, found: set[str]) -> bool:
        if wanted is None:
            return not os.path.lexists(root / path)
        if path not in found:
            return False
        content = _read_file(root / path, self.max_bytes)
        if content is None:
            return False
        if callable(wanted):
            return bool(wanted(content))
        data = wanted.encode() if isinstance(wanted, str) else wanted
        return hashlib.sha256(content).digest() == hashlib.sha256(data).digest()

    def _files(self, root: Path) -> Iterator[str]:
        count = 0
        for folder, _, names in os.walk(root, followlinks=False):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if any(fnmatch.fnmatch(path, pattern) for pattern in self.ignore):
                    continue
                count += 1
                if count > self.max_files:
                    raise UnreadableState(f"there are more than {self.max_files} files")
                if stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode):
                    yield path


def _read_file(path: Path, limit: int) -> bytes | None:
    """The content, or None: a link, something else than a file, or too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        content = file.read(limit + 1)
    return content if len(content) <= limit else None


def _changes(before: Tables, after: Tables) -> Counter[tuple[str, str, Row]]:
    """What has to be done to `before` to make it `after`: rows to insert and to delete, tables to make and to drop."""
    found: Counter[tuple[str, str, Row]] = Counter()
    for table in before.keys() | after.keys():
        if (table in before) != (table in after):
            found["insert" if table in after else "delete", table, ("the table",)] += 1
        old, new = before.get(table, Counter()), after.get(table, Counter())
        for kind, rows in (("insert", new - old), ("delete", old - new)):
            for row, count in rows.items():
                found[kind, table, row] += count
    return found


def _tell(changes: Mapping[tuple[str, str, Row], int], what: str, *, cells: bool = True) -> str:
    """Some changes in words; without `cells` where they tell of what is expected, which is private."""
    said = []
    for kind, table, row in islice(changes, 5):
        shown = [f"{cell[0]}={short(_text(cell[1]))}" for cell in row if isinstance(cell, tuple)] if cells else []
        said.append(f"{what}{kind} in {table}" + (f": {', '.join(shown)}" if shown else ""))
    return "; ".join(dict.fromkeys(said))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
