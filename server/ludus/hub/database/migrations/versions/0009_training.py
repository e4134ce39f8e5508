"""The tables of live training runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "training_runs",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("key", sa.String(22), nullable=False, unique=True),
        sa.Column("principal", sa.String(100), nullable=False),
        sa.Column("sender_key", sa.String(100), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("public", sa.Boolean, nullable=False),
        sa.Column("trainer", sa.String(120), nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("environments", sa.Text, nullable=False),
        sa.Column("steps", BIG_ID),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("attempt", sa.String(100), nullable=False),
        sa.Column("attempts", sa.Text, nullable=False),
        sa.Column("next_batch", sa.Integer, nullable=False),
        sa.Column("points", BIG_ID, nullable=False),
        sa.Column("values", BIG_ID, nullable=False),
        sa.Column("size", BIG_ID, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("last_step", BIG_ID),
        sa.Column("dropped", BIG_ID, nullable=False),
        sa.Column("rollouts", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("summary", sa.LargeBinary),
        sa.Column("summary_upto", sa.Integer, nullable=False),
        sa.Column("summary_values", BIG_ID, nullable=False),
        sa.UniqueConstraint("principal", "sender_key"),
    )
    op.create_index("ix_training_runs_principal", "training_runs", ["principal", "id"])
    op.create_index("ix_training_runs_public", "training_runs", ["public", "id"])
    op.create_table(
        "training_batches",
        sa.Column("run_id", BIG_ID, sa.ForeignKey("training_runs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "training_rollouts",
        sa.Column("run_id", BIG_ID, sa.ForeignKey("training_runs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("step", BIG_ID, nullable=False),
        sa.Column("environment", sa.String(100), nullable=False),
        sa.Column("task", sa.String(100), nullable=False),
        sa.Column("reward", sa.String(80), nullable=False),
        sa.Column("outcome", sa.String(60), nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("run_id", "digest"),
    )


def downgrade() -> None:
    """Drop everything that `upgrade` creates."""
    for table in ("training_rollouts", "training_batches", "training_runs"):
        op.drop_table(table)
