"""Checks of the state that the policy left behind: rows of an SQLite database, files of a directory."""

from __future__ import annotations

import errno
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

from ludus.server.rewards.attempt import Attempt, Selector, resolve
from ludus.server.rewards.calls import satisfies
from ludus.server.rewards.code_runner import DEPTH, UnreadableState, fetch_database, fetch_tree, verifier_of
from ludus.server.rewards.nodes import Check, Offload, Pending
from ludus.server.rewards.structure import cut
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

Cell = str | bytes
"""A value of a row. Blobs are bytes; texts begin with a quotation mark, so that none equals a number."""
Row = tuple[tuple[str, ...], tuple[Cell, ...]]
"""The columns of a row, and its values."""
Tables = Mapping[str, Counter[Row]]
"""The rows of each table, each with the number of its occurrences."""

_READ_SECONDS: Final = 10.0
"""Processor time for reading one database."""
_CELL_BYTES: Final = 64
"""The memory that a value takes in addition to its content."""
_MACHINES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
"""Errors of this machine; all others are caused by what the policy left behind."""


@dataclass(frozen=True)
class DatabaseState(Check):
    """Compares an SQLite database with its expected state.

    Without `initial`, the value is 1 if every row is as expected, otherwise 0. With `initial`, the changes count: the
    value is the number of right changes divided by the number of all changes that were found or required, so that each
    change that was not required lowers it. Rows are compared regardless of their order, and values as in SQL: 1.0 is 1,
    and a text is not a blob. Generated columns do not count, since they follow from the others.
    """

    blocking: ClassVar[bool] = True

    database: Selector[str | os.PathLike[str]]
    expected: Selector[str | os.PathLike[str]]
    """A database file in the expected state."""
    initial: Selector[str | os.PathLike[str]] | None = None
    """A database file in the initial state."""
    tables: Collection[str] | None = None
    """The tables to compare; None for all."""
    ignore: Collection[str] = ()
    """Columns that do not count, as `column` or `table.column`: timestamps, generated ids."""
    max_rows: int = 100_000
    """The most rows in all tables together; a database with more earns 0."""
    max_bytes: int = 256 * 1024 * 1024
    """The limit for the file and for the memory that its values take; a larger database earns 0."""
    in_box: bool = False
    """Whether `database` is a path in the environment's `verifier()` box."""

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate in a thread, once the file is on this machine."""
        return self._wait(self._in_box(attempt, offload)) if self.in_box else super().evaluate(attempt, offload)

    async def _in_box(self, attempt: Attempt, offload: Offload) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with verifier_of(attempt) as box:
                try:
                    path = await fetch_database(box, resolve(self.database, attempt), Path(folder), self.max_bytes)
                except UnreadableState as error:
                    return Verdict(0.0, f"the database cannot be read: {error}")
            return await offload(replace(self, database=path).check, attempt)

    def check(self, attempt: Attempt) -> Verdict:
        """Read both states and compare them."""
        expected = self._read(Path(resolve(self.expected, attempt)))
        before = self._read(Path(resolve(self.initial, attempt))) if self.initial is not None else None
        path = Path(resolve(self.database, attempt))
        try:
            actual = self._read(path)
        except (UnreadableState, sqlite3.Error, ValueError) as error:  # ValueError: a name is not UTF-8
            return Verdict(0.0, f"the database cannot be read: {error}")
        if before is None:
            wrong = _changes(expected, actual)
            return Verdict(float(not wrong), _tell(wrong, "differs by ", cells=False))
        required, changes = _changes(before, expected), _changes(before, actual)
        right = sum((required & changes).values())
        every = sum((required | changes).values())
        if not every:
            return Verdict(1.0, "nothing had to change, and nothing did")
        evidence = f"{right} of {sum(required.values())} required changes, {sum((changes - required).values())} others"
        parts = [
            evidence,
            _tell(required - changes, "missing: ", cells=False),
            _tell(changes - required, "not asked for: "),
        ]
        return Verdict(right / every, "; ".join(filter(None, parts)))

    def _read(self, path: Path) -> Tables:
        if not stat.S_ISREG(path.lstat().st_mode if path.is_symlink() or path.exists() else 0):
            raise UnreadableState(f"{path.name} is no file")
        if path.stat().st_size > self.max_bytes:
            raise UnreadableState(f"it is larger than {self.max_bytes} bytes")
        until = time.thread_time() + _READ_SECONDS
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(self.max_bytes, 2**31 - 1))
            connection.set_progress_handler(lambda: time.thread_time() > until, 10_000)
            return self._tables(connection)
        finally:
            connection.close()

    def _tables(self, connection: sqlite3.Connection) -> Tables:
        room = self.max_bytes

        def rows(query: str) -> Iterator[tuple[Any, ...]]:
            nonlocal room
            for row in connection.execute(query):
                room -= sum(_CELL_BYTES + (len(cell) if isinstance(cell, str | bytes) else 0) for cell in row)
                if room < 0:
                    raise UnreadableState(f"it holds more than {self.max_bytes} bytes")
                yield row

        names = [name for (name,) in rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables: dict[str, Counter[Row]] = {}
        rows_left = self.max_rows
        for name in names:
            if not isinstance(name, str):
                raise UnreadableState("the name of a table is no text")
            if name.startswith("sqlite_") or (self.tables is not None and name not in self.tables):
                continue
            infos = rows(f"PRAGMA table_xinfo({_quoted(name)})")
            columns = tuple(
                column for _, column, _, _, _, _, hidden in infos
                if not hidden and column not in self.ignore and f"{name}.{column}" not in self.ignore
            )  # fmt: skip
            selection = ", ".join(map(_quoted, columns)) or "NULL"
            rows_kept: Counter[Row] = Counter()
            for row in rows(f"SELECT {selection} FROM {_quoted(name)} LIMIT {rows_left + 1}"):
                rows_left -= 1
                if rows_left < 0:
                    raise UnreadableState(f"it has more than {self.max_rows} rows")
                rows_kept[columns, tuple(map(_cell, row))] += 1
            tables[name] = rows_kept
        return tables


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(value: Any) -> Cell:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return f"'{value}"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "NULL" if value is None else repr(value)


@dataclass(frozen=True)
class FileTree(Check):
    """Compares the files below a directory with the expected ones; the value is the share that is right.

    `expected` is a directory, or a mapping of paths to contents, where None stands for a file that must not exist, and
    a function judges the content. With `exact`, unexpected files count as wrong. Links are not followed: a link is
    wrong wherever a file is expected.
    """

    blocking: ClassVar[bool] = True

    directory: Selector[str | os.PathLike[str]]
    expected: Selector[str | os.PathLike[str] | Mapping[str, str | bytes | None | Callable[[bytes], bool]]]
    exact: bool = False
    ignore: Collection[str] = ("*.pyc", "__pycache__/*")
    """Patterns of paths that do not count."""
    max_bytes: int = 64 * 1024 * 1024
    """The limit for one file; a larger one is wrong."""
    max_files: int = 10_000
    """The most files; a tree with more earns 0."""
    in_box: bool = False
    """Whether `directory` is a path in the environment's `verifier()` box."""

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate in a thread, once the files are on this machine."""
        return self._wait(self._in_box(attempt, offload)) if self.in_box else super().evaluate(attempt, offload)

    async def _in_box(self, attempt: Attempt, offload: Offload) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "tree")
            async with verifier_of(attempt) as box:
                source = str(resolve(self.directory, attempt))
                try:
                    await fetch_tree(box, source, root, files=self.max_files, limit=self.max_bytes)
                except UnreadableState as error:
                    return Verdict(0.0, str(error))
            return await offload(replace(self, directory=root).check, attempt)

    def check(self, attempt: Attempt) -> Verdict:
        """Read both states and compare them."""
        root = Path(resolve(self.directory, attempt))
        expected = resolve(self.expected, attempt)
        if isinstance(expected, (str, os.PathLike)):
            expected = {path: (Path(expected) / path).read_bytes() for path in self._files(Path(expected))}
        try:
            files = self._files(root)
        except UnreadableState as error:
            return Verdict(0.0, str(error))
        wrong = [path for path, content in expected.items() if not self._right(root, path, content, files)]
        extra = sorted(files - set(expected)) if self.exact else []
        count = len(expected) + len(extra)
        if not count:
            return Verdict(1.0, "no file was expected")
        findings = [f"{len(expected) - len(wrong)}/{len(expected)} files are right"]
        findings += [f"{short(path)} is not" for path in wrong[:5]] + [f"{short(path)} is extra" for path in extra[:5]]
        return Verdict((len(expected) - len(wrong)) / count, "; ".join(findings))

    def _right(self, root: Path, path: str, expected: Any, files: set[str]) -> bool:
        if expected is None:
            return path not in files and not os.path.lexists(root / path)
        if path not in files:
            return False
        content = _read_file(root / path, self.max_bytes)
        if content is None:
            return False
        if callable(expected):
            return satisfies(expected, content)
        data = expected.encode() if isinstance(expected, str) else expected
        return hashlib.sha256(content).digest() == hashlib.sha256(data).digest()

    def _files(self, root: Path) -> set[str]:
        files: set[str] = set()
        count = 0
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            if folder.count("/") > DEPTH:
                raise UnreadableState(f"directories are nested more than {DEPTH} deep")
            for entry in _listed(root, folder):
                path = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                elif not any(fnmatch.fnmatch(path, pattern) for pattern in self.ignore):
                    count += 1
                    if count > self.max_files:
                        raise UnreadableState(f"there are more than {self.max_files} files")
                    if entry.is_file(follow_symlinks=False):
                        files.add(path)
        return files


def _listed(root: Path, folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory below `root`; none if `root` does not exist or is not a directory."""
    try:
        with os.scandir(root / folder) as entries:
            return list(entries)
    except OSError as error:
        if error.errno in _MACHINES:
            raise
        if not folder and isinstance(error, FileNotFoundError | NotADirectoryError):
            return []
        raise UnreadableState(f"there is a directory that cannot be listed: {error.strerror}") from None


