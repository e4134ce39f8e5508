"""The time of the last change of each version, in whose order mirrors of the registry read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column and its index; existing versions have changed when they were uploaded."""
    column = sa.Column(
        "changed_at", sa.DateTime(timezone=True), nullable=False, server_default="1970-01-01 00:00:00.000000"
    )
    op.add_column("versions", column)
    op.execute("UPDATE versions SET changed_at = uploaded_at")
    op.create_index("ix_versions_changed_at", "versions", ["changed_at"])


def downgrade() -> None:
    """Remove both. The table is changed in place, because others refer to it."""
    op.drop_index("ix_versions_changed_at", "versions")
    op.execute("ALTER TABLE versions DROP COLUMN changed_at")
