"""The environment in which Alembic runs migrations: the connection of `ludus.hub.database.migrate`."""

from __future__ import annotations

from alembic import context

from ludus.hub.database.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
context.run_migrations()
