"""Where processes of a hub reach each other, and which of them plays a board of matches or a verified run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

COLUMNS = (("hub_processes", "address", 300), ("match_boards", "process", 32), ("verified_runs", "process", 32))


def upgrade() -> None:
    """Add the columns; what is open belongs to none."""
    for table, column, length in COLUMNS:
        op.add_column(table, sa.Column(column, sa.String(length), nullable=True))


def downgrade() -> None:
    """Remove them. The tables are changed in place, because others refer to them."""
    for table, column, _ in COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
