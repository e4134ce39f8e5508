"""An index from which pages of the catalog are read in their order, without private packages."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Replace the index on the time of the last update."""
    op.drop_index("ix_packages_updated_at", "packages")
    op.create_index("ix_packages_catalog", "packages", ["updated_at", "id", "private"])


def downgrade() -> None:
    """Bring the former index back."""
    op.drop_index("ix_packages_catalog", "packages")
    op.create_index("ix_packages_updated_at", "packages", ["updated_at"])
