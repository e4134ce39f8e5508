"""The lease that makes one process the only writer of a worker's journal.

How this works:

* The lease of a worker is a row with an epoch. A process takes it by raising the epoch, and renews it every third of
  `LEASE_SECONDS`. It is free when it has expired, by the clock of the database, or when the connection by which it was
  last renewed has ended: the kernel closes the connections of a process that dies, so the next process need not wait.
  (A restart of the database ends all connections, which says nothing of the processes that had them.)
* Every statement that writes names its epoch, and locks the lease's row while it runs (`FENCED`). One that has an old
  epoch writes nothing. So a process that was stopped for a while, or was on the other side of a broken network, cannot
  write after another one has taken over, whatever the clocks say.
* A process that has lost its lease never gets it back. Its journal is broken, and it ends.
* While the database is away, the lease may expire. If no other process has taken it meanwhile, its holder goes on.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, LiteralString

import psycopg

from ludus.protocol.errors import ShuttingDown
from ludus.server.durability.journal import JournalUnusable
from ludus.server.durability.postgres import Database, Link, reason

log = logging.getLogger("ludus.server.journal")

LEASE_SECONDS: Final = 5.0
"""How long a lease is valid after it was renewed."""

WAIT_SECONDS: Final = 20.0
"""How long a process waits for the lease of another one."""

LOOK_SECONDS: Final = 0.1
"""The time between two attempts to get a lease."""

FENCED: Final[LiteralString] = (
    "WITH lease AS (SELECT FROM ludus.leases WHERE worker = %(worker)s AND epoch = %(epoch)s FOR SHARE) "
)
"""The beginning of each statement that writes; the statement takes its rows from `lease`."""

_BACKEND: Final[LiteralString] = (
    "pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())"
)

_TAKE: Final[LiteralString] = (
    "INSERT INTO ludus.leases AS old (worker, epoch, holder, url, backend, backend_start, expires) VALUES"
    f" (%(worker)s, 1, %(holder)s, '', {_BACKEND}, clock_timestamp() + %(seconds)s * interval '1 second')"
    " ON CONFLICT (worker) DO UPDATE SET epoch = old.epoch + 1, holder = excluded.holder, url = '',"
    " backend = excluded.backend, backend_start = excluded.backend_start, expires = excluded.expires"
    " WHERE old.expires <= clock_timestamp() OR old.backend_start >= pg_postmaster_start_time()"
    " AND NOT EXISTS (SELECT FROM pg_stat_activity AS one WHERE one.pid = old.backend"
    " AND coalesce(one.backend_start = old.backend_start, true)) RETURNING epoch"
)

_RENEW: Final[LiteralString] = (
    f"UPDATE ludus.leases SET (backend, backend_start) = (SELECT {_BACKEND}), url = %(url)s,"
    " expires = clock_timestamp() + %(seconds)s * interval '1 second'"
    " WHERE worker = %(worker)s AND epoch = %(epoch)s"
)

_RELEASE: Final[LiteralString] = (
    "UPDATE ludus.leases SET expires = '-infinity' WHERE worker = %(worker)s AND epoch = %(epoch)s"
)


class LeaseLost(ShuttingDown):
    """Another process has taken over the journal."""


class Lease:
    """The lease of one worker.

    Args:
        database: where it is.
        worker: the worker's id; empty for a server without one.
    """

    def __init__(self, database: Database, worker: str) -> None:
        self.worker = worker
        self.epoch = 0
        """How often the lease was taken, with this time."""
        self.url = ""
        """Where its holder listens."""
        self._database = database
        self._link = database.link()
        self._renewed = 0.0
        self.trouble: str | None = None
        """Why it could not be renewed the last time; None if it was."""
        self._lost: LeaseLost | None = None
        self._on_lost: Callable[[LeaseLost], None] | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def fresh(self) -> bool:
        """Whether no other process can have the lease yet, unless this one's connection has broken."""
        return time.monotonic() < self._renewed + LEASE_SECONDS

    def take(self) -> None:
        """Take the lease, as soon as it is free.

        Raises:
            JournalUnusable: another process keeps it.
            psycopg.Error: the database cannot be used.
        """
        give_up = time.monotonic() + WAIT_SECONDS
        parameters = {"worker": self.worker, "holder": f"process {os.getpid()} on {socket.gethostname()}"}
        while True:
            began = time.monotonic()
            row = self._link.run(_TAKE, {**parameters, "seconds": LEASE_SECONDS}).fetchone()
            if row is not None:
                self.epoch, self._renewed = row[0], began
                return
            if began >= give_up:
                break
            self._ending.wait(LOOK_SECONDS)
        whose = f" of worker {self.worker}" if self.worker else ""
        raise JournalUnusable(
            f"the journal{whose} in {self._database.shown} is used by {self._holder(self._link)}: stop that server, or "
            f"name another {'worker or ' if self.worker else ''}database"
        )

    def keep(self, on_lost: Callable[[LeaseLost], None]) -> None:
        """Renew the lease from now on; call `on_lost`, in another thread, once another process has it."""
        self._on_lost = on_lost
        self._thread = threading.Thread(target=self._renew, name="ludus-lease", daemon=True)
        self._thread.start()

    def check(self, link: Link, until: float | None = None) -> None:
        """Check that this process still has the lease.

        Args:
            link: a link of this thread.
            until: see `Link.run_patiently`.

        Raises:
            LeaseLost: another one has it.
            psycopg.Error: the database cannot be used.
        """
        row = link.run_patiently(
            "SELECT epoch FROM ludus.leases WHERE worker = %(worker)s", {"worker": self.worker}, until
        ).fetchone()
        if row != (self.epoch,):
            raise self._lose(self._holder(link))

    def release(self) -> None:
        """Stop renewing, and free the lease, so that the next process need not wait."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed: psycopg.Error | None = None
        for _ in range(2 if self._lost is None and self.epoch else 0):  # the first connection may be an old one
            try:
                self._link.run(_RELEASE, {"worker": self.worker, "epoch": self.epoch})
                return
            except psycopg.Error as error:
                failed = error
        if failed is not None:
            log.warning("the lease in %s expires by itself: %s", self._database.shown, reason(failed))

    def _renew(self) -> None:
        pause = LEASE_SECONDS / 3
        while not self._ending.wait(pause) and self._lost is None:
            began = time.monotonic()
            try:
                renewed = self._link.run(
                    _RENEW,
                    {"worker": self.worker, "epoch": self.epoch, "url": self.url, "seconds": LEASE_SECONDS},
                )
                self.trouble = None
                if renewed.rowcount:
                    self._renewed, pause = began, LEASE_SECONDS / 3
                else:
                    self._lose(self._holder(self._link))
            except psycopg.Error as error:
                log.debug("the lease in %s cannot be renewed for now: %s", self._database.shown, reason(error))
                self.trouble = reason(error)
                pause = LEASE_SECONDS / 10

    def _lose(self, holder: str) -> LeaseLost:
        if self._lost is None:
            whose = f"worker {self.worker}'s journal" if self.worker else "the journal"
            self._lost = LeaseLost(f"{holder} has taken over {whose}; this process stops, so send the request again")
            if self._on_lost is not None:
                self._on_lost(self._lost)
        return self._lost

    def _holder(self, link: Link) -> str:
        """Return who has the lease, as far as the database says so."""
        row = None
        with suppress(psycopg.Error):
            row = link.run(
                "SELECT holder FROM ludus.leases WHERE worker = %(worker)s", {"worker": self.worker}
            ).fetchone()
        return str(row[0]) if row is not None else "another process"
