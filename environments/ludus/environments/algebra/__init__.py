"""Solve a problem of algebra, and give an exact expression."""

from __future__ import annotations

from ludus.environments.algebra.environment import Algebra, AlgebraProblem

__all__ = ["Algebra", "AlgebraProblem"]
