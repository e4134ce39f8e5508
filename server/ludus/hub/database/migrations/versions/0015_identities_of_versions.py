"""The text that all spellings of a version share, under which a package has each version once.

Before, `1`, `1.0` and `1.0.0` were three versions, and pip and uv each chose one of their wheels. Of such versions one
stays: the latest one of its package, otherwise the first one that is not yanked, otherwise the first one. The others
keep their rows and wheels, for those who have locked a digest, but have no identity, so they are offered no more.
"""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa
from alembic import op
from packaging.utils import canonicalize_version

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column, fill it, and allow each identity once."""
    op.add_column("versions", sa.Column("identity", sa.String(60), nullable=True))
    connection = op.get_bind()
    rows = connection.exec_driver_sql(
        "SELECT versions.id, versions.package_id, versions.version, versions.yanked, packages.latest "
        "FROM versions JOIN packages ON packages.id = versions.package_id ORDER BY versions.id"
    )
    equal: dict[tuple[int, str], list[sa.Row[tuple[int, int, str, str | None, str]]]] = defaultdict(list)
    for row in rows:
        equal[row.package_id, canonicalize_version(row.version)].append(row)
    if equal:
        kept = [
            {"id": min(group, key=lambda row: (row.version != row.latest, row.yanked is not None, row.id)).id, "to": to}
            for (_, to), group in equal.items()
        ]
        connection.execute(sa.text("UPDATE versions SET identity = :to WHERE id = :id"), kept)
    op.create_index("ix_versions_identity", "versions", ["package_id", "identity"], unique=True)


def downgrade() -> None:
    """Remove it."""
    op.drop_index("ix_versions_identity", "versions")
    op.execute("ALTER TABLE versions DROP COLUMN identity")
