"""The images that Ludus itself pulled or built, with the time of their last use, in a file that all servers share.

Only these images are ever removed. An image that a person pulled or built is not in the record, even if sandboxes use
it. The record belongs to the user that runs the servers; an engine that several users share has one for each.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from ludus.protocol.errors import AuthoringError

log = logging.getLogger("ludus.sandbox")

CAP_VARIABLE: Final = "LUDUS_IMAGE_CAP"
"""The environment variable with the maximum size of all images that Ludus pulled or built, such as `50G`."""

DEFAULT_CAP: Final = 64 * 2**30
"""The cap without that variable, in bytes."""

_SIZE: Final = re.compile(r"(\d{1,15})([KMGT]?)(?:I?B)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BUSY_SECONDS: Final = 10.0
_LOCK_SECONDS: Final = 1800.0
_LOCK_PAUSE: Final = 0.1


def cap_from_environment() -> int:
    """Return the cap on the images of this user's servers in bytes.

    Raises:
        AuthoringError: the variable does not hold a size.
    """
    text = os.environ.get(CAP_VARIABLE, "").strip()
    if not text:
        return DEFAULT_CAP
    match = _SIZE.fullmatch(text)
    if match is None:
        raise AuthoringError(f"{CAP_VARIABLE} is {text[:40]!r}; write a number of bytes, or a size such as 500M or 50G")
    return int(match[1]) * _UNITS[match[2].upper()]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One image of the record."""

    name: str
    """The name with tag or digest under which it was pulled or built."""
    origin: str
    """"pull" or "build"."""
    used: float
    """The time of its last use, in seconds since the epoch."""


class ImageRecord:
    """The record of one engine's images. Every method may be called from any thread, and from several servers at once.

    Args:
        engine: what identifies the engine; each engine has its own record.
        folder: the folder of the files; by default `$XDG_STATE_HOME/ludus`, or `~/.local/state/ludus`.
    """

    def __init__(self, engine: str, folder: Path | None = None) -> None:
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        self._folder = folder or Path(base).expanduser() / "ludus" / "images"
        self._engine = sha256(engine.encode()).hexdigest()[:16]
        self._memory: sqlite3.Connection | None = None
        self._guard = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._create()
        except (OSError, sqlite3.Error, RuntimeError) as error:
            log.warning(
                "%s cannot be written (%s), so images that are pulled now are never removed", self._folder, error
            )
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            self._create()

    def _create(self) -> None:
        with self._connected() as database:
            database.execute("CREATE TABLE IF NOT EXISTS images (name TEXT PRIMARY KEY, origin TEXT, used REAL)")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            with self._guard, self._memory:
                yield self._memory
            return
        with closing(sqlite3.connect(self._folder / f"{self._engine}.sqlite3", timeout=_BUSY_SECONDS)) as database:
            with database:
                yield database

    def add(self, name: str, origin: str) -> None:
        """Record an image that Ludus pulled or built, as used now."""
        with self._connected() as database:
            database.execute("INSERT OR REPLACE INTO images VALUES (?, ?, ?)", (name, origin, time.time()))

    def touch(self, name: str) -> None:
        """Set the time of an image's last use; images that are not in the record stay out of it."""
        with self._connected() as database:
            database.execute("UPDATE images SET used = ? WHERE name = ?", (time.time(), name))

    def forget(self, name: str) -> None:
        """Remove an image from the record."""
        with self._connected() as database:
            database.execute("DELETE FROM images WHERE name = ?", (name,))

    def all(self) -> list[Recorded]:
        """Return the images of the record, the least recently used first."""
        with self._connected() as database:
            rows = database.execute("SELECT name, origin, used FROM images ORDER BY used, name").fetchall()
        return [Recorded(*row) for row in rows]

    @contextmanager
    def only_one(self, work: str) -> Iterator[None]:
        """Enter a context in which no other thread or server of this user does the same work on this engine.

        The kernel releases the lock of a server that is killed.

        Raises:
            TimeoutError: another server has been at it for half an hour.
        """
        if self._memory is not None:
            yield
            return
        path = self._folder / f"{self._engine}-{sha256(work.encode()).hexdigest()[:2]}.lock"
        deadline = time.monotonic() + _LOCK_SECONDS
        with path.open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"another server has held {path} for {_LOCK_SECONDS:g} s") from None
                    time.sleep(_LOCK_PAUSE)
            yield
