"""Answer questions about databases with SQL."""

from __future__ import annotations

from ludus_sql.environment import Sql
from ludus_sql.tasks import SqlTask

__all__ = ["Sql", "SqlTask"]
