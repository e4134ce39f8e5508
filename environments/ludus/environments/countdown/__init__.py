"""Reach a target with some numbers and the four operations."""

from __future__ import annotations

from ludus.environments.countdown.environment import Countdown, CountdownTask

__all__ = ["Countdown", "CountdownTask"]
