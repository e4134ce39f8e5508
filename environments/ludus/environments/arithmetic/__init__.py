"""Compute an expression exactly."""

from __future__ import annotations

from ludus.environments.arithmetic.environment import Arithmetic, ArithmeticTask

__all__ = ["Arithmetic", "ArithmeticTask"]
