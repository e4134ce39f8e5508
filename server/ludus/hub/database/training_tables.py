"""The tables of live training runs: runs, their batches of points, and sample rollouts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, DateTime, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class TrainingRun(Table):
    """A training run of an account."""

    __tablename__ = "training_runs"
    __table_args__ = (
        UniqueConstraint("principal", "sender_key"),
        Index("ix_training_runs_principal", "principal", "id"),
        Index("ix_training_runs_public", "public", "id"),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    key: Mapped[str] = mapped_column(String(22), unique=True)
    principal: Mapped[str] = mapped_column(String(100))
    sender_key: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(120))
    public: Mapped[bool] = mapped_column(Boolean)
    trainer: Mapped[str] = mapped_column(String(120))
    config: Mapped[str] = mapped_column(Text)
    environments: Mapped[str] = mapped_column(Text)
    """A list of `TrainingEnvironment` as JSON."""
    steps: Mapped[int | None] = mapped_column(BIG_ID)
    state: Mapped[str] = mapped_column(String(10))
    """`running`, `finished` or `failed`. Whether a running one is lost is computed when it is read."""
    reason: Mapped[str] = mapped_column(String(500))
    attempt: Mapped[str] = mapped_column(String(100))
    """The process that may send now."""
    attempts: Mapped[str] = mapped_column(Text)
    """A list of `[step, time]` as JSON, one for each attempt: from which step it went on, and when it began."""
    next_batch: Mapped[int] = mapped_column(Integer)
    points: Mapped[int] = mapped_column(BIG_ID)
    values: Mapped[int] = mapped_column(BIG_ID)
    size: Mapped[int] = mapped_column(BIG_ID)
    """The bytes of all batches and rollouts, before compression."""
    metrics: Mapped[str] = mapped_column(Text)
    """The names of all metrics, as a JSON list."""
    last_step: Mapped[int | None] = mapped_column(BIG_ID)
    dropped: Mapped[int] = mapped_column(BIG_ID)
    rollouts: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    heard_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    summary: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    """The curves of the first batches, from `ludus.hub.training.curves`; null if there are none yet."""
    summary_upto: Mapped[int] = mapped_column(Integer)
    """How many batches are in the summary."""
    summary_values: Mapped[int] = mapped_column(BIG_ID)
    """How many values are in the summary."""


class TrainingBatch(Table):
    """A batch of points as it came."""

    __tablename__ = "training_batches"

    run_id: Mapped[int] = mapped_column(ForeignKey("training_runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    """The number of the attempt that sent it, from 0."""
    digest: Mapped[str] = mapped_column(String(64))
    points: Mapped[int] = mapped_column(Integer)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """The points by column, as compressed JSON; see `ludus.hub.training.columns`."""


class TrainingSample(Table):
    """A sample rollout."""

    __tablename__ = "training_rollouts"
    __table_args__ = (UniqueConstraint("run_id", "digest"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("training_runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    """From 1."""
    digest: Mapped[str] = mapped_column(String(64))
    step: Mapped[int] = mapped_column(BIG_ID)
    environment: Mapped[str] = mapped_column(String(100))
    task: Mapped[str] = mapped_column(String(100))
    reward: Mapped[str] = mapped_column(String(80))
    outcome: Mapped[str] = mapped_column(String(60))
    data: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    """The trajectory as compressed JSON."""
