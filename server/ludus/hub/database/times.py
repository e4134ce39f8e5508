"""Times as the database keeps them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def aware(moment: datetime) -> datetime:
    """Return a time of the database in UTC. SQLite keeps no zone, and PostgreSQL answers in the one of its session."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def database_time(session: Session) -> float:
    """Return the time of the database in Unix seconds, which is the same for all machines that use it."""
    if session.get_bind().dialect.name == "sqlite":  # a file of this machine
        return time.time()
    found = session.scalar(select(func.extract("epoch", func.clock_timestamp())))
    assert found is not None
    return float(found)
