"""Write reports on entities of a generated encyclopedia, with citations, graded by a generated checklist."""

from __future__ import annotations

from ludus.environments.research.environment import Research, ResearchTask

__all__ = ["Research", "ResearchTask"]
