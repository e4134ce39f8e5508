"""Signing in through an OpenID provider: identities, sign-ins that have begun, and confirmed sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables, and add the column."""
    op.create_table(
        "account_identities",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("issuer", sa.String(300), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("email", sa.String(254), nullable=False),
        sa.Column("gave_admin", sa.Boolean, nullable=False),
        sa.Column("linked_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=False),
        sa.UniqueConstraint("issuer", "subject"),
    )
    op.create_table(
        "pending_sign_ins",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("browser", sa.String(64), nullable=False),
        sa.Column("purpose", sa.String(20), nullable=False),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), index=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("expires_at", TIME, nullable=False, index=True),
    )
    op.add_column("account_sessions", sa.Column("confirmed_at", TIME))


def downgrade() -> None:
    """Drop them. Accounts without a password stay; the operator can give them one."""
    op.execute("ALTER TABLE account_sessions DROP COLUMN confirmed_at")
    op.drop_table("pending_sign_ins")
    op.drop_table("account_identities")
