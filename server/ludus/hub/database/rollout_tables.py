"""The tables of the files of trajectories that people keep on the hub: files, and their content in parts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, Index, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class KeptRollouts(Table):
    """A file that an owner keeps."""

    __tablename__ = "kept_rollouts"
    __table_args__ = (Index("ix_kept_rollouts_owner", "owner", "kept_at"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(80))
    size: Mapped[int] = mapped_column(BIG_ID)
    lines: Mapped[int] = mapped_column(Integer)
    """How many lines it has that are not empty."""
    index: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    """A `RolloutFile` as compressed JSON."""
    kept_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class KeptPart(Table):
    """A part of a file. All parts have the same size before compression, except the last one."""

    __tablename__ = "kept_rollout_parts"

    file_id: Mapped[str] = mapped_column(ForeignKey("kept_rollouts.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    """From 0."""
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """The bytes, compressed."""
