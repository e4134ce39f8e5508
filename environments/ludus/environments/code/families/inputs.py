"""Random inputs that several families share."""

from __future__ import annotations

import random
from typing import Final

WORDS: Final = (
    "apple bridge cloud delta ember falcon garden harbor island jacket kettle lemon meadow needle orbit pepper quartz "
    "river saddle timber umbra velvet window yellow zigzag moon level noon civic eye bee tree book letter coffee "
    "pizza summer hello abba banana Anna Otto Xenon Basic Idea a I at by to me of on it so up we"
).split()
NAMES: Final = ("ada", "ben", "cleo", "dan", "eva", "finn", "gia", "hugo", "ines", "jon", "kim", "leo")
CITIES: Final = ("Bern", "Cairo", "Delhi", "Lima", "Oslo", "Quito", "Rome", "Seoul")


def words(rng: random.Random, count: int, digits: float = 0.2) -> list[str]:
    """Return words, some of them with a digit, some repeated, some capitalized."""
    found = []
    for _ in range(count):
        word = rng.choice(WORDS)
        if rng.random() < digits:
            word += str(rng.randint(0, 99))
        if rng.random() < 0.15:
            word = word.swapcase()
        found.append(word)
    if count > 2 and rng.random() < 0.5:
        found[-1] = found[0].upper()
    return found


def integers(rng: random.Random, count: int, least: int = -9, most: int = 20) -> list[int]:
    """Return integers, some of them repeated."""
    found = [rng.randint(least, most) for _ in range(count)]
    if count > 3 and rng.random() < 0.5:
        found[rng.randrange(count)] = found[0]
    return found


def count_of(rng: random.Random, size: int) -> int:
    """Return a length for an input of a size: 0 small, 1 ordinary, 2 large."""
    return rng.randint(*((3, 5), (5, 11), (30, 60))[size])
