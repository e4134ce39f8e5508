"""Caches of verdicts, so that the same question costs only one request."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping


class MemoryCache(MutableMapping[str, str]):
    """A cache in memory, of bounded size; the least recently used entry is evicted first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._held: OrderedDict[str, str] = OrderedDict()

    def __getitem__(self, key: str) -> str:
        self._held.move_to_end(key)
        return self._held[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._held[key] = value
        self._held.move_to_end(key)
        if len(self._held) > self._size:
            self._held.popitem(last=False)

    def __delitem__(self, key: str) -> None:
        del self._held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)


class FileCache(MutableMapping[str, str]):
    """A cache in an SQLite file, which several processes may share and `ludus rescore` can reuse.

    It holds the judges' reasons, which may quote answers: keep it as private as the tasks.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
        self._connection.execute("CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> str:
        with self._lock:
            row = self._connection.execute("SELECT value FROM verdicts WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return str(row[0])

    def __setitem__(self, key: str, value: str) -> None:
        with self._lock:
            self._connection.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, value))

    def __delitem__(self, key: str) -> None:
        with self._lock:
            if not self._connection.execute("DELETE FROM verdicts WHERE key = ?", (key,)).rowcount:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter([row[0] for row in self._connection.execute("SELECT key FROM verdicts")])

    def __len__(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM verdicts").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
