"""Random choices that cost little: problems are made by the ten thousand when tasks are listed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

__all__ = ["Dice", "Indexed", "QuickRandom"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


class Indexed(Protocol[T_co]):
    """A sequence, as far as `choice` needs it."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


class QuickRandom(random.Random):
    """A generator that draws the same numbers as `random.Random` with the same seed, in fewer calls.

    It is for environments whose tasks were first drawn with `random.Random` and have to stay the same; others use
    `Dice`, which costs less.
    """

    _POOLED: Final = 21
    """`random.Random.sample` draws up to 5 of so many values from a copy of the list, and from longer lists without."""

    def below(self, count: int) -> int:
        """Return a number from 0 and below `count`, which is positive."""
        bits = count.bit_length()
        number = self.getrandbits(bits)
        while number >= count:
            number = self.getrandbits(bits)
        return number

    def choice(self, seq: Indexed[T]) -> T:
        """Return one of the values."""
        count = len(seq)  # as in `below`: half of all draws are choices, and a call costs as much as the rest
        bits = count.bit_length()
        index = self.getrandbits(bits)
        while index >= count:
            index = self.getrandbits(bits)
        return seq[index]

    def randint(self, a: int, b: int) -> int:
        """Return a number from `a` to `b`, both included."""
        return a + self.below(b - a + 1)

    def indices(self, count: int, size: int) -> list[int]:
        """Return what `sample(range(count), size)` does."""
        if size == 1:
            return [self.below(count)]
        if size > 5 or count > self._POOLED:
            return self.sample(range(count), size)
        pool, found = list(range(count)), []
        for left in range(count, count - size, -1):
            index = self.below(left)
            found.append(pool[index])
            pool[index] = pool[left - 1]
        return found

    def some(self, values: Sequence[T], size: int) -> list[T]:
        """Return what `sample(values, size)` does."""
        return [values[index] for index in self.indices(len(values), size)]