def _read_file(path: Path, limit: int) -> bytes | None:
    """Return the content; None for a link, anything else that is not a plain file, or a file that is too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _MACHINES:
            raise
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        content = file.read(limit + 1)
    return content if len(content) <= limit else None


Change = tuple[str, str, Row]
"""`insert` or `delete`, a table, and a row; without columns, the change concerns the table itself."""


def _changes(before: Tables, after: Tables) -> Counter[Change]:
    """Return the changes from `before` to `after`: rows to insert and to delete, tables to create and to drop."""
    changes: Counter[Change] = Counter()
    for table in before.keys() | after.keys():
        if (table in before) != (table in after):
            changes["insert" if table in after else "delete", table, ((), ())] += 1
        old, new = before.get(table, Counter()), after.get(table, Counter())
        for kind, rows in (("insert", new - old), ("delete", old - new)):
            for row, count in rows.items():
                changes[kind, table, row] += count
    return changes


def _tell(changes: Mapping[Change, int], noun: str, *, cells: bool = True) -> str:
    """Return some changes in words; without `cells` if they would show expected values, which are private."""
    sentences = []
    for kind, table, (columns, values) in islice(changes, 5):
        cells_shown = [
            f"{cut(column)}={_text(value)}" for column, value in islice(zip(columns, values, strict=True), 20)
        ]
        sentences.append(
            f"{noun}{kind} in {cut(table)}" + (f": {', '.join(cells_shown)}" if cells and cells_shown else "")
        )
    return "; ".join(dict.fromkeys(sentences))


def _text(value: Cell) -> str:
    if isinstance(value, bytes):
        return f"x'{value[:60].hex()}{'…' if len(value) > 60 else ''}'"
    return short(value[1:]) if value.startswith("'") else value
