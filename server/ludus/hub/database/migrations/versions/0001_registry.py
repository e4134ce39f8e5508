"""The tables of the registry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables and the index of the full-text search."""
    op.create_table(
        "owners",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("name", sa.String(39), nullable=False, unique=True),
        sa.Column("skeleton", sa.String(39), nullable=False, unique=True),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "publisher_keys",
        sa.Column("owner_id", BIG_ID, sa.ForeignKey("owners.id"), primary_key=True),
        sa.Column("key", sa.String(60), primary_key=True),
        sa.Column("added_at", TIME, nullable=False),
    )
    _create_packages()
    _create_versions()
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE VIRTUAL TABLE package_search USING fts5(name, tags, description, body, "
            "tokenize='unicode61', prefix='2 3')"
        )
    else:
        op.execute(
            "CREATE TABLE package_search (package_id BIGINT PRIMARY KEY REFERENCES packages(id), "
            "head TSVECTOR NOT NULL, document TSVECTOR NOT NULL) WITH (toast_tuple_target = 128)"
        )
        # Only the index is searched, so the documents are kept out of line, and ranking reads few pages.
        op.execute("ALTER TABLE package_search ALTER COLUMN document SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE package_search ALTER COLUMN head SET STORAGE MAIN")
        op.execute(
            "CREATE INDEX package_search_document ON package_search USING gin (document) WITH (fastupdate = off)"
        )


def _create_packages() -> None:
    op.create_table(
        "packages",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("owner_id", BIG_ID, sa.ForeignKey("owners.id"), nullable=False),
        sa.Column("owner", sa.String(39), nullable=False, index=True),
        sa.Column("name", sa.String(60), nullable=False),
        sa.Column("skeleton", sa.String(60), nullable=False),
        sa.Column("distribution", sa.String(100), nullable=False, unique=True),
        sa.Column("latest", sa.String(60), nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False, index=True),
        sa.UniqueConstraint("owner_id", "name"),
        sa.UniqueConstraint("owner_id", "skeleton"),
    )
    op.create_table(
        "maintainers",
        sa.Column("package_id", BIG_ID, sa.ForeignKey("packages.id"), primary_key=True),
        sa.Column("principal", sa.String(100), primary_key=True),
    )
    op.create_table(
        "package_tags",
        sa.Column("tag", sa.String(60), primary_key=True),
        sa.Column("package_id", BIG_ID, sa.ForeignKey("packages.id"), primary_key=True, index=True),
    )


def _create_versions() -> None:
    op.create_table(
        "versions",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("package_id", BIG_ID, sa.ForeignKey("packages.id"), nullable=False),
        sa.Column("version", sa.String(60), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False, unique=True),
        sa.Column("sha256", sa.String(64), nullable=False, index=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("metadata_sha256", sa.String(64), nullable=False),
        sa.Column("requires_python", sa.String(200)),
        sa.Column("manifest", sa.Text, nullable=False),
        sa.Column("card", sa.Text, nullable=False),
        sa.Column("signed", sa.Text),
        sa.Column("validation", sa.Text),
        sa.Column("uploaded_by", sa.String(100), nullable=False),
        sa.Column("uploaded_at", TIME, nullable=False),
        sa.Column("yanked", sa.String(500)),
        sa.UniqueConstraint("package_id", "version"),
    )


def downgrade() -> None:
    """Drop everything that `upgrade` creates."""
    for table in ("package_search", "versions", "package_tags", "maintainers", "packages", "publisher_keys", "owners"):
        op.drop_table(table)
