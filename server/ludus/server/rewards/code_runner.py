"""The part of a sandbox that checks need, and access to the one that belongs to an attempt."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any, Final, Protocol

from ludus.sandbox.core.errors import SandboxFileError
from ludus.server.rewards.attempt import Attempt

DEPTH: Final = 100
"""Directories that are nested more deeply are not read."""
_LISTED: Final = 10_000
"""The most entries of a directory that a box lists."""
_JOURNAL_END: Final = bytes.fromhex("d9d505f920a163d7")
"""The end of a rollback journal that names another file, which SQLite would then delete."""


class UnreadableState(Exception):
    """What the policy left behind cannot be read; the message says why. The policy caused this, so it earns 0."""


class Ran(Protocol):
    """The outcome of one command."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None if a signal ended the command."""
        ...

    @property
    def stdout(self) -> bytes:
        """The standard output, as far as the box kept it."""
        ...

    @property
    def stderr(self) -> bytes:
        """The standard error."""
        ...

    @property
    def limit(self) -> str | None:
        """The name of the limit that ended it; None if it reached none."""
        ...

    @property
    def seconds(self) -> float:
        """The wall-clock seconds that it took."""
        ...


class Box(Protocol):
    """The part of a sandbox, where untrusted code runs, that checks of code need."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"") -> Ran:
        """Run one command to its end. Raise an error if the box is broken, never because of the command."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file in the work directory."""
        ...


def verifier_of(attempt: Attempt) -> AbstractAsyncContextManager[Any]:
    """Return the box in which the attempt's environment lets checks inspect what the policy did.

    Raises:
        AttributeError, RuntimeError: there is none, as when stored trajectories are scored without replay.
    """
    box: AbstractAsyncContextManager[Any] = attempt.environment.verifier()
    return box


async def fetch(box: Any, path: str, target: Path, limit: int) -> bool:
    """Copy one file out of a box.

    Returns:
        Whether there was a plain file of at most `limit` bytes.
    """
    try:
        data = await box.read(path, limit=limit)
    except SandboxFileError:
        return False
    await asyncio.to_thread(target.write_bytes, data)
    return True


async def fetch_tree(box: Any, path: str, target: Path, *, files: int, limit: int) -> None:
    """Copy a directory out of a box. An entry that is not a plain file, or is too large, becomes a dangling link.

    Raises:
        UnreadableState: there are more than `files` entries, or more bytes than the disk limit of the box, as in sparse
            files; or directories that are nested too deeply, have too long a path, or cannot be listed.
    """
    left, room = files, box.limits.disk
    waiting = [(path, target, 0)]
    while waiting:
        source, folder, depth = waiting.pop()
        try:
            entries = await box.list(source)
        except SandboxFileError:
            if await _is_directory(box, source):
                raise UnreadableState("there is a directory that cannot be listed") from None
            entries = ()
        left -= len(entries)
        if left < 0 or len(entries) >= _LISTED:
            raise UnreadableState(f"there are more than {min(files, _LISTED - 1)} files")
        if depth > DEPTH:
            raise UnreadableState(f"directories are nested more than {DEPTH} deep")
        room -= sum(entry.size for entry in entries if entry.kind == "file" and entry.size <= limit)
        if room < 0:
            raise UnreadableState(f"the files are larger than {box.limits.disk} bytes together")
        try:
            folder.mkdir(exist_ok=True)
            for entry in entries:
                inside = f"{source}/{entry.name}"
                if entry.kind == "directory":
                    waiting.append((inside, folder / entry.name, depth + 1))
                elif entry.kind != "file" or not await fetch(box, inside, folder / entry.name, limit):
                    os.symlink("nowhere", folder / entry.name)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise UnreadableState("there is a path that is too long") from None


async def _is_directory(box: Any, path: str) -> bool:
    """Return whether a directory that cannot be listed exists, as far as listing its parents shows."""
    here = "."
    for name in (part for part in path.split("/") if part not in ("", ".")):
        try:
            entries = await box.list(here)
        except SandboxFileError:
            return True
        if not any(entry.name == name and entry.kind == "directory" for entry in entries):
            return False
        here = f"{here}/{name}"
    return True


async def fetch_database(box: Any, path: str, folder: Path, limit: int) -> Path:
    """Copy an SQLite database out of a box, with its write-ahead log and without uncommitted changes.

    Raises:
        UnreadableState: there is no such file, or its rollback journal cannot be used.
    """
    target = folder / "database.db"
    if not await fetch(box, path, target, limit):
        raise UnreadableState(f"there is no file {path} of at most {limit} bytes")
    await fetch(box, f"{path}-wal", folder / "database.db-wal", limit)
    journal = folder / "database.db-journal"
    if await fetch(box, f"{path}-journal", journal, limit):
        await asyncio.to_thread(_roll_back, target, journal)
    return target


def _roll_back(database: Path, journal: Path) -> None:
    """Undo the transaction during which a program was killed. SQLite does so when the database is next opened."""
    if journal.read_bytes().endswith(_JOURNAL_END):
        raise UnreadableState("its journal belongs to a transaction of several databases")
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except (sqlite3.Error, ValueError) as error:
        raise UnreadableState(f"its journal cannot be read: {error}") from None
