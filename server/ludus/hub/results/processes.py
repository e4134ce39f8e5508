"""Which process of a hub plays which episodes, where several share one database.

How this works: each process has a random id, and a row with the time until which it counts as alive, which it renews.
An open episode names the process that plays it. What is open and names no row has been lost, and is put back. A process
whose time has ended loses its row, together with its episodes, in one transaction; so a process that was only paused
finds out from its missing row that they are not its own any more, and takes a new id. Rows of episodes are written by
the process that they name, and by no other one.

Times are those of the database, so the clocks of machines do not matter. A process that was killed need not be waited
for on its own machine: it has held a lock on a file in the data folder, which the operating system has released.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
from pathlib import Path
from typing import IO, Final

from sqlalchemy import ColumnElement, and_, delete, select, update
from sqlalchemy.orm import Session

from ludus.hub.core.peers import NAME_LENGTH, PlayedElsewhere
from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import HubProcess, ResultEpisode, ResultRun
from ludus.hub.database.times import database_time

LOCKS: Final = "processes"
"""The folder of the lock files in the data folder of the hub."""

_ID_LENGTH: Final = 32
_ID: Final = re.compile(rf"[0-9a-f]{{{_ID_LENGTH}}}")


class ProcessLease:
    """This process among those of the hub. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        folder: the folder of the lock files, which is created.
        seconds: for how long a process counts as alive after it has renewed its lease.
        address: where other processes reach this one; None if they do not.
        name: the name of this process, with which the ids begin; None to make one up.

    Attributes:
        id: the id of this process, which changes when its lease was lost.
    """

    def __init__(
        self, database: Database, folder: Path, seconds: float, address: str | None = None, name: str | None = None
    ) -> None:
        self.id = ""
        self._name = name or secrets.token_hex(NAME_LENGTH // 2)
        self.address = address
        self._database = database
        self._folder = folder
        self._seconds = seconds
        self._lock: IO[bytes] | None = None

    def begin(self) -> None:
        """Take a new id."""
        self._unlock()
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._name + secrets.token_hex((_ID_LENGTH - NAME_LENGTH) // 2)
        self._lock = (self._folder / new).open("xb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with self._database.writing() as session:
            expires_at = database_time(session) + self._seconds
            session.add(HubProcess(id=new, expires_at=expires_at, address=self.address))
        self.id = new

    def renew(self) -> bool:
        """Renew the lease, and return whether this process still has it; if not, it has no open episodes any more."""
        with self._database.writing() as session:
            mine = update(HubProcess).where(HubProcess.id == self.id)
            return bool(session.execute(mine.values(expires_at=database_time(session) + self._seconds)).rowcount)  # type: ignore[attr-defined]

    def reclaim(self) -> int:
        """Put back the open episodes of processes that have ended, and return their number."""
        with self._database.writing() as session:
            late = select(HubProcess.id).where(HubProcess.expires_at < database_time(session))
            ended = {*session.scalars(late), *filter(self._died, session.scalars(select(HubProcess.id)))}
            session.execute(delete(HubProcess).where(HubProcess.id.in_(ended)))
            lost = update(ResultEpisode).where(
                ResultEpisode.state == "open",
                ResultEpisode.run_id.in_(select(ResultRun.id).where(ResultRun.state == "open")),
                ResultEpisode.process.is_(None) | ResultEpisode.process.not_in(select(HubProcess.id)),
            )
            done = session.execute(lost.values(state="waiting", started_at=None, process=None))
        for one in ended:
            (self._folder / one).unlink(missing_ok=True)
        return int(done.rowcount)  # type: ignore[attr-defined]

    def end(self) -> None:
        """Give the lease back; what is open is put back by the next process that looks."""
        try:
            with self._database.writing() as session:
                session.execute(delete(HubProcess).where(HubProcess.id == self.id))
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            Path(self._lock.name).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _died(self, process: str) -> bool:
        """Return whether a process of this data folder does not run any more."""
        if process == self.id or not _ID.fullmatch(process):
            return False
        with contextlib.suppress(OSError), (self._folder / process).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False


def played_elsewhere(process: str | None) -> ColumnElement[bool]:
    """Return the condition for episodes that another process plays, which is alive or was until lately."""
    return and_(
        ResultEpisode.state == "open",
        ResultEpisode.process != (process or ""),
        ResultEpisode.process.in_(select(HubProcess.id)),
    )


def check_here(session: Session, run: ResultRun, process: str | None) -> None:
    """Check that no other process plays episodes of a run.

    Raises:
        PlayedElsewhere: one does.
    """
    query = select(ResultEpisode.process).where(ResultEpisode.run_id == run.id, played_elsewhere(process))
    found = session.scalars(query.limit(1)).first()
    if found is not None:
        raise PlayedElsewhere(f"episodes of the run {run.key} are open", found)
