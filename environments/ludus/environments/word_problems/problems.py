"""Compose problems: chains of pieces, with sentences in between that do not matter.

The numbers of a problem, without those of the sentences that do not matter and in any order, belong to one split. So a
test problem is never a training problem about other people and things.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from ludus.environments.word_problems.distractors import DISTRACTORS, Distractor
from ludus.environments.word_problems.sources import SOURCES
from ludus.environments.word_problems.story import Flow, Piece, Story
from ludus.environments.word_problems.transforms import TRANSFORMS
from ludus.server import Difficulty
from ludus.server.authoring.partition import SplitType, digest, split_of


@dataclass(frozen=True, slots=True)
class Level:
    """The parameters of a difficulty."""

    steps: tuple[int, int]
    """The fewest and the most computations."""
    distractors: tuple[int, int]
    """The fewest and the most sentences that do not matter."""
    mixed: bool
    """Whether quantities may be given in other units than the ones next to them."""
    pieces: tuple[int, int]
    """The fewest and the most pieces."""


LEVELS: Final[Mapping[Difficulty, Level]] = {
    "easy": Level(steps=(2, 4), distractors=(0, 0), mixed=False, pieces=(1, 2)),
    "medium": Level(steps=(4, 6), distractors=(1, 1), mixed=False, pieces=(2, 3)),
    "hard": Level(steps=(6, 8), distractors=(2, 3), mixed=True, pieces=(2, 5)),
}

_CHAINS: Final = 3
"""How many chains are drawn from one generator of random numbers, which costs more to make than most of them."""

_TRIES: Final = 4
"""How often a piece is drawn for a quantity before the story begins again."""

_MOST: Final = 10**8
"""The greatest value of a quantity, in its smallest unit."""

_LEAST: Final = 13
"""The least whole answer: smaller ones would be guessed too often."""

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_SOURCES: Final = tuple(SOURCES.values())


class Problem(NamedTuple):
    """A problem in words.

    Attributes:
        question: the text.
        answer: the exact answer.
        unit: what the answer is a number of.
        steps: how many computations it takes.
        families: the names of its pieces.
        parts: the sentences of each piece, then the question that is asked.
        values: the value that follows from each piece, in the smallest unit of its kind.
        distractors: the sentences that do not matter.
    """

    question: str
    answer: Fraction
    unit: str
    steps: int
    families: tuple[str, ...]
    parts: tuple[str, ...]
    values: tuple[int | Fraction, ...]
    distractors: tuple[str, ...]

    @property
    def identity(self) -> str:
        """A text that is equal for all problems with the same numbers."""
        return identity_of(_NUMBER.findall(" ".join(self.parts)))


class Chain(NamedTuple):
    """The pieces of a problem, and the names of their families."""

    families: tuple[str, ...]
    pieces: tuple[Piece, ...]
    steps: int


def draw_problem(stream: str, split: SplitType, difficulty: Difficulty) -> Problem:
    """Return the first problem of a stream that belongs to a split and that no simple guess solves."""
    attempt = 0
    level = LEVELS[difficulty]
    while True:
        story = Story(digest(f"{stream}:{attempt}"), mixed=level.mixed)
        for _ in range(_CHAINS):
            chain = compose(story, level)
            if chain is not None and (problem := _tell(story, level, chain, split)) is not None:
                return problem
        attempt += 1


def compose(story: Story, level: Level) -> Chain | None:
    """Compose the pieces of a problem; None if those drawn do not make one of the level."""
    low, high = level.steps
    fewest, most = level.pieces
    source = story.pick(_SOURCES)
    piece = source(story)
    families, pieces = [source.__name__], [piece]
    steps, wanted = piece.steps, story.between(low, high)
    while steps < wanted and len(pieces) < most:
        found = _go_on(story, piece.flow, families, high - steps)
        if found is None:
            break
        piece = found
        pieces.append(piece)
        steps += piece.steps
    if not low <= steps <= high or len(pieces) < fewest:
        return None
    return Chain(tuple(families), tuple(pieces), steps)


def _go_on(story: Story, flow: Flow, families: list[str], most: int) -> Piece | None:
    choices = TRANSFORMS[flow.kind]
    if not choices:
        return None
    for _ in range(_TRIES):
        make = story.pick(choices)
        if make.__name__ in families:
            continue
        piece = make(story, flow)
        if piece is not None and piece.steps <= most and 0 < piece.flow.value <= _MOST:
            families.append(make.__name__)
            return piece
    return None


def _tell(story: Story, level: Level, chain: Chain, split: SplitType) -> Problem | None:
    """Put the sentences together, with those that do not matter before, between and after the pieces.

    Returns:
        None if the problem belongs to another split, or a guess solves it.
    """
    sentences = [piece.text for piece in chain.pieces]
    last = chain.pieces[-1]
    answer = last.flow.answer
    numbers = _NUMBER.findall(" ".join(sentences))
    numbers += _NUMBER.findall(last.ask)
    whole = answer.denominator == 1
    if whole and answer.numerator < _LEAST or split_of(identity_of(numbers)) != split:
        return None
    parts = (*sentences, last.ask)
    distractors = tuple([make(story) for make in _some(story, story.between(*level.distractors))])
    for distractor in distractors:
        sentences.insert(story.between(0, len(sentences)), distractor)
    sentences.append(last.ask)
    if guessable(answer, numbers, _NUMBER.findall(" ".join(distractors))):
        return None
    values = tuple([piece.flow.value for piece in chain.pieces])
    text = " ".join(sentences)
    return Problem(text, answer, last.flow.noun, chain.steps, chain.families, parts, values, distractors)


def _some(story: Story, count: int) -> list[Distractor]:
    first = story.between(0, len(DISTRACTORS) - 1)
    stride = story.between(1, len(DISTRACTORS) // 4)
    return [DISTRACTORS[(first + place * stride) % len(DISTRACTORS)] for place in range(count)]


def identity_of(numbers: Sequence[str]) -> str:
    """Return the identity of a problem with these numbers."""
    return f"word_problems:{' '.join(sorted(numbers))}"


def guessable(answer: Fraction, numbers: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether an answer is a number of a text, a sum of all, or one operation on two of them.

    Args:
        answer: the answer.
        numbers: the numbers that matter, as they are written, with up to three decimals.
        others: the numbers of the distractors.
    """
    # In thousandths, all numbers are whole.
    counted = [int(one) * 1000 if one.isdecimal() else round(float(one) * 1000) for one in (*numbers, *others)]
    there = set(counted)
    above, below = answer.as_integer_ratio()
    value, rest = divmod(above * 1000, below)
    if not rest:
        if value in there or value == sum(counted) or value == sum(counted[: len(numbers)]):
            return True
        for one in counted:
            if value - one in there or value + one in there:
                return True
    squared = above * 1_000_000
    for one in counted:
        quotient, rest = divmod(above * one, below)
        if not rest and quotient in there:
            return True
        if one:
            product, rest = divmod(squared, below * one)
            if not rest and product in there:
                return True
    return False
