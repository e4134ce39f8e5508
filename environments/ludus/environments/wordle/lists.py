"""The word lists: plain text files next to this module, with one word per line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final

from ludus.server import Difficulty
from ludus.server.authoring.partition import SplitType, digest, split_of

ANSWER_FILES: Final[Mapping[Difficulty, str]] = {"easy": "common.txt", "medium": "familiar.txt", "hard": "rare.txt"}
"""The files of answers, by how common the words are."""
GUESS_FILE: Final = "guesses.txt"
"""The file of words that may be guessed and are never answers."""


@cache
def answers(difficulty: Difficulty) -> tuple[str, ...]:
    """Return all answers of a difficulty, in alphabetical order."""
    return _read(ANSWER_FILES[difficulty])


@cache
def allowed() -> frozenset[str]:
    """Return every word that may be guessed."""
    return frozenset(_read(GUESS_FILE)).union(*(answers(difficulty) for difficulty in ANSWER_FILES))


@cache
def answers_of(
    split: SplitType, difficulties: tuple[Difficulty, ...], secret: str = ""
) -> Sequence[tuple[str, Difficulty]]:
    """Return the answers of a split with their difficulties, in a fixed order that is independent of the words.

    Args:
        split: the split.
        difficulties: which difficulties to take.
        secret: what the order follows from; empty for the order that everybody can compute.
    """
    stream = f"wordle-order:{secret}:" if secret else "wordle-order:"
    found: list[tuple[str, Difficulty]] = [
        (word, difficulty)
        for difficulty in difficulties
        for word in answers(difficulty)
        if split_of(f"wordle:{word}") == split
    ]
    return sorted(found, key=lambda item: digest(f"{stream}{item[0]}"))


def _read(name: str) -> tuple[str, ...]:
    return tuple((resources.files("ludus.environments.wordle") / "words" / name).read_text(encoding="ascii").split())
