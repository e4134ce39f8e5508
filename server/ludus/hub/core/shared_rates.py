"""Counts of events in the database, which all processes of a hub share.

An event counts in its period, and the one before counts by the share of it that the window still covers. Keys are
digests of names and addresses, and rows go when their periods are over: nothing here says who has tried what.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from math import floor
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.tables import RateCount
from ludus.hub.database.times import database_time

SWEEP_SECONDS: Final = 60.0
"""How often a process removes rows whose periods are over."""


@dataclass(frozen=True)
class Event:
    """An event to count.

    Attributes:
        key: whose it is, which need not be short.
        most: how many are possible in a window.
        seconds: the length of the window.
    """

    key: tuple[str, ...]
    most: int
    seconds: int


class TooMany(Exception):
    """There were too many events.

    Attributes:
        place: which of the counted events it is.
        seconds: when to try again.
    """

    def __init__(self, place: int, seconds: float) -> None:
        super().__init__(f"event {place} is one too many; {seconds:.0f} s")
        self.place = place
        self.seconds = seconds


class SharedCounts:
    """Counts events in the database. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._swept = time.monotonic()
        self._sweeping = threading.Lock()

    def hit(self, events: list[Event]) -> None:
        """Count events, all of them or none.

        Raises:
            TooMany: one is too many.
            HubUnavailable: the database cannot be used.
        """
        self._sweep()
        with self._database.writing() as session:
            now = database_time(session)
            for index, event in enumerate(events):
                left = event.seconds - now % event.seconds
                if self._count(session, event, now) > event.most:
                    raise TooMany(index, max(1.0, left))

    def _count(self, session: Session, event: Event, now: float) -> int:
        """Add an event, and return how many there are in the window. The row stays locked until the commit."""
        key, period = _digest(event.key), int(now // event.seconds)
        insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
        row = {"key": key, "period": period, "count": 1, "expires_at": (period + 2.0) * event.seconds}
        adding = insert(RateCount).values(row).on_conflict_do_update(
            index_elements=["key", "period"], set_={"count": RateCount.count + 1}
        )  # fmt: skip
        count: int = session.execute(adding.returning(RateCount.count)).scalar_one()
        query = select(RateCount.count).where(RateCount.key == key, RateCount.period == period - 1)
        before = session.scalar(query) or 0
        return floor(before * (1 - now % event.seconds / event.seconds)) + count

    def _sweep(self) -> None:
        with self._sweeping:
            if time.monotonic() < self._swept + SWEEP_SECONDS:
                return
            self._swept = time.monotonic()
        with self._database.writing() as session:
            session.execute(delete(RateCount).where(RateCount.expires_at < database_time(session)))


def _digest(key: tuple[str, ...]) -> str:
    text = "\0".join(part.replace("\0", "") for part in key)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:40]
