"""Repair or extend a small Python repository."""

from __future__ import annotations

from ludus.environments.swe.environment import Swe
from ludus.environments.swe.tasks import SweTask

__all__ = ["Swe", "SweTask"]
