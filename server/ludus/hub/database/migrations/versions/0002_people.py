"""The tables of people: accounts, sessions, tokens, invitations and the audit log; private packages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables, and add the columns for private packages and for names that were given up."""
    op.add_column("owners", sa.Column("retired_at", TIME))
    op.add_column("packages", sa.Column("private", sa.Boolean, nullable=False, server_default=sa.false()))
    # It holds private packages alone, so that no query for public ones, which are most, follows it.
    op.create_index(
        "ix_packages_private", "packages", ["id"], sqlite_where=sa.text("private = 1"),
        postgresql_where=sa.text("private"),
    )  # fmt: skip
    op.create_table(
        "readers",
        sa.Column("package_id", BIG_ID, sa.ForeignKey("packages.id"), primary_key=True),
        sa.Column("principal", sa.String(100), primary_key=True),
    )
    op.create_table(
        "accounts",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("owner_id", BIG_ID, sa.ForeignKey("owners.id"), nullable=False, unique=True),
        sa.Column("name", sa.String(39), nullable=False, unique=True),
        sa.Column("password", sa.String(200), nullable=False),
        sa.Column("is_admin", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("disabled_at", TIME),
    )
    _create_credentials()
    op.create_table(
        "audit_events",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.String(100), nullable=False, index=True),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("account", sa.String(100), nullable=False, index=True),
        sa.Column("address", sa.String(64), nullable=False),
    )


def _create_credentials() -> None:
    op.create_table(
        "account_sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("browser", sa.String(100), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=False),
    )
    op.create_table(
        "access_tokens",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("account_id", BIG_ID, sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("name", sa.String(60), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.String(200), nullable=False),
        sa.Column("packages", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("used_at", TIME),
    )
    op.create_table(
        "invitations",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("created_by", sa.String(100), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )


def downgrade() -> None:
    """Drop everything that `upgrade` creates.

    Raises:
        RuntimeError: the hub has private packages, which would become public.
    """
    if op.get_bind().execute(sa.text("SELECT count(*) FROM packages WHERE private")).scalar_one():
        raise RuntimeError("the hub has private packages; an older hub would show them to all")
    for table in ("audit_events", "invitations", "access_tokens", "account_sessions", "accounts", "readers"):
        op.drop_table(table)
    op.drop_index("ix_packages_private", "packages")
    op.execute("ALTER TABLE packages DROP COLUMN private")  # Alembic would copy the table, to which others refer
    op.execute("ALTER TABLE owners DROP COLUMN retired_at")
