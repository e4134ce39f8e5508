"""What the holders of tokens use at this moment, in memory that the worker processes of one machine share.

How this works:

* The memory is one file of fixed size that every worker maps, or private memory for a server that is alone. It has a
  header, a row for each principal, and a table of client addresses that sent wrong tokens.
* A row has two token buckets, for requests and for steps, and a cell for each worker. A worker alone writes the counts
  in its own cell (open episodes, stored bytes); their sum over all cells is what the principal uses.
* A bucket gains `rate` permits a second, up to `burst`. A worker draws several permits at once, so that most steps cost
  no system call. Its cell says how many it has drawn (`lent`) and when. The bucket and all lent permits together never
  exceed `burst`, so the permits spent in any span of t seconds are at most `burst + rate * t`, over all workers.
* Permits that a worker has not spent after `STALE_SECONDS` are void for it. It gives them back when it next draws;
  after twice that time, any other worker counts them as spent.
* Rows are changed under a lock on a byte of the file (`fcntl`). The kernel drops the locks of a process that dies. A
  worker also locks the byte of its column as long as it lives: who can lock it knows that the worker is dead, and
  clears its column. A lock that is not free in `LOCK_SECONDS` (its holder is stopped) is a refusal, not a wait.
* Times are those of the monotonic clock, which all processes of a machine share until it boots again: a file of an
  earlier boot is emptied.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from ludus.protocol.errors import AuthoringError

VERSION: Final = 1
"""The version of the file's format."""

COLUMNS: Final = 256
"""The most processes that share a file."""

ROWS: Final = 1024
"""The most principals with limits, by name, since the file was last opened by a process that was alone."""

STALE_SECONDS: Final = 0.1
"""How long a worker may spend the permits that it has drawn."""

LOCK_SECONDS: Final = 0.02
"""How long to wait for the lock of a row; it is held for microseconds."""

OPEN_SECONDS: Final = 5.0
"""How long to wait for another process that prepares the file."""

IDLE_SECONDS: Final = 3600.0
"""A row that was not used for this long is free for another principal, once no other process uses the file."""

REQUESTS: Final = 0
STEPS: Final = 1

_MAGIC: Final = b"LUDUSUSE"
_SETS: Final = 512
_WAYS: Final = 8
_KEY: Final = 16
_HEADER: Final = struct.Struct("=8sIIII16s")
_NUMBER: Final = struct.Struct("=q")
_PAIR: Final = struct.Struct("=dd")
_CELL: Final = struct.Struct("=ddddqq")
"""When and how many permits were lent, for requests and for steps; open episodes; stored bytes."""
_SLOT: Final = struct.Struct("=16sdd")
"""An address; when its bucket was changed, and the permits in it."""

_USED_ROWS: Final = 64
_USED_COLUMNS: Final = 72
_WRONG_TOKENS: Final = 80
_STRANGERS: Final = 88
_PIDS: Final = 1024
_ROWS_START: Final = 4096
_CELLS_START: Final = _KEY + 2 * _PAIR.size
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_open_files: set[tuple[int, int]] = set()
"""The files that this process uses: the kernel's locks do not tell two users in one process apart."""


class UsageFileUnusable(AuthoringError):
    """The file of usage cannot be used; the message says why and what to do."""


class UsageBusy(Exception):
    """The lock of a row was not free in time."""


class UsageFull(Exception):
    """There is no row for a further principal."""


class Totals(NamedTuple):
    """What a principal uses, over all workers."""

    episodes: int
    stored: int


