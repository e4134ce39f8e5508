"""Signing in on a device, which a person confirms in a browser."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "device_sign_ins",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("code_digest", sa.String(64), nullable=False, unique=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), index=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False, index=True),
        sa.Column("asked_at", TIME),
    )


def downgrade() -> None:
    """Drop it. The sign-ins that have begun are begun again."""
    op.drop_table("device_sign_ins")
