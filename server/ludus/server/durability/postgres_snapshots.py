"""Parts of snapshots in the database of a journal, so that a worker on another machine can restore them.

How this works:

* The table `blobs` has each content once for a worker, and `parts` says which episodes have it. So a fork gets the
  parts of its origin without a copy.
* A content is deleted with the last part that has it. A part is added in two statements: the content, which may be
  there already, and then the part, only if the content is there. The second one and deletions exclude each other (this
  process alone writes for its worker); if a deletion came in between, the content is written again.
* A content that no part has, because the process died between the two, is deleted by the next process.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Final, LiteralString

import psycopg

from ludus.protocol.errors import InfrastructureFailed, ShuttingDown
from ludus.server.durability.postgres import Cursor, Database, Link, reason
from ludus.server.durability.postgres_lease import FENCED, Lease
from ludus.server.durability.snapshot_store import checked

log = logging.getLogger("ludus.server.runtime.snapshots")

_ADD: Final[LiteralString] = FENCED + (
    "INSERT INTO ludus.parts (worker, sha256, episode) SELECT %(worker)s, sha256, %(episode)s FROM ludus.blobs, lease"
    " WHERE blobs.worker = %(worker)s AND sha256 = %(digest)s ON CONFLICT DO NOTHING"
)
_HAS: Final[LiteralString] = (
    "SELECT FROM ludus.parts WHERE worker = %(worker)s AND episode = %(episode)s AND sha256 = ANY(%(digests)s)"
)
_WRITE: Final[LiteralString] = FENCED + (
    "INSERT INTO ludus.blobs (worker, sha256, data) SELECT %(worker)s, %(digest)s, %(data)b FROM lease"
    " ON CONFLICT DO NOTHING"
)
_SHARE: Final[LiteralString] = FENCED + (
    "INSERT INTO ludus.parts (worker, sha256, episode) SELECT %(worker)s, sha256, %(episode)s FROM ludus.parts, lease"
    " WHERE parts.worker = %(worker)s AND episode = %(origin)s AND sha256 = ANY(%(digests)s) ON CONFLICT DO NOTHING"
)
_SWEEP: Final[LiteralString] = FENCED + (
    "DELETE FROM ludus.blobs USING lease WHERE blobs.worker = %(worker)s AND NOT EXISTS"
    " (SELECT FROM ludus.parts WHERE parts.worker = blobs.worker AND parts.sha256 = blobs.sha256)"
)


class PostgresSnapshots:
    """A store of snapshots in a database.

    Args:
        database: where it is.
        lease: the lease of the worker whose episodes they are of; without it, nothing is changed.
    """

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease
        self._idle: SimpleQueue[Link] = SimpleQueue()
        self._changing = threading.Lock()

    def put(self, episode: str, data: bytes) -> str:
        """Keep a part and return its SHA-256; the same content is kept once."""
        digest = hashlib.sha256(data).hexdigest()
        with self._using() as link:
            while not self._add(link, episode, digest):
                self._change(link, _WRITE, digest=digest, data=data)
        return digest

    def _add(self, link: Link, episode: str, digest: str) -> bool:
        """Give an episode a part whose content is there; return whether the episode has it now."""
        with self._changing:
            return bool(self._change(link, _ADD, episode=episode, digest=digest).rowcount) or self._has(
                link, episode, [digest]
            )

    def _has(self, link: Link, episode: str, digests: list[str]) -> bool:
        parameters = {"worker": self._lease.worker, "episode": episode, "digests": digests}
        return link.run_patiently(_HAS, parameters).rowcount == len(digests)

    def get(self, episode: str, digest: str) -> bytes:
        """Return a part."""
        with self._using() as link:
            row = link.run_patiently(
                "SELECT data FROM ludus.blobs JOIN ludus.parts USING (worker, sha256)"
                " WHERE worker = %(worker)s AND sha256 = %(digest)s AND episode = %(episode)s",
                {"worker": self._lease.worker, "episode": episode, "digest": digest},
            ).fetchone()
        if row is None:
            raise InfrastructureFailed(f"a part of a snapshot of {episode} is not in the database")
        return checked(episode, digest, row[0], "in the database")

    def share(self, origin: str, episode: str, digests: Iterable[str]) -> bool:
        """Give an episode the parts of another one, without copying them."""
        unique = list(set(digests))
        with self._using() as link, self._changing:
            self._change(link, _SHARE, episode=episode, origin=origin, digests=unique)
            return self._has(link, episode, unique)

    def drop(self, episode: str, digests: Iterable[str]) -> None:
        """Remove parts of an episode."""
        self._remove("episode = %(episode)s AND sha256 = ANY(%(digests)s)", episode=episode, digests=list(digests))

    def forget(self, episode: str) -> None:
        """Remove all parts of an episode."""
        self._remove("episode = %(episode)s", episode=episode)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Remove the parts of all episodes of the worker except these."""
        self._remove("NOT episode = ANY(%(kept)s)", kept=list(episodes))
        self._run_removal(_SWEEP)

    def _remove(self, which: LiteralString, **parameters: Any) -> None:
        """Remove some parts, and the contents that no other part has."""
        removed: LiteralString = (
            ", removed AS (DELETE FROM ludus.parts USING lease"
            f" WHERE worker = %(worker)s AND {which} RETURNING sha256, episode) "
            "DELETE FROM ludus.blobs USING removed WHERE blobs.worker = %(worker)s AND blobs.sha256 = removed.sha256"
            " AND NOT EXISTS (SELECT FROM ludus.parts WHERE parts.worker = blobs.worker"
            " AND parts.sha256 = blobs.sha256 AND (parts.sha256, parts.episode) NOT IN (SELECT * FROM removed))"
        )
        self._run_removal(FENCED.rstrip() + removed, **parameters)

    def _run_removal(self, statement: LiteralString, **parameters: Any) -> None:
        try:
            with self._using() as link, self._changing:
                self._change(link, statement, **parameters)
        except (InfrastructureFailed, ShuttingDown) as error:
            log.warning("parts of snapshots that are no longer needed stay for now: %s", error.message)

    def _change(self, link: Link, statement: LiteralString, **parameters: Any) -> Cursor:
        """Run a statement that needs the lease."""
        cursor = link.run_patiently(statement, {"worker": self._lease.worker, "epoch": self._lease.epoch, **parameters})
        if not cursor.rowcount:
            self._lease.check(link)
        return cursor

    @contextmanager
    def _using(self) -> Iterator[Link]:
        """Lend a link that no other thread uses.

        Raises:
            InfrastructureFailed: the database cannot be used.
            LeaseLost: another process has taken over.
        """
        try:
            link = self._idle.get_nowait()
        except Empty:
            link = self._database.link()
        try:
            yield link
        except psycopg.Error as error:
            raise InfrastructureFailed(f"the database of snapshots cannot be used: {reason(error)}") from None
        finally:
            self._idle.put(link)