class UsageTable:
    """The shared memory. Use `open` or `private` to make one.

    Args:
        memory: the map.
        descriptor: the file's descriptor; None for private memory.
        columns: how many processes may use the memory.
        clock: returns the time in seconds; it is the same for all processes.
    """

    def __init__(self, memory: mmap.mmap, descriptor: int | None, columns: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.column = 0
        self._map = memory
        self._descriptor = descriptor
        self._columns = columns
        self._row_size = _CELLS_START + columns * _CELL.size
        self._addresses = _ROWS_START + ROWS * self._row_size
        self._rows: dict[bytes, int] = {}
        self._identity: tuple[int, int] | None = None

    @classmethod
    def private(cls, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return a table that only this process uses."""
        memory = mmap.mmap(-1, size_of(1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # some sandboxes allow no other
        table = cls(memory, None, 1, clock)
        table._write(_USED_COLUMNS, 1)
        return table

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return the table in a file, which is made if it is not there, with a column of this process.

        Raises:
            UsageFileUnusable: the file is something else or cannot be written, this process uses it already, or there
                are too many processes.
        """
        try:
            # Before it is opened: closing a second descriptor of a file drops all locks that this process has on it.
            if path.exists() and _identity(path.stat()) in _open_files:
                raise _unusable(path, "this process uses it already")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise _unusable(path, (error.strerror or str(error)).lower()) from None
        try:
            return cls._opened(path, descriptor, clock)
        except OSError as error:
            os.close(descriptor)
            raise _unusable(path, (error.strerror or str(error)).lower()) from None
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def _opened(cls, path: Path, descriptor: int, clock: Callable[[], float]) -> Self:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "it is not a regular file")
        if not _locked(descriptor, 0, OPEN_SECONDS):
            raise _unusable(path, f"another process has prepared it for more than {OPEN_SECONDS:g} s")
        size = size_of(COLUMNS)
        if os.fstat(descriptor).st_size == 0:
            # Written whole, because a full disk would otherwise end the process when it first touches a page.
            for start in range(0, size, 1 << 20):
                os.pwrite(descriptor, bytes(min(1 << 20, size - start)), start)
        elif os.fstat(descriptor).st_size != size:
            raise _unusable(path, "it is no file of usage of this version")
        table = cls(mmap.mmap(descriptor, size), descriptor, COLUMNS, clock)
        table._prepare(path)
        table._claim(path)
        table._identity = _identity(status)
        _open_files.add(table._identity)
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)
        return table

    def close(self) -> None:
        """Give up what this process uses. Closing twice is no error."""
        if self._map.closed:
            return
        self._clear_column(self.column)
        self._write(_PIDS + 8 * self.column, 0)
        self._map.close()
        if self._descriptor is not None:
            os.close(self._descriptor)  # which drops its locks
            self._descriptor = None
        if self._identity is not None:
            _open_files.discard(self._identity)

    # ── principals ─────────────────────────────────────────────────────────────────────────────────────────────────

    def row(self, name: str) -> int:
        """Return the row of a principal, which is made if there is none.

        Raises:
            UsageFull: there is no room for it.
            UsageBusy: another process is making rows.
        """
        key = _digest(name)
        index = self._rows.get(key)
        if index is not None:
            return index
        self._lock(0)
        try:
            used = self._read(_USED_ROWS)
            for row in range(len(self._rows), used):
                start = self._row(row)
                self._rows.setdefault(self._map[start : start + _KEY], row)
            if key not in self._rows:
                if used >= ROWS:
                    raise UsageFull
                start = self._row(used)
                self._map[start : start + self._row_size] = key + bytes(self._row_size - _KEY)
                self._write(_USED_ROWS, used + 1)
                self._rows[key] = used
        finally:
            self._unlock(0)
        return self._rows[key]

    def draw(self, row: int, kind: int, rate: float, burst: int, want: int, unspent: int) -> tuple[int, float]:
        """Take permits from a bucket: the first for now, the others to spend within `STALE_SECONDS`.

        Args:
            row: the principal's row.
            kind: `REQUESTS` or `STEPS`.
            rate: how many permits the bucket gains in a second.
            burst: the most permits.
            want: how many to take at the most.
            unspent: how many of the permits that were drawn before are not spent; they are given back.

        Returns:
            How many were taken, and in how many seconds there will be one if none was.

        Raises:
            UsageBusy: another process does not let go of the row.
        """
        memory, start = self._map, self._row(row)
        bucket = start + _KEY + _PAIR.size * kind
        own_cell = start + _CELLS_START + _CELL.size * self.column + _PAIR.size * kind
        self._lock(start)
        try:
            now = self.clock()
            changed, permits = _PAIR.unpack_from(memory, bucket)
            lent = _PAIR.unpack_from(memory, own_cell)[1]
            lent_out, free_in = self._lent_to_others(start, kind, now)
            room = max(0.0, burst - lent_out)
            # What this process has not spent until now was missing in the bucket while it filled.
            gained = room if changed <= 0 else permits + rate * max(0.0, now - changed)
            permits = min(room, max(0.0, min(gained, room - lent)) + min(unspent, lent))
            granted = min(want, int(permits + 1e-9))
            _PAIR.pack_into(memory, bucket, now, max(0.0, permits - granted))
            if lent or granted > 1:
                _PAIR.pack_into(memory, own_cell, now, max(0, granted - 1))
        finally:
            self._unlock(start)
        if granted:
            return granted, 0.0
        wait = (1.0 - permits) / rate
        return 0, wait if room >= 1 else max(wait, free_in)

    def batch(self, burst: int) -> int:
        """Return how many permits to draw at the most: all workers together may hold a quarter of a burst."""
        return max(1, burst // (4 * self._read(_USED_COLUMNS)))

    def set_counts(self, row: int, episodes: int, stored: int) -> None:
        """Set what a principal uses of this process."""
        at = self._row(row) + _CELLS_START + _CELL.size * self.column + 2 * _PAIR.size
        _NUMBER.pack_into(self._map, at, episodes)
        _NUMBER.pack_into(self._map, at + 8, stored)

    def totals(self, row: int) -> Totals:
        """Return what a principal uses, over all processes."""
        start, end = self._row(row) + _CELLS_START, self._read(_USED_COLUMNS)
        cells = self._map[start : start + end * _CELL.size]
        pairs = [(cell[4], cell[5]) for cell in _CELL.iter_unpack(cells)]
        return Totals(sum(cell[0] for cell in pairs), sum(cell[1] for cell in pairs))

    def open_episodes(self, row: int, count: int, most: int, stored: int) -> bool:
        """Set a principal's open episodes of this process to `count`, unless that makes more than `most` in all.

        Raises:
            UsageBusy: another process does not let go of the row.
        """
        start = self._row(row)
        at = start + _CELLS_START + _CELL.size * self.column + 2 * _PAIR.size
        for is_retry in (False, True):
            self._lock(start)
            try:
                before = _NUMBER.unpack_from(self._map, at)[0]
                if self.totals(row).episodes - before + count <= most:
                    self.set_counts(row, count, stored)
                    return True
            finally:
                self._unlock(start)
            if not is_retry and not self.clear_dead():
                return False
        return False

    def _lent_to_others(self, start: int, kind: int, now: float) -> tuple[float, float]:
        """Return how many permits other processes hold, and in how many seconds the first of them are void."""
        total, free_in = 0.0, 0.0
        for column in range(self._read(_USED_COLUMNS)):
            at = start + _CELLS_START + _CELL.size * column + _PAIR.size * kind
            lent_at, lent = _PAIR.unpack_from(self._map, at)
            if column == self.column or not lent:
                continue
            void_in = lent_at + 2 * STALE_SECONDS - now
            if void_in <= 0:
                _PAIR.pack_into(self._map, at, 0.0, 0.0)
            else:
                total += lent
                free_in = min(free_in or void_in, void_in)
        return total, free_in

    # ── addresses ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def wrong_tokens(self) -> int:
        """How many wrong tokens were counted."""
        return self._read(_WRONG_TOKENS)

    @property
    def strangers(self) -> int:
        """How many requests without a valid credential were counted."""
        return self._read(_STRANGERS)

    def wait_of(self, address: str, rate: float, burst: int) -> float:
        """Return in how many seconds an address has another permit; 0 if it has one now."""
        key = _digest(address)
        for at in self._slots(key):
            name, changed, permits = _SLOT.unpack_from(self._map, at)
            if name == key:
                permits = min(burst, permits + rate * max(0.0, self.clock() - changed))
                return 0.0 if permits >= 1 - 1e-9 else float((1 - permits) / rate)
        return 0.0

    def note_wrong(self, address: str, rate: float, burst: int) -> None:
        """Count a wrong token of an address.

        Raises:
            UsageBusy: another process does not let go of the place.
        """
        self._take_permit(address, rate, burst, _WRONG_TOKENS)

    def note_stranger(self, address: str, rate: float, burst: int) -> None:
        """Count a request without a valid credential.

        Raises:
            UsageBusy: another process does not let go of the place.
        """
        self._take_permit(address, rate, burst, _STRANGERS)

    def _take_permit(self, address: str, rate: float, burst: int, count_at: int) -> None:
        """Take a permit of an address. One that is new takes the place of the address that is quiet longest."""
        key = _digest(address)
        slots = self._slots(key)
        self._lock(slots[0])
        try:
            entries = {at: _SLOT.unpack_from(self._map, at) for at in slots}
            at = next((at for at, slot in entries.items() if slot[0] == key), None)
            now, permits = self.clock(), float(burst)
            if at is None:
                at = min(entries, key=lambda offset: entries[offset][1])
            else:
                permits = min(permits, entries[at][2] + rate * max(0.0, now - entries[at][1]))
            _SLOT.pack_into(self._map, at, key, now, max(0.0, permits - 1))
            self._write(count_at, self._read(count_at) + 1)
        finally:
            self._unlock(slots[0])

    def _slots(self, key: bytes) -> range:
        start = self._addresses + int.from_bytes(key[:4]) % _SETS * _WAYS * _SLOT.size
        return range(start, start + _WAYS * _SLOT.size, _SLOT.size)

    # ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def clear_dead(self) -> bool:
        """Clear the columns of processes that have died, and return whether there were any."""
        cleared = False
        for column in range(self._read(_USED_COLUMNS)):
            at = _PIDS + 8 * column
            if column == self.column or not self._read(at) or self._descriptor is None:
                continue
            if _locked(self._descriptor, at, 0.0):
                self._clear_column(column)
                self._write(at, 0)
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, at)
                cleared = True
        return cleared

    def _prepare(self, path: Path) -> None:
        """Write the header of a new file, check that of another, and empty one of an earlier boot."""
        boot = _boot()
        head = (_MAGIC, VERSION, COLUMNS, ROWS, _SETS)
        magic, version, columns, rows, sets, booted = _HEADER.unpack_from(self._map)
        if magic == bytes(8) and not any(self._map[:_ROWS_START]):
            _HEADER.pack_into(self._map, 0, *head, boot)
        elif (magic, version, columns, rows, sets) != head:
            raise _unusable(path, "it is no file of usage of this version")
        elif booted != boot:
            self._map[:] = bytes(len(self._map))
            _HEADER.pack_into(self._map, 0, *head, boot)

    def _claim(self, path: Path) -> None:
        """Take the first free column; as the only user of the file, also drop rows that were not used for long."""
        assert self._descriptor is not None
        for column in range(COLUMNS):
            if _locked(self._descriptor, _PIDS + 8 * column, 0.0):
                break
        else:
            raise _unusable(path, f"{COLUMNS} processes use it, its most")
        self.column = column
        self._clear_column(column)
        self._write(_PIDS + 8 * column, os.getpid())
        self._write(_USED_COLUMNS, max(self._read(_USED_COLUMNS), column + 1))
        self.clear_dead()
        used = self._read(_USED_COLUMNS)
        while used > column + 1 and not self._read(_PIDS + 8 * (used - 1)):
            used -= 1
        self._write(_USED_COLUMNS, used)
        if used == 1:
            self._drop_idle()

    def _drop_idle(self) -> None:
        now, count = self.clock(), 0
        for row in range(self._read(_USED_ROWS)):
            start = self._row(row)
            times = (_PAIR.unpack_from(self._map, start + _KEY + _PAIR.size * kind)[0] for kind in (REQUESTS, STEPS))
            if now - max(times) > IDLE_SECONDS:
                continue
            to = self._row(count)
            self._map[to : to + self._row_size] = self._map[start : start + self._row_size]
            count += 1
        self._write(_USED_ROWS, count)

    def _clear_column(self, column: int) -> None:
        for row in range(self._read(_USED_ROWS)):
            at = self._row(row) + _CELLS_START + _CELL.size * column
            self._map[at : at + _CELL.size] = bytes(_CELL.size)

    # ── the map ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _row(self, row: int) -> int:
        return _ROWS_START + row * self._row_size

    def _read(self, at: int) -> int:
        value: int = _NUMBER.unpack_from(self._map, at)[0]
        return value

    def _write(self, at: int, value: int) -> None:
        _NUMBER.pack_into(self._map, at, value)

    def _lock(self, at: int) -> None:
        if self._descriptor is not None and not _locked(self._descriptor, at, LOCK_SECONDS):
            raise UsageBusy

    def _unlock(self, at: int) -> None:
        if self._descriptor is not None:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, at)


def size_of(columns: int) -> int:
    """Return the size of a table in bytes."""
    return _ROWS_START + ROWS * (_CELLS_START + columns * _CELL.size) + _SETS * _WAYS * _SLOT.size


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _locked(descriptor: int, at: int, seconds: float) -> bool:
    """Lock a byte for this process, and return whether that was possible in time."""
    until = None
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        else:
            return True
        now = time.perf_counter()
        until = now + seconds if until is None else until
        if now >= until:
            return False
        time.sleep(0)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_KEY).digest()


def _boot() -> bytes:
    """Return the id of this boot; zeros where the system has none."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text("ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def _unusable(path: Path, cause: str) -> UsageFileUnusable:
    return UsageFileUnusable(
        f"the file of usage {path} cannot be used: {cause}; name another file with --usage-file, or delete this one "
        "once no server uses it"
    )
