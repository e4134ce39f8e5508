"""The tables of verified runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _of_run() -> sa.Column[int]:
    return sa.Column("run_id", BIG_ID, sa.ForeignKey("result_runs.id"), primary_key=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "verified_runs",
        _of_run(),
        sa.Column("harness", sa.String(300), nullable=False),
        sa.Column("harness_sha256", sa.String(64), nullable=False),
        sa.Column("host", sa.String(300), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("base_url", sa.String(1000)),
        sa.Column("sealed", sa.Text),
        sa.Column("most_tokens", BIG_ID, nullable=False),
    )
    op.create_table(
        "verified_calls",
        _of_run(),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("answer", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("input_tokens", BIG_ID),
        sa.Column("output_tokens", BIG_ID),
    )
    op.create_table(
        "verified_attempts",
        _of_run(),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("ending", sa.String(500), nullable=False),
        sa.Column("output", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("verified_attempts", "verified_calls", "verified_runs"):
        op.drop_table(name)
