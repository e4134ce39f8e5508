"""Parts of snapshots in the database of a journal, so that a worker on another machine can restore them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, LiteralString

import psycopg

from ludus.protocol.errors import InfrastructureFailed, ShuttingDown
from ludus.server.runtime.postgres import Cursor, Database, Link, reason
from ludus.server.runtime.postgres_lease import FENCED, Lease
from ludus.server.runtime.snapshot_store import checked

log = logging.getLogger("ludus.server.runtime.snapshots")


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

    def put(self, episode: str, data: bytes) -> str:
        """Keep a part and return its SHA-256; the same content is kept once."""
        digest = hashlib.sha256(data).hexdigest()
        with self._using() as link:
            known = link.run_patiently(
                "SELECT FROM ludus.parts WHERE episode = %(episode)s AND sha256 = %(digest)s",
                {"episode": episode, "digest": digest},
            )
            if not known.rowcount:
                self._change(
                    link, "INSERT INTO ludus.parts (episode, sha256, worker, data)"
                    " SELECT %(episode)s, %(digest)s, %(worker)s, %(data)b FROM lease ON CONFLICT DO NOTHING",
                    episode=episode, digest=digest, data=data,
                )  # fmt: skip
        return digest

    def get(self, episode: str, digest: str) -> bytes:
        """Return a part."""
        with self._using() as link:
            row = link.run_patiently(
                "SELECT data FROM ludus.parts WHERE episode = %(episode)s AND sha256 = %(digest)s",
                {"episode": episode, "digest": digest},
            ).fetchone()
        if row is None:
            raise InfrastructureFailed(f"a part of a snapshot of {episode} is not in the database")
        return checked(episode, digest, row[0], "in the database")

    def share(self, origin: str, episode: str, digests: Iterable[str]) -> bool:
        """Give an episode the parts of another one, which the database copies."""
        wanted = list(set(digests))
        with self._using() as link:
            self._change(
                link, "INSERT INTO ludus.parts (episode, sha256, worker, data)"
                " SELECT %(episode)s, sha256, %(worker)s, data FROM ludus.parts, lease"
                " WHERE episode = %(origin)s AND sha256 = ANY(%(digests)s) ON CONFLICT DO NOTHING",
                episode=episode, origin=origin, digests=wanted,
            )  # fmt: skip
            there = link.run_patiently(
                "SELECT FROM ludus.parts WHERE episode = %(episode)s AND sha256 = ANY(%(digests)s)",
                {"episode": episode, "digests": wanted},
            )
        return there.rowcount == len(wanted)

    def drop(self, episode: str, digests: Iterable[str]) -> None:
        """Remove parts of an episode."""
        self._remove("episode = %(episode)s AND sha256 = ANY(%(digests)s)", episode=episode, digests=list(digests))

    def forget(self, episode: str) -> None:
        """Remove all parts of an episode."""
        self._remove("episode = %(episode)s", episode=episode)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Remove the parts of all episodes of the worker except these."""
        self._remove("NOT episode = ANY(%(kept)s)", kept=list(episodes))

    def _remove(self, which: LiteralString, **given: Any) -> None:
        try:
            with self._using() as link:
                self._change(
                    link, f"DELETE FROM ludus.parts USING lease WHERE worker = %(worker)s AND {which}", **given
                )  # fmt: skip
        except (InfrastructureFailed, ShuttingDown) as error:
            log.warning("parts of snapshots that are no longer needed stay for now: %s", error.message)

    def _change(self, link: Link, statement: LiteralString, **given: Any) -> Cursor:
        """Run a statement that needs the lease."""
        done = link.run_patiently(
            FENCED + statement, {"worker": self._lease.worker, "epoch": self._lease.epoch, **given}
        )
        if not done.rowcount:
            self._lease.check(link)
        return done

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
