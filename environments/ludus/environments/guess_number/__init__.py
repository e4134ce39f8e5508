"""Find a hidden number by higher and lower."""

from __future__ import annotations

from ludus.environments.guess_number.environment import GuessNumber, GuessNumberTask

__all__ = ["GuessNumber", "GuessNumberTask"]
