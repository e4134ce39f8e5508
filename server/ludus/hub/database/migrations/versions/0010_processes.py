"""The processes of a hub, and which of them plays an open episode."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0004"


def upgrade() -> None:
    """Add the table and the column; what is open belongs to none, and is put back when a hub starts."""
    op.create_table(
        "hub_processes",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("expires_at", sa.Float(53), nullable=False),
    )
    op.add_column("result_episodes", sa.Column("process", sa.String(32), nullable=True))


def downgrade() -> None:
    """Remove both. The table of episodes is changed in place, because others refer to it."""
    op.execute("ALTER TABLE result_episodes DROP COLUMN process")
    op.drop_table("hub_processes")
