"""The tables of results: boards, runs, the episodes of runs, and the log of removals."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class ResultBoard(Table):
    """One version, environment, split and level."""

    __tablename__ = "result_boards"
    __table_args__ = (UniqueConstraint("package", "version", "environment", "split", "level"),)

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    package: Mapped[str] = mapped_column(String(100))
    version: Mapped[str] = mapped_column(String(60))
    sha256: Mapped[str] = mapped_column(String(64))
    environment: Mapped[str] = mapped_column(String(300))
    split: Mapped[str] = mapped_column(String(300))
    level: Mapped[str] = mapped_column(String(10))
    lowest: Mapped[float | None] = mapped_column(Float(53))
    highest: Mapped[float | None] = mapped_column(Float(53))
    """The reward range that the environment declares; null if it declares none."""
    tasks: Mapped[str] = mapped_column(Text)
    """The sums of each task over all runs that count, as JSON."""
    difficulty: Mapped[str] = mapped_column(Text)
    """The number of tasks by pass rate, as JSON."""


class ResultLine(Table):
    """One line of a board: the runs of one account with one model and one harness."""

    __tablename__ = "result_lines"
    __table_args__ = (
        UniqueConstraint("board_id", "principal", "model", "harness"),
        Index("ix_result_lines_mean", "board_id", "mean"),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("result_boards.id"))
    principal: Mapped[str] = mapped_column(String(100))
    model: Mapped[str] = mapped_column(String(200))
    harness: Mapped[str] = mapped_column(String(200))
    mean: Mapped[float] = mapped_column(Float(53))
    document: Mapped[str] = mapped_column(Text)
    """A `BoardRow` as JSON."""


class ResultRun(Table):
    """A run. What was registered never changes; what it led to is written once, when it ends."""

    __tablename__ = "result_runs"
    __table_args__ = (
        UniqueConstraint("board_id", "principal", "number"),
        UniqueConstraint("board_id", "digest"),
        Index("ix_result_runs_state", "state", "deadline"),
        Index("ix_result_runs_principal", "principal", "state"),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    key: Mapped[str] = mapped_column(String(22), unique=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("result_boards.id"))
    principal: Mapped[str] = mapped_column(String(100))
    by_publisher: Mapped[bool]
    number: Mapped[int] = mapped_column(Integer)
    """Which of the account's runs on the board it is, from 1."""
    model: Mapped[str] = mapped_column(String(200))
    harness: Mapped[str] = mapped_column(String(200))
    declared: Mapped[str] = mapped_column(Text)
    """A `Declared` as JSON."""
    tasks: Mapped[int] = mapped_column(Integer)
    samples: Mapped[int] = mapped_column(Integer)
    success_at: Mapped[float] = mapped_column(Float(53))
    lowest: Mapped[float | None] = mapped_column(Float(53))
    highest: Mapped[float | None] = mapped_column(Float(53))
    """The reward range that the environment declares; null if it declares none."""
    state: Mapped[str] = mapped_column(String(10))
    """`open` or `ended`."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    deadline: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    commitment: Mapped[str | None] = mapped_column(String(64))
    opening: Mapped[str | None] = mapped_column(Text)
    """An `Opening` as JSON, secret until the run ends."""
    digest: Mapped[str | None] = mapped_column(String(64))
    """The digest of a reported run's upload; null for a played run."""
    reruns: Mapped[int] = mapped_column(Integer)
    figures: Mapped[str | None] = mapped_column(Text)
    """A `RunFigures` as JSON; null until the run has ended."""
    per_task: Mapped[str | None] = mapped_column(Text)
    """The sums of each task as JSON, from which boards are computed; null until the run has ended."""
    receipt: Mapped[str | None] = mapped_column(Text)
    """A `SignedReceipt` as JSON; null for a reported run, and until the run has ended."""
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    removed_by: Mapped[str | None] = mapped_column(String(100))
    removed_reason: Mapped[str | None] = mapped_column(String(500))
    rollouts: Mapped[str | None] = mapped_column(String(64), info={"blob": True})
    """The digest of the uploaded trajectories; null if there are none."""


class ResultEpisode(Table):
    """An episode of a run: the hub's own journal of played runs."""

    __tablename__ = "result_episodes"

    run_id: Mapped[int] = mapped_column(ForeignKey("result_runs.id"), primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    task: Mapped[str] = mapped_column(String(1000))
    task_index: Mapped[int] = mapped_column(BIG_ID)
    sample: Mapped[int] = mapped_column(Integer)
    seed: Mapped[int | None] = mapped_column(BIG_ID)
    state: Mapped[str] = mapped_column(String(10))
    """`waiting`, `open` or `ended`."""
    attempts: Mapped[int] = mapped_column(Integer)
    reward: Mapped[float | None] = mapped_column(Float(53))
    value: Mapped[float | None] = mapped_column(Float(53))
    end: Mapped[str | None] = mapped_column(String(100))
    steps: Mapped[int | None] = mapped_column(BIG_ID)
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    input_tokens: Mapped[int | None] = mapped_column(BIG_ID)
    output_tokens: Mapped[int | None] = mapped_column(BIG_ID)
    process: Mapped[str | None] = mapped_column(String(32))
    """The id of the process that plays it; null unless it is open."""


class HubProcess(Table):
    """A process of the hub that plays episodes."""

    __tablename__ = "hub_processes"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    expires_at: Mapped[float] = mapped_column(Float(53))
    """Unix time of the database, in seconds, until which it counts as alive."""
    address: Mapped[str | None] = mapped_column(String(300))
    """Where other processes of the hub reach it; null if they do not."""


class ResultLogLine(Table):
    """A removal or a rescoring of a run."""

    __tablename__ = "result_log"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    kind: Mapped[str] = mapped_column(String(10))
    run_id: Mapped[int] = mapped_column(ForeignKey("result_runs.id"))
    by: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str] = mapped_column(String(500))
    before: Mapped[float | None] = mapped_column(Float(53))
    after: Mapped[float | None] = mapped_column(Float(53))
