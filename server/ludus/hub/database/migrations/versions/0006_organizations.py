"""The tables of organizations, of their members and of invitations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "organizations",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("owner_id", BIG_ID, sa.ForeignKey("owners.id"), nullable=False, unique=True),
        sa.Column("name", sa.String(39), nullable=False, unique=True),
        sa.Column("public", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "organization_members",
        sa.Column("organization_id", BIG_ID, sa.ForeignKey("organizations.id"), primary_key=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), primary_key=True, index=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("joined_at", TIME, nullable=False),
    )
    op.create_table(
        "organization_invitations",
        sa.Column("organization_id", BIG_ID, sa.ForeignKey("organizations.id"), primary_key=True),
        sa.Column("name", sa.String(39), primary_key=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), index=True),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("invited_by", sa.String(100), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )


def downgrade() -> None:
    """Drop everything that `upgrade` creates. The packages of organizations stay, for administrators to change."""
    for table in ("organization_invitations", "organization_members", "organizations"):
        op.drop_table(table)
