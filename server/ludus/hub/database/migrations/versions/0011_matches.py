"""The tables of head-to-head matches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)
NUMBER = sa.Float(53)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "match_boards",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("package", sa.String(100), nullable=False),
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("environment", sa.String(300), nullable=False),
        sa.Column("split", sa.String(300), nullable=False),
        sa.Column("seats", sa.Text, nullable=False),
        sa.Column("numbers", sa.Integer, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("rated", sa.Integer, nullable=False),
        sa.Column("seat_advantage", NUMBER),
        sa.Column("seat_low", NUMBER),
        sa.Column("seat_high", NUMBER),
        sa.Column("draw_share", NUMBER),
        sa.UniqueConstraint("package", "version", "environment", "split"),
    )
    _create_entrants()
    op.create_table(
        "matches",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("key", sa.String(22), nullable=False, unique=True),
        sa.Column("board_id", BIG_ID, sa.ForeignKey("match_boards.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("first_id", BIG_ID, sa.ForeignKey("match_entrants.id"), nullable=False),
        sa.Column("second_id", BIG_ID, sa.ForeignKey("match_entrants.id"), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("process", sa.String(32)),
        sa.Column("score", NUMBER),
        sa.Column("first_reward", NUMBER),
        sa.Column("second_reward", NUMBER),
        sa.Column("first_end", sa.String(100)),
        sa.Column("second_end", sa.String(100)),
        sa.Column("commitment", sa.String(64), nullable=False),
        sa.Column("opening", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.UniqueConstraint("board_id", "number"),
    )
    op.create_index("ix_matches_state", "matches", ["state"])
    op.create_index("ix_matches_first", "matches", ["first_id", "state"])
    op.create_index("ix_matches_second", "matches", ["second_id", "state"])
    op.create_table(
        "match_log",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("entrant_id", BIG_ID, sa.ForeignKey("match_entrants.id"), nullable=False),
        sa.Column("by", sa.String(100), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
    )


def _create_entrants() -> None:
    op.create_table(
        "match_entrants",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("key", sa.String(22), nullable=False, unique=True),
        sa.Column("board_id", BIG_ID, sa.ForeignKey("match_boards.id"), nullable=False),
        sa.Column("principal", sa.String(100), nullable=False),
        sa.Column("by_publisher", sa.Boolean, nullable=False),
        sa.Column("is_script", sa.Boolean, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("harness", sa.String(200), nullable=False),
        sa.Column("declared", sa.Text, nullable=False),
        sa.Column("registered", sa.Integer, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("voided", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("rating", NUMBER),
        sa.Column("rating_low", NUMBER),
        sa.Column("rating_high", NUMBER),
        sa.Column("component", sa.Integer),
        sa.Column("wins", sa.Integer, nullable=False),
        sa.Column("draws", sa.Integer, nullable=False),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("removed_at", TIME),
        sa.Column("removed_by", sa.String(100)),
        sa.Column("removed_reason", sa.String(500)),
        sa.Column("still_counts", sa.Boolean, nullable=False),
        sa.UniqueConstraint("board_id", "principal", "model", "harness"),
    )
    op.create_index("ix_match_entrants_state", "match_entrants", ["state", "deadline"])
    op.create_index("ix_match_entrants_principal", "match_entrants", ["principal", "state"])
    op.create_index("ix_match_entrants_rating", "match_entrants", ["board_id", "component", "rating"])


def downgrade() -> None:
    """Drop everything that `upgrade` creates."""
    for table in ("match_log", "matches", "match_entrants", "match_boards"):
        op.drop_table(table)
