"""Answer multi-hop questions about a generated encyclopedia, and cite the pages that prove the answer."""

from __future__ import annotations

from ludus.environments.search.environment import Search, SearchTask

__all__ = ["Search", "SearchTask"]
