"""Wheels that administrators have blocked, by their digests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "blocked_wheels",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("blocked_by", sa.String(100), nullable=False),
        sa.Column("blocked_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop it; what was blocked is served again."""
    op.drop_table("blocked_wheels")
