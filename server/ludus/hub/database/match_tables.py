"""The tables of head-to-head matches: boards, entrants, matches, and the log of removals."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class MatchBoardRow(Table):
    """One version, environment and split. What the ratings are computed from is in the other tables."""

    __tablename__ = "match_boards"
    __table_args__ = (UniqueConstraint("package", "version", "environment", "split"),)

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    package: Mapped[str] = mapped_column(String(100))
    version: Mapped[str] = mapped_column(String(60))
    sha256: Mapped[str] = mapped_column(String(64))
    environment: Mapped[str] = mapped_column(String(300))
    split: Mapped[str] = mapped_column(String(300))
    seats: Mapped[str] = mapped_column(Text)
    """The names of the two seats, as JSON."""
    numbers: Mapped[int] = mapped_column(Integer)
    """The number of the last match."""
    changes: Mapped[int] = mapped_column(Integer)
    """How often what the ratings depend on has changed."""
    rated: Mapped[int] = mapped_column(Integer)
    """The number of changes that the ratings include."""
    seat_advantage: Mapped[float | None] = mapped_column(Float(53))
    seat_low: Mapped[float | None] = mapped_column(Float(53))
    seat_high: Mapped[float | None] = mapped_column(Float(53))
    draw_share: Mapped[float | None] = mapped_column(Float(53))
    """As of the ratings; all null without matches."""
    process: Mapped[str | None] = mapped_column(String(32))
    """The process of the hub that pairs its entrants and plays its matches; null if none has begun to."""


class MatchEntrant(Table):
    """One account with one model and one harness on a board. What was declared never changes."""

    __tablename__ = "match_entrants"
    __table_args__ = (
        UniqueConstraint("board_id", "principal", "model", "harness"),
        Index("ix_match_entrants_state", "state", "deadline"),
        Index("ix_match_entrants_principal", "principal", "state"),
        Index("ix_match_entrants_rating", "board_id", "component", "rating"),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    key: Mapped[str] = mapped_column(String(22), unique=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("match_boards.id"))
    principal: Mapped[str] = mapped_column(String(100))
    """The account; `(script)` for a scripted opponent. After the deletion of an account it does not name it."""
    by_publisher: Mapped[bool]
    is_script: Mapped[bool]
    model: Mapped[str] = mapped_column(String(200))
    harness: Mapped[str] = mapped_column(String(200))
    declared: Mapped[str] = mapped_column(Text)
    """A `Declared` as JSON."""
    registered: Mapped[int] = mapped_column(Integer)
    """The number of matches that it registered for."""
    state: Mapped[str] = mapped_column(String(10))
    """`open` or `ended`."""
    voided: Mapped[int] = mapped_column(Integer)
    """The number of its matches that the infrastructure broke."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    deadline: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    rating: Mapped[float | None] = mapped_column(Float(53))
    rating_low: Mapped[float | None] = mapped_column(Float(53))
    rating_high: Mapped[float | None] = mapped_column(Float(53))
    component: Mapped[int | None] = mapped_column(Integer)
    """The group of entrants that are connected by matches."""
    wins: Mapped[int] = mapped_column(Integer)
    draws: Mapped[int] = mapped_column(Integer)
    losses: Mapped[int] = mapped_column(Integer)
    """As of the ratings; the rating is null without matches."""
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    removed_by: Mapped[str | None] = mapped_column(String(100))
    removed_reason: Mapped[str | None] = mapped_column(String(500))
    still_counts: Mapped[bool]
    """Whether its matches count for its opponents, also after it was removed."""


class Match(Table):
    """A match between two entrants."""

    __tablename__ = "matches"
    __table_args__ = (
        UniqueConstraint("board_id", "number"),
        Index("ix_matches_state", "state"),
        Index("ix_matches_first", "first_id", "state"),
        Index("ix_matches_second", "second_id", "state"),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    key: Mapped[str] = mapped_column(String(22), unique=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("match_boards.id"))
    number: Mapped[int] = mapped_column(Integer)
    first_id: Mapped[int] = mapped_column(ForeignKey("match_entrants.id"))
    """The entrant at the first seat."""
    second_id: Mapped[int] = mapped_column(ForeignKey("match_entrants.id"))
    state: Mapped[str] = mapped_column(String(10))
    """`open`, `ended` or `void`."""
    process: Mapped[str | None] = mapped_column(String(32))
    """The process of the hub that plays it; see `ludus.hub.results.processes`."""
    score: Mapped[float | None] = mapped_column(Float(53))
    """The first seat's result: 1 for a win, 0.5 for a draw, 0 for a loss; null until the match has ended."""
    first_reward: Mapped[float | None] = mapped_column(Float(53))
    second_reward: Mapped[float | None] = mapped_column(Float(53))
    first_end: Mapped[str | None] = mapped_column(String(100))
    second_end: Mapped[str | None] = mapped_column(String(100))
    commitment: Mapped[str] = mapped_column(String(64))
    opening: Mapped[str] = mapped_column(Text)
    """A `MatchOpening` as JSON, secret until the match has ended."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class MatchLogLine(Table):
    """A removal of an entrant."""

    __tablename__ = "match_log"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    entrant_id: Mapped[int] = mapped_column(ForeignKey("match_entrants.id"))
    by: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str] = mapped_column(String(500))
