"""The tables of results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)
NUMBER = sa.Float(53)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "result_boards",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("package", sa.String(100), nullable=False),
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("environment", sa.String(300), nullable=False),
        sa.Column("split", sa.String(300), nullable=False),
        sa.Column("level", sa.String(10), nullable=False),
        sa.Column("lowest", NUMBER),
        sa.Column("highest", NUMBER),
        sa.Column("tasks", sa.Text, nullable=False),
        sa.Column("difficulty", sa.Text, nullable=False),
        sa.UniqueConstraint("package", "version", "environment", "split", "level"),
    )
    op.create_table(
        "result_lines",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("board_id", BIG_ID, sa.ForeignKey("result_boards.id"), nullable=False),
        sa.Column("principal", sa.String(100), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("harness", sa.String(200), nullable=False),
        sa.Column("mean", NUMBER, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.UniqueConstraint("board_id", "principal", "model", "harness"),
    )
    op.create_index("ix_result_lines_mean", "result_lines", ["board_id", "mean"])
    _create_runs()
    op.create_table(
        "result_episodes",
        sa.Column("run_id", BIG_ID, sa.ForeignKey("result_runs.id"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("task", sa.String(1000), nullable=False),
        sa.Column("task_index", BIG_ID, nullable=False),
        sa.Column("sample", sa.Integer, nullable=False),
        sa.Column("seed", BIG_ID),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("reward", NUMBER),
        sa.Column("value", NUMBER),
        sa.Column("end", sa.String(100)),
        sa.Column("steps", BIG_ID),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("input_tokens", BIG_ID),
        sa.Column("output_tokens", BIG_ID),
    )
    op.create_table(
        "result_log",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("run_id", BIG_ID, sa.ForeignKey("result_runs.id"), nullable=False),
        sa.Column("by", sa.String(100), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("before", NUMBER),
        sa.Column("after", NUMBER),
    )


def _create_runs() -> None:
    op.create_table(
        "result_runs",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("key", sa.String(22), nullable=False, unique=True),
        sa.Column("board_id", BIG_ID, sa.ForeignKey("result_boards.id"), nullable=False),
        sa.Column("principal", sa.String(100), nullable=False),
        sa.Column("by_publisher", sa.Boolean, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("harness", sa.String(200), nullable=False),
        sa.Column("declared", sa.Text, nullable=False),
        sa.Column("tasks", sa.Integer, nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("success_at", NUMBER, nullable=False),
        sa.Column("lowest", NUMBER),
        sa.Column("highest", NUMBER),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deadline", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("commitment", sa.String(64)),
        sa.Column("opening", sa.Text),
        sa.Column("digest", sa.String(64)),
        sa.Column("reruns", sa.Integer, nullable=False),
        sa.Column("figures", sa.Text),
        sa.Column("per_task", sa.Text),
        sa.Column("receipt", sa.Text),
        sa.Column("removed_at", TIME),
        sa.Column("removed_by", sa.String(100)),
        sa.Column("removed_reason", sa.String(500)),
        sa.Column("rollouts", sa.String(64)),
        sa.UniqueConstraint("board_id", "principal", "number"),
        sa.UniqueConstraint("board_id", "digest"),
    )
    op.create_index("ix_result_runs_state", "result_runs", ["state", "deadline"])
    op.create_index("ix_result_runs_principal", "result_runs", ["principal", "state"])


def downgrade() -> None:
    """Drop everything that `upgrade` creates."""
    for table in ("result_log", "result_episodes", "result_runs", "result_lines", "result_boards"):
        op.drop_table(table)
