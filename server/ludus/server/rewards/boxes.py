"""What checks need of a sandbox, and how they get at the one that belongs to an attempt."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from ludus.server.rewards.attempt import Attempt
from ludus.server.sandbox.errors import SandboxFileError


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


async def fetch_tree(box: Any, path: str, target: Path, *, files: int, limit: int) -> bool:
    """Copy a directory out of a box. What is no plain file, or too large, becomes a link that leads nowhere.

    Returns:
        Whether there were at most `files` entries.
    """
    left = files
    waiting = [(path, target)]
    while waiting:
        source, folder = waiting.pop()
        folder.mkdir(exist_ok=True)
        try:
            entries = await box.list(source)
        except SandboxFileError:
            continue
        left -= len(entries)
        if left < 0:
            return False
        for entry in entries:
            inside = f"{source}/{entry.name}"
            if entry.kind == "directory":
                waiting.append((inside, folder / entry.name))
            elif entry.kind != "file" or not await fetch(box, inside, folder / entry.name, limit):
                os.symlink("nowhere", folder / entry.name)
    return True


async def fetch_database(box: Any, path: str, folder: Path, limit: int) -> Path:
    """Copy an SQLite database out of a box, with what is not yet written back into it.

    Raises:
        sqlite3.DatabaseError: there is no such file.
    """
    target = folder / "database.db"
    if not await fetch(box, path, target, limit):
        raise sqlite3.DatabaseError(f"there is no file {path} of at most {limit} bytes")
    await fetch(box, f"{path}-wal", folder / "database.db-wal", limit)
    return target
