"""Splits that cannot overlap: a problem belongs to one split by what it is, whoever generates it.

Of ten problems eight are for training, one each for validation and test.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Final, Literal, TypeVar

ProblemT = TypeVar("ProblemT")
SplitName = Literal["train", "validation", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "validation", "test")


def digest(text: str) -> int:
    """A number in [0, 2**64) that is the same on every machine and Python."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(identity: str) -> SplitName:
    """The split that a problem's own hash names.

    Args:
        identity: what makes two problems the same, written as text.
    """
    bucket = digest(f"split:{identity}") % 10
    return "validation" if bucket == 8 else "test" if bucket == 9 else "train"


def place_of(split: SplitName, index: int) -> int:
    """The place of a split's problem where all problems stand in one row and every ten are dealt out alike."""
    if split == "train":
        return 10 * (index // 8) + index % 8
    return 10 * index + (8 if split == "validation" else 9)


def draw(
    split: SplitName,
    stream: str,
    make: Callable[[random.Random], ProblemT],
    identity: Callable[[ProblemT], str],
) -> ProblemT:
    """The first problem of a stream that belongs to a split.

    Args:
        split: where the problem must belong.
        stream: names the stream; the same name gives the same problem.
        make: draws one candidate.
        identity: what `split_of` reads.
    """
    rng = random.Random(digest(f"{stream}:{split}"))
    while True:
        problem = make(rng)
        if split_of(identity(problem)) == split:
            return problem
