"""How a guess is marked, and what later guesses must keep in strict play."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

GREEN: Final = "G"
YELLOW: Final = "Y"
GREY: Final = "-"


def mark(guess: str, answer: str) -> str:
    """One of G, Y and - for each letter of the guess.

    A letter is green in its place. Of the others, as many are yellow, from the left, as the answer has that letter
    beyond the green ones.
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
    """The positions, from 0, that guesses and their marks have settled."""
    return {place for _, marks in history for place, sign in enumerate(marks) if sign == GREEN}


def present(history: Iterable[tuple[str, str]]) -> Counter[str]:
    """The letters known to be in the word, each as often as known."""
    known: Counter[str] = Counter()
    for guess, marks in history:
        known |= Counter(letter for letter, sign in zip(guess, marks, strict=True) if sign != GREY)
    return known


def broken_hint(guess: str, history: Sequence[tuple[str, str]]) -> str | None:
    """What the guess fails to keep of the hints so far, in words; None when it keeps all."""
    for place in range(len(guess)):
        for earlier, marks in history:
            if marks[place] == GREEN and guess[place] != earlier[place]:
                return f"letter {place + 1} must be {earlier[place].upper()}"
    missing = present(history) - Counter(guess)
    for letter in sorted(missing):
        need = present(history)[letter]
        return f"the word must contain {letter.upper()}" + (f" {need} times" if need > 1 else "")
    return None
