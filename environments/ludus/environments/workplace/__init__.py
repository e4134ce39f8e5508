"""Work for an employee of a generated company."""

from __future__ import annotations

from ludus.environments.workplace.environment import Workplace, WorkplaceTask

__all__ = ["Workplace", "WorkplaceTask"]
