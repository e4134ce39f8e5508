"""The files of trajectories that people keep, which were in the data folder of one process before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables. The hub that has files in its data folder takes them over when it starts."""
    op.create_table(
        "kept_rollouts",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("size", BIG_ID, nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("index", sa.LargeBinary, nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_kept_rollouts_owner", "kept_rollouts", ["owner", "kept_at"])
    op.create_table(
        "kept_rollout_parts",
        sa.Column("file_id", sa.String(16), sa.ForeignKey("kept_rollouts.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop them, with the files."""
    for table in ("kept_rollout_parts", "kept_rollouts"):
        op.drop_table(table)
