"""Head-to-head matches are no part of the hub any more: their tables go."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Drop the tables with what they hold."""
    for table in ("match_log", "matches", "match_entrants", "match_boards"):
        op.drop_table(table)


def downgrade() -> None:
    """Create the tables, which are empty."""
    script = op.get_context().script
    assert script is not None
    script.get_revision("0011").module.upgrade()
    op.execute("ALTER TABLE match_boards ADD COLUMN process VARCHAR(32)")  # as 0013 does
