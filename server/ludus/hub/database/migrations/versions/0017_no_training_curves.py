"""Training runs are no part of the hub any more: their tables go, and so does the scope `training` of tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Drop the tables with what they hold, and take the scope from tokens and from sign-ins on devices."""
    for table in ("training_rollouts", "training_batches", "training_runs"):
        op.drop_table(table)
    connection = op.get_bind()
    without = sa.text("UPDATE access_tokens SET scopes = :scopes WHERE id = :id")
    for row in connection.execute(sa.text("SELECT id, scopes FROM access_tokens")).all():
        scopes = [scope for scope in row.scopes.split() if scope != "training"]
        connection.execute(without, {"scopes": " ".join(scopes), "id": row.id})
    sign_ins = sa.text("DELETE FROM device_sign_ins WHERE document LIKE :scope")
    connection.execute(sign_ins, {"scope": '%"training"%'})  # the device asks again


def downgrade() -> None:
    """Create the tables, which are empty."""
    script = op.get_context().script
    assert script is not None
    script.get_revision("0009").module.upgrade()
