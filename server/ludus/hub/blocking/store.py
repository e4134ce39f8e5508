"""Blocked wheels in the database. All methods block, and any thread may call them.

How this works: a block is a row with the wheel's digest, so it holds for every name and version with these bytes, also
for one that is uploaded later. The same transaction chooses the newest versions of packages again, ends the open runs
of the version, and writes the audit log. What is registered at the same moment is found by `end_open`, which every
process of the hub calls again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from ludus.hub.access.viewers import Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import ResultBoard, ResultEpisode, ResultLogLine, ResultRun
from ludus.hub.database.tables import BlockedWheel, Package, Version
from ludus.hub.database.times import aware
from ludus.hub.people.audit import note
from ludus.hub.registry.catalog import find_package, find_version
from ludus.hub.registry.publishing import refresh_latest
from ludus.protocol.lifecycle import EndReason
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.packages import BlockInfo
from ludus.registry.types.results import NOT_BEGUN

OPERATOR = "operator"
"""Who removes a run in the name of the operator's command line."""


class Blocks:
    """The blocked wheels of a hub.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def block(self, sha256: str, reason: str, *, actor: str = "", address: str = "") -> BlockInfo:
        """Block a wheel, or change the reason of a block.

        Args:
            sha256: the wheel's digest; the hub need not have the wheel.
            reason: why; everyone who asks for the wheel sees it.
            actor: the administrator; empty for the command line.
            address: the client's address.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            row = session.get(BlockedWheel, sha256)
            if row is None or row.reason != reason:
                session.merge(BlockedWheel(sha256=sha256, reason=reason, blocked_by=actor, blocked_at=now))
                session.flush()
                self._changed(session, sha256, "blocked", actor, address, now)
                _end_open(session, [sha256], {sha256: reason}, actor or OPERATOR, now)
            return _info(session, session.get_one(BlockedWheel, sha256))

    def unblock(self, sha256: str, *, actor: str = "", address: str = "") -> BlockInfo:
        """Undo a block, and return what it was. Runs that it has ended stay ended.

        Raises:
            PackageNotFound: this wheel is not blocked.
        """
        with self._database.writing() as session:
            row = session.get(BlockedWheel, sha256)
            if row is None:
                raise not_blocked(sha256)
            info = _info(session, row)
            session.delete(row)
            session.flush()
            self._changed(session, sha256, "unblocked", actor, address, datetime.now(UTC))
            return info

    def find(self, sha256: str) -> BlockInfo:
        """Return the block of a wheel.

        Raises:
            PackageNotFound: this wheel is not blocked.
        """
        with self._database.reading() as session:
            row = session.get(BlockedWheel, sha256)
            if row is None:
                raise not_blocked(sha256)
            return _info(session, row)

    def all(self) -> list[BlockInfo]:
        """Return all blocks, the last one first."""
        query = select(BlockedWheel).order_by(BlockedWheel.blocked_at.desc(), BlockedWheel.sha256)
        with self._database.reading() as session:
            return [_info(session, row) for row in session.scalars(query)]

    def digest_of_version(self, package: str, version: str) -> str:
        """Return the digest of the wheel of a version.

        Raises:
            PackageNotFound: there is no such version.
        """
        owner, _, name = package.partition("/")
        with self._database.reading() as session:
            row = find_package(session, Sight(Viewer.of_administrator(OPERATOR)), owner, name)
            return find_version(session, row, version).sha256

    def reasons(self) -> dict[str, str]:
        """Return the reasons of all blocks by the digests of the wheels."""
        with self._database.reading() as session:
            return {row.sha256: row.reason for row in session.scalars(select(BlockedWheel))}

    def end_open(self, reasons: dict[str, str]) -> None:
        """End the open runs of blocked wheels that were registered at the same time as the block."""
        digests = list(reasons)
        with self._database.reading() as session:
            if not _open_runs(session, digests):
                return
        with self._database.writing() as session:
            _end_open(session, digests, reasons, OPERATOR, datetime.now(UTC))

    def _changed(
        self, session: Session, sha256: str, action: str, actor: str, address: str, now: datetime
    ) -> None:  # fmt: skip
        """Choose the newest versions of the packages with a wheel again, and note that."""
        versions = _versions(session, sha256)
        for version, package in versions:
            session.refresh(package, with_for_update=True)
            version.changed_at = now  # caches and mirrors look at this time
            session.flush()
            refresh_latest(session, package, now)
            title = f"{package.owner}/{package.name} {version.version}"
            note(session, action, title, actor=actor, account=package.owner, address=address)
        if not versions:
            note(session, action, f"sha256:{sha256}", actor=actor, account=actor, address=address)


def not_blocked(sha256: str) -> PackageNotFound:
    """Return the error for a wheel that is not blocked."""
    return PackageNotFound(f"no wheel with the sha256 {sha256[:64]!r} is blocked on this hub")


def _versions(session: Session, sha256: str) -> Sequence[tuple[Version, Package]]:
    query = select(Version, Package).join(Package, Package.id == Version.package_id).where(Version.sha256 == sha256)
    return [(version, package) for version, package in session.execute(query.order_by(Version.id))]


def _info(session: Session, row: BlockedWheel) -> BlockInfo:
    titles = [
        f"{package.owner}/{package.name}@{version.version}" for version, package in _versions(session, row.sha256)
    ]
    return BlockInfo(
        sha256=row.sha256, reason=row.reason, at=aware(row.blocked_at), by=row.blocked_by, versions=tuple(titles)
    )


def _open_runs(session: Session, digests: Sequence[str]) -> Sequence[tuple[int, str]]:
    """Return the ids of the open runs of blocked versions, each with the digest."""
    boards = select(ResultRun.id, ResultBoard.sha256).join(ResultBoard, ResultBoard.id == ResultRun.board_id)
    query = boards.where(ResultRun.state == "open", ResultBoard.sha256.in_(digests))
    return [(run, digest) for run, digest in session.execute(query)]


def _end_open(
    session: Session, digests: Sequence[str], reasons: dict[str, str], by: str, now: datetime
) -> None:  # fmt: skip
    """End open runs without a score."""
    for run_id, digest in _open_runs(session, digests):
        _end_run(session, run_id, f"the wheel is blocked: {reasons[digest]}"[:500], by, now)


def _end_run(session: Session, run_id: int, reason: str, by: str, now: datetime) -> None:
    run = session.scalars(select(ResultRun).where(ResultRun.id == run_id).with_for_update()).one()
    if run.state != "open":
        return
    left = update(ResultEpisode).where(ResultEpisode.run_id == run_id, ResultEpisode.state != "ended")
    ended = {"state": "ended", "ended_at": now, "process": None}
    session.execute(left.where(ResultEpisode.attempts == 0).values(end=NOT_BEGUN, **ended))
    session.execute(left.where(ResultEpisode.attempts > 0).values(end=str(EndReason.INFRASTRUCTURE_ERROR), **ended))
    run.state, run.ended_at = "ended", now
    run.removed_at, run.removed_by, run.removed_reason = now, by, reason
    session.add(ResultLogLine(at=now, kind="removed", run_id=run_id, by=by, reason=reason))
