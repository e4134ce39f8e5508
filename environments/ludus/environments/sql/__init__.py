"""Answer questions about databases with SQL."""

from __future__ import annotations

from ludus.environments.sql.environment import Sql
from ludus.environments.sql.tasks import SqlTask

__all__ = ["Sql", "SqlTask"]
