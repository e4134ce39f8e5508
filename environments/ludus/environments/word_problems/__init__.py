"""Solve math problems that are stated in words."""

from __future__ import annotations

from ludus.environments.word_problems.environment import WordProblem, WordProblems

__all__ = ["WordProblem", "WordProblems"]
