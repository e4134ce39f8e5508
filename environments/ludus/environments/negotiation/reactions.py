"""What a scripted opponent makes of messages: it answers questions, and notices when one of its needs is met.

Each opponent has two needs that cost the other side nothing, such as a receipt. They follow from the negotiation, and
no prompt has them: who asks learns one with each question, and who then says how to meet it is met with more
concessions. A message that names several needs at once, as one that lists all, meets none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ludus.server.authoring.dice import Dice
from ludus.server.authoring.partition import digest


class Need(NamedTuple):
    """Something that an opponent needs besides the deal."""

    text: str
    words: str
    """A regular expression of the words that name it."""


NEEDS: Final = (
    Need("a receipt", r"receipts?"),
    Need("a confirmation in writing", r"confirm\w*|in writing|written"),
    Need("discretion", r"discre\w+|confidential\w*"),
    Need("a good word to your friends", r"good word|recommend\w*"),
    Need("help with carrying", r"carry\w*"),
    Need("time to ask my family", r"family"),
    Need("insurance until it is settled", r"insur\w+"),
    Need("a photograph for my files", r"photo\w*"),
    Need("a single contact on your side", r"single contact|one contact|contact person"),
    Need("a meeting again next year", r"next year"),
    Need("labels on everything", r"labels?|labell?ed"),
    Need("lunch for my helpers", r"lunch"),
    Need("a key for the storage room", r"keys?"),
    Need("an introduction to your partner", r"introduc\w+"),
    Need("a copy of your records", r"cop(?:y|ies)|records?"),
    Need("a quiet handover in the evening", r"quiet\w*|evening"),
)
"""What opponents may need."""

MISSES: Final = 2
"""How many messages may name needs that are not its own before an opponent hears no more of them."""

_QUESTION: Final = re.compile(r"\?|\btell me\b|\bwhat (?:matters|is|do|would)\b|\bwhich\b", re.IGNORECASE)
_DENIED: Final = r"(?:\bnot|\bnever|n't|\bcannot)\s+(?:\w+\s+){0,3}"


@lru_cache(maxsize=512)
def needs_of(code: str, seat: int) -> tuple[Need, Need]:
    """Return the needs of a seat in the negotiation of a code."""
    dice = Dice(digest(f"negotiation:needs:{seat}:{code}"))
    first = dice.between(0, len(NEEDS) - 1)
    second = (first + dice.between(1, len(NEEDS) - 1)) % len(NEEDS)
    return NEEDS[first], NEEDS[second]


def meeting(need: Need) -> str:
    """Return a message that meets a need."""
    return f"You get {need.text}."


class Listener:
    """Follows what the other side says to an opponent.

    Args:
        interests: the issues that matter to it, those that matter most first.
        needs: what it needs.
    """

    def __init__(self, interests: Sequence[str], needs: Sequence[Need]) -> None:
        self._interests, self._needs = interests, needs
        self._met: set[Need] = set()
        self._misses = 0
        self._answers = 0
        self._answer_due = False
        self._remarks: list[str] = []

    @property
    def met(self) -> int:
        """How many of its needs are met."""
        return len(self._met)

    def listen(self, text: str) -> None:
        """Take note of a message of the other side."""
        self._answer_due = self._answer_due or _QUESTION.search(text) is not None
        named = {need for need in NEEDS if re.search(rf"\b(?:{need.words})\b", text, re.IGNORECASE)}
        if not named or self._misses == MISSES:
            return
        if named <= set(self._needs) and not any(
            re.search(rf"{_DENIED}(?:{need.words})\b", text, re.IGNORECASE) for need in named
        ):
            if not named <= self._met:
                self.remark("Good, that helps me.")
            self._met |= named
        else:
            self._misses += 1
            self.remark("That is not what I need.")

    def remark(self, text: str) -> None:
        """Say something in the next turn."""
        if text not in self._remarks:
            self._remarks.append(text)

    def reply(self) -> str:
        """Return what it says in its turn: its remarks, and the answer to a question; empty if it says nothing."""
        said, self._remarks = self._remarks, []
        if self._answer_due:
            said = [*said, *self._answer()]
        self._answer_due = False
        return " ".join(said)

    def _answer(self) -> list[str]:
        number, self._answers = self._answers, self._answers + 1
        if number >= len(self._needs):
            return ["You know what I need."]
        lead = ("What matters most to me", "After that, what matters to me")[number]
        interest = [f"{lead}: {self._interests[number]}."] if number < len(self._interests) else []
        return [*interest, f"I also need {self._needs[number].text}."]
