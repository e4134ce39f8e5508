"""Generate Countdown problems from an index; each is solvable, but not with fewer numbers than its level demands.

The choices of numbers that a level allows form one sequence, and each place in the sequence belongs to one split. So
no two problems have the same numbers, neither within a split nor across splits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ludus.server import Difficulty
from ludus.server.authoring.partition import SplitType, digest, place_of, scattered

Value = int | tuple[int, int]
"""A whole number, or a fraction in lowest terms; much quicker to make and to compare than `Fraction`."""


@dataclass(frozen=True, slots=True)
class Level:
    """The parameters of a difficulty."""

    small: int
    """The count of numbers that are drawn from 1 to `greatest`, with repetition."""
    greatest: int
    large: int
    """The count of further numbers that are drawn from 25, 50, 75 and 100, without repetition."""
    targets: tuple[int, int]
    """The least and the greatest target."""
    needs: int
    """No solution uses fewer numbers than this (2 to 4)."""

    @property
    def choices(self) -> int:
        """The count of different choices of numbers."""
        return math.comb(self.greatest + self.small - 1, self.small) * math.comb(len(LARGE), self.large)

    def numbers(self, place: int) -> list[int]:
        """Return the numbers at a place, from 0 and below `choices`; adjacent places have unrelated numbers."""
        large = list(combinations(LARGE, self.large))
        rank, which = divmod(scattered(place, self.choices), len(large))
        return [*_multiset(rank, self.small), *large[which]]


LEVELS: Final[Mapping[Difficulty, Level]] = {
    "easy": Level(small=3, greatest=99, large=0, targets=(2, 100), needs=2),
    "medium": Level(small=4, greatest=50, large=0, targets=(2, 200), needs=3),
    "hard": Level(small=4, greatest=20, large=2, targets=(101, 999), needs=4),
}
LARGE: Final = (25, 50, 75, 100)


@dataclass(frozen=True, slots=True)
class Problem:
    """Numbers, a target, and one way to reach it."""

    numbers: tuple[int, ...]
    target: int
    solution: str


def make_problem(split: SplitType, difficulty: Difficulty, index: int) -> Problem:
    """Return the problem at an index of a split, which is always the same.

    Raises:
        IndexError: the split has no further choice of numbers at this level.
    """
    level = LEVELS[difficulty]
    place = place_of(split, index)
    if place >= level.choices:
        raise IndexError(index)
    chosen = level.numbers(place)
    rng = random.Random(digest(f"countdown:{difficulty}:{place}"))
    rng.shuffle(chosen)
    while True:
        solution, target = _combine(rng, rng.sample(chosen, rng.randint(level.needs, len(chosen))))
        in_range = level.targets[0] <= target <= level.targets[1]
        if in_range and not reachable(chosen, target, level.needs - 1):
            return Problem(tuple(chosen), target, solution)


def reachable(numbers: Sequence[int], target: int, count: int) -> bool:
    """Return whether at most `count` (1 to 3) of the numbers, each used at most once, can reach the target."""
    if target in numbers:
        return True
    if count == 1:
        return False
    pairs = {(i, j): _values(numbers[i], numbers[j]) for i, j in combinations(range(len(numbers)), 2)}
    if any(target in values for values in pairs.values()):
        return True
    if count == 2:
        return False
    for third, number in enumerate(numbers):
        # The value of a pair reaches the target together with `number` exactly if it is one of these values.
        wanted = _values(target, number)
        if any(third not in pair and not wanted.isdisjoint(values) for pair, values in pairs.items()):
            return True
    return False


def _values(a: int, b: int) -> set[Value]:
    """Return what one operation makes of two positive numbers."""
    divisor = math.gcd(a, b)
    above, below = a // divisor, b // divisor
    quotient = above if below == 1 else (above, below)
    return {a + b, a - b, b - a, a * b, quotient, below if above == 1 else (below, above)}


def _multiset(rank: int, size: int) -> list[int]:
    """Return the multiset of positive whole numbers at a rank, by the combinatorial number system."""
    numbers = []
    for position in range(size, 0, -1):
        top = position - 1
        while math.comb(top + 1, position) <= rank:
            top += 1
        rank -= math.comb(top, position)
        numbers.append(top - position + 2)
    return numbers


def _combine(rng: random.Random, numbers: Sequence[int]) -> tuple[str, int]:
    """Join all numbers by random operations with positive whole results; return the expression and its value."""
    parts = [(str(number), number) for number in numbers]
    while len(parts) > 1:
        (left, a), (right, b) = sorted(
            (parts.pop(rng.randrange(len(parts))) for _ in range(2)), key=lambda part: -part[1]
        )
        operations = [("+", a + b), ("*", a * b)]
        if a > b:
            operations.append(("-", a - b))
        if a % b == 0:
            operations.append(("/", a // b))
        sign, value = rng.choice(operations)
        parts.append((f"({left} {sign} {right})" if parts else f"{left} {sign} {right}", value))
    return parts[0]
