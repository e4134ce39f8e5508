"""Find a hidden word from letters marked green and yellow."""

from __future__ import annotations

from ludus.environments.wordle.environment import Wordle, WordleTask

__all__ = ["Wordle", "WordleTask"]
