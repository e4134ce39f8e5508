"""The answers of one cassette in this process, shared by all episodes, and the file that they are saved to.

How this works:

- `open_library` returns the same library for the same file and mode. A file that has changed since is read again.
- To record, this process locks the file, so that no other process replaces it. Each answer is saved before it is used,
  so a killed server loses none. Answers that arrive while the file is written go into it together, with the next write.
- An answer that another episode has recorded meanwhile takes the place of a new one, so that all episodes agree.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import hashlib
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ludus.sandbox.cassettes.file import Entry, read_cassette, write_cassette
from ludus.sandbox.core.cassette_settings import Cassette, CassetteMode, mode_of
from ludus.sandbox.core.errors import CassetteError

_libraries: Final[dict[tuple[str, CassetteMode], Library]] = {}
_opening: Final = threading.Lock()


class Library:
    """The answers of one cassette.

    Args:
        path: the file.
        mode: what to do with it.
        version: the version of the environment that it is for.

    Raises:
        CassetteError: the file cannot be read or written, or another process records it.
    """

    def __init__(self, path: Path, mode: CassetteMode, version: str) -> None:
        self.path = path
        self.mode = mode
        self._version = version
        self._entries: list[Entry] = []
        self._answers: dict[str, list[Any]] = {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._saved = 0
        self.seen = _stamp(path)
        if mode != "replay":
            if not os.access(path.parent, os.W_OK):
                raise CassetteError(f"the cassette {path} cannot be recorded: its folder is missing or read-only")
            _lock_file(path)
        if mode == "replay" or (mode == "record-missing" and path.exists()):
            for entry in read_cassette(path, version):
                self._add(entry)
        self._saved = len(self._entries)

    def find(self, key: str) -> list[Any]:
        """Return the answers to equal requests, in order."""
        return self._answers.get(key, [])

    async def keep(self, entry: Entry, number: int) -> Any:
        """Save an answer, unless another episode has recorded that one meanwhile; return the answer to use.

        Args:
            entry: the answer and its request.
            number: how many equal requests the episode has made before.

        Raises:
            CassetteError: the file cannot be written.
        """
        with self._lock:
            entries = self.find(entry.key)
            if number < len(entries):
                return entries[number]
            self._add(entry)
            count = len(self._entries)
        await asyncio.shield(asyncio.to_thread(self._save, count))
        return entry.answer

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._answers.setdefault(entry.key, []).append(entry.answer)

    def _save(self, count: int) -> None:
        with self._saving:
            if self._saved >= count:
                return
            with self._lock:
                entries = list(self._entries)
            write_cassette(self.path, self._version, entries)
            self._saved = len(entries)


def open_library(settings: Cassette) -> Library:
    """Return the library of a cassette whose path is absolute.

    Raises:
        CassetteError: the file cannot be read or recorded; the message names it.
    """
    path, mode = Path(settings.path), mode_of(settings)
    if not path.is_absolute():
        raise CassetteError(f"the path of a cassette must be absolute here, and {settings.path!r} is relative")
    key = (str(path), mode)
    with _opening:
        library = _libraries.get(key)
        if library is None or (mode == "replay" and library.seen != _stamp(path)):
            library = _libraries[key] = Library(path, mode, settings.version)
        return library


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _lock_file(path: Path) -> None:
    """Keep other processes from recording a file until this process ends.

    Raises:
        CassetteError: another process records it.
    """
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    lock_path = Path(tempfile.gettempdir()) / f"ludus-cassette-{name}.lock"
    if lock_path in _locks:
        return
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CassetteError(f"the cassette {path} cannot be locked: {error.strerror} ({lock_path})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CassetteError(f"another process records the cassette {path} now: end it first") from None
    _locks[lock_path] = descriptor
    atexit.register(_unlock, lock_path)


_locks: Final[dict[Path, int]] = {}


def _unlock(lock_path: Path) -> None:
    with suppress(OSError):
        lock_path.unlink()
    os.close(_locks.pop(lock_path))
