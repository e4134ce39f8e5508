"""Times as the database keeps them."""

from __future__ import annotations

from datetime import UTC, datetime


def aware(moment: datetime) -> datetime:
    """Return a time of the database with its zone, which SQLite does not keep."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
