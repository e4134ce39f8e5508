"""The marks of a guess, and the hints that later guesses must keep in strict play."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

GREEN: Final = "G"
YELLOW: Final = "Y"
GREY: Final = "-"


def mark(guess: str, answer: str) -> str:
    """Return one of G, Y and - for each letter of the guess.

    A letter in its right place is green (G). Of its other occurrences in the guess, counted from the left, as many
    are yellow (Y) as the answer has occurrences that are not green.
    """
    spare = Counter(a for g, a in zip(guess, answer, strict=True) if g != a)
    marks = []
    for g, a in zip(guess, answer, strict=True):
        if g == a:
            marks.append(GREEN)
        elif spare[g] > 0:
            spare[g] -= 1
            marks.append(YELLOW)
        else:
            marks.append(GREY)
    return "".join(marks)


def greens(history: Iterable[tuple[str, str]]) -> set[int]:
    """Return the positions, from 0, whose letters the guesses and their marks have settled."""
    return {index for _, marks in history for index, sign in enumerate(marks) if sign == GREEN}


def present(history: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the letters that are known to be in the word, each with its known number of occurrences."""
    known: Counter[str] = Counter()
    for guess, marks in history:
        known |= Counter(letter for letter, sign in zip(guess, marks, strict=True) if sign != GREY)
    return known


def broken_hint(guess: str, history: Sequence[tuple[str, str]]) -> str | None:
    """Describe a hint that the guess does not keep; return None if it keeps all hints so far."""
    for place in range(len(guess)):
        for earlier, marks in history:
            if marks[place] == GREEN and guess[place] != earlier[place]:
                return f"letter {place + 1} must be {earlier[place].upper()}"
    missing = present(history) - Counter(guess)
    for letter in sorted(missing):
        need = present(history)[letter]
        return f"the word must contain {letter.upper()}" + (f" {need} times" if need > 1 else "")
    return None
