"""The tables of verified runs: what they run with, the calls of the model, and how the harness has ended."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class VerifiedRun(Table):
    """What a verified run has in addition to its row in `result_runs`."""

    __tablename__ = "verified_runs"

    run_id: Mapped[int] = mapped_column(ForeignKey("result_runs.id"), primary_key=True)
    harness: Mapped[str] = mapped_column(String(300))
    harness_sha256: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(300))
    model: Mapped[str] = mapped_column(String(200))
    base_url: Mapped[str | None] = mapped_column(String(1000))
    """The address of the model endpoint; null when the run has ended."""
    sealed: Mapped[str | None] = mapped_column(Text)
    """The key of the account for the endpoint, encrypted with a key that is not in the database; null when the run has
    ended."""
    most_tokens: Mapped[int] = mapped_column(BIG_ID)
    process: Mapped[str | None] = mapped_column(String(32))
    """The process of the hub that plays it; null if none has begun to."""


class VerifiedCall(Table):
    """A call of the model."""

    __tablename__ = "verified_calls"

    run_id: Mapped[int] = mapped_column(ForeignKey("result_runs.id"), primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    request: Mapped[str] = mapped_column(String(64))
    answer: Mapped[str] = mapped_column(String(64))
    status: Mapped[int] = mapped_column(Integer)
    input_tokens: Mapped[int | None] = mapped_column(BIG_ID)
    output_tokens: Mapped[int | None] = mapped_column(BIG_ID)


class VerifiedAttempt(Table):
    """One start of an episode, when its harness has ended."""

    __tablename__ = "verified_attempts"

    run_id: Mapped[int] = mapped_column(ForeignKey("result_runs.id"), primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    ending: Mapped[str] = mapped_column(String(500))
    output: Mapped[str] = mapped_column(Text)
    """The end of what the harness has written; only the account of the run may read it."""
