"""The whole schema of a hub: the metadata of all tables, whichever module defines them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import MetaData

from ludus.hub.database import (  # noqa: F401  # importing them adds their tables
    result_tables,
    rollout_tables,
    sign_in_tables,
)
from ludus.hub.database.tables import Table

METADATA: Final[MetaData] = Table.metadata
"""All tables."""
