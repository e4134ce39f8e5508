"""What checks need of a sandbox, and how they get at the one that belongs to an attempt."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any, Final, Protocol

from ludus.sandbox.errors import SandboxFileError
from ludus.server.rewards.attempt import Attempt

DEPTH: Final = 100
"""Directories that are nested more deeply are not read."""
_LISTED: Final = 10_000
"""How many entries of a directory a box tells of at most."""
_JOURNAL_END: Final = bytes.fromhex("d9d505f920a163d7")
"""What a rollback journal ends with if it names another file, which SQLite would go on to delete."""


class UnreadableState(Exception):
    """What the policy left cannot be read; the message says why. It is the policy's doing, so it is worth 0."""


class Ran(Protocol):
    """What came of one command."""

    @property
    def exit_code(self) -> int | None:
        """None where a signal ended it."""
        ...

    @property
    def stdout(self) -> bytes:
        """What it printed, as far as the box kept it."""
        ...

    @property
    def stderr(self) -> bytes:
        """What it complained of."""
        ...

    @property
    def limit(self) -> str | None:
        """The limit that ended it, by name."""
        ...

    @property
    def seconds(self) -> float:
        """Wall-clock seconds that it took."""
        ...


class Box(Protocol):
    """Where untrusted code runs: the part of a sandbox that checks of code need."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"") -> Ran:
        """Run one command to its end. Raises when the box is broken, never for what the command does."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of its work directory."""
        ...


def verifier_of(attempt: Attempt) -> AbstractAsyncContextManager[Any]:
    """The box in which the attempt's environment lets what the policy did be checked.

    Raises:
        AttributeError, RuntimeError: it has none, as when stored trajectories are scored without replay.
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
    """Copy a directory out of a box. What is no plain file, or too large, becomes a link that leads nowhere.

    Raises:
        UnreadableState: there are more than `files` entries, or more bytes than the box may have on its disk, as in
            sparse files; or directories that are nested too deeply, have too long a path, or cannot be listed.
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
    """Whether a directory that cannot be listed is there, for all that can be seen."""
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
    """Copy an SQLite database out of a box, with what is not yet written back into it, and without what was not
    committed.

    Raises:
        UnreadableState: there is no such file, or what belongs to it cannot be made sense of.
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
    """Undo the transaction in which a program was killed; SQLite does so when the database is next opened."""
    if journal.read_bytes().endswith(_JOURNAL_END):
        raise UnreadableState("its journal belongs to a transaction of several databases")
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except (sqlite3.Error, ValueError) as error:
        raise UnreadableState(f"its journal cannot be read: {error}") from None
