"""Verified runs are no part of the hub any more: they go with their boards, rows and receipts."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"

BOARDS = "SELECT id FROM result_boards WHERE level = 'verified'"
RUNS = f"SELECT id FROM result_runs WHERE board_id IN ({BOARDS})"


def upgrade() -> None:
    """Drop the tables, and delete the boards of the level `verified` with their runs."""
    for table in ("verified_attempts", "verified_calls", "verified_runs"):
        op.drop_table(table)
    for table in ("result_log", "result_episodes"):
        op.execute(f"DELETE FROM {table} WHERE run_id IN ({RUNS})")
    for table in ("result_runs", "result_lines"):
        op.execute(f"DELETE FROM {table} WHERE board_id IN ({BOARDS})")
    op.execute("DELETE FROM result_boards WHERE level = 'verified'")


def downgrade() -> None:
    """Create the tables, which are empty."""
    script = op.get_context().script
    assert script is not None
    script.get_revision("0010").module.upgrade()
    op.execute("ALTER TABLE verified_runs ADD COLUMN process VARCHAR(32)")  # as 0013 does
