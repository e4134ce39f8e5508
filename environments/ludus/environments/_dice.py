"""Random choices that cost little: problems are made by the ten thousand when tasks are listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A generator of random choices.

    Args:
        seed: the same seed makes the same choices.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random: Callable[[], float] = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def nonzero(self, most: int) -> int:
        """Return a whole number from `-most` to `most` that is not 0."""
        found = self.between(-most, most - 1)
        return found + (found >= 0)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[int(self._random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """Return whether an event of a probability happens."""
        return self._random() < probability
