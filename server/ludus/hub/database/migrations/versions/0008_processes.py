"""The processes of a hub, which of them plays an open episode, and the counts that they share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the tables and the column; what is open belongs to none, and is put back when a hub starts."""
    op.create_table(
        "hub_processes",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.create_table(
        "rate_counts",
        sa.Column("key", sa.String(40), primary_key=True),
        sa.Column("period", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.create_index("ix_rate_counts_expires_at", "rate_counts", ["expires_at"])
    op.add_column("result_episodes", sa.Column("process", sa.String(32), nullable=True))


def downgrade() -> None:
    """Remove them. The table of episodes is changed in place, because others refer to it."""
    op.execute("ALTER TABLE result_episodes DROP COLUMN process")
    op.drop_table("rate_counts")
    op.drop_table("hub_processes")
