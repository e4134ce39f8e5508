"""Splits that cannot overlap: the content of a problem determines its split.

Of ten problems, eight are for training, and one each is for validation and test.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Final, TypeVar

from ludus.protocol.episodes import SplitType

__all__ = ["SPLITS", "SplitType", "digest", "draw_in_split", "place_of", "scattered", "split_of"]

ProblemT = TypeVar("ProblemT")
SPLITS: Final[tuple[SplitType, ...]] = ("train", "validation", "test")
"""The splits of environments with procedural tasks."""


def digest(text: str) -> int:
    """Return a hash in [0, 2**64) that is the same on every machine and in every Python version."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(identity: str) -> SplitType:
    """Return the split of a problem, which follows from the hash of its identity.

    Args:
        identity: a text that is equal for two problems exactly if they are the same.
    """
    bucket = digest(f"split:{identity}") % 10
    return "validation" if bucket == 8 else "test" if bucket == 9 else "train"


def place_of(split: SplitType, index: int) -> int:
    """Return the place of a split's problem in the sequence of all problems.

    Of every ten consecutive places, eight belong to training, then one to validation and one to test.
    """
    if split == "train":
        return 10 * (index // 8) + index % 8
    return 10 * index + (8 if split == "validation" else 9)


def scattered(place: int, count: int) -> int:
    """Return the number at a place of a sequence that holds each number below `count` once, without a pattern.

    `place_of` gives every tenth place to validation. If the numbers at those places had a pattern, such as equal last
    digits, training would never show what validation asks for. So a Feistel network of four rounds permutes the places:
    each round swaps the halves of the bits and mixes one into the other, which can be undone, so no number comes twice.
    A result that is not below `count` is permuted again, until one is.

    Args:
        place: the place, from 0 and below `count`.
        count: how many numbers there are.
    """
    bits = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << bits) - 1
    while True:
        left, right = place >> bits, place & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (_mixed(right + (number << 32)) & mask)
        place = left << bits | right
        if place < count:
            return place


_ROUNDS: Final = 4
_WORD: Final = (1 << 64) - 1


def _mixed(number: int) -> int:
    """Return 32 bits that depend on each bit of a number (the finalizer of SplitMix64, Steele et al. 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _WORD
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _WORD
    return (number ^ (number >> 31)) >> 32


def draw_in_split(
    split: SplitType,
    stream: str,
    make: Callable[[random.Random], ProblemT],
    identity: Callable[[ProblemT], str],
) -> ProblemT:
    """Return the first problem of a random stream that belongs to a split.

    Args:
        split: the split to which the problem must belong.
        stream: the name of the stream; the same name gives the same problem.
        make: draws one candidate.
        identity: returns the identity of a candidate for `split_of`.
    """
    rng = random.Random(digest(f"{stream}:{split}"))
    while True:
        problem = make(rng)
        if split_of(identity(problem)) == split:
            return problem
