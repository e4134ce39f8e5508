"""Rules that find an answer in a prompt by its place, learned from training tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

PLACES: Final = 8
"""The places that are counted from the beginning and from the end of each kind of part."""

LEAST_SHARE: Final = 0.1
"""The share of training tasks on which a rule must find the answer, to be tried on tests."""

_PARTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("number", re.compile(r"-?\d+(?:[.,]\d+)*")),
    ("quoted text", re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|“([^”\n]+)”")),
    ("capitalized word", re.compile(r"\b[A-Z]\w+(?: [A-Z]\w+)*")),
    ("list item", re.compile(r"^[ \t]*(?:[-*•]|\(?\w{1,2}[.):])[ \t]+(.+)$", re.MULTILINE)),
    ("value after a colon", re.compile(r":[ \t]*([^\n:,;]+?)[ \t.]*(?:[\n,;]|$)")),
    ("line", re.compile(r"^[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)),
    ("word", re.compile(r"\b\w+\b")),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that finds an answer by its place among the parts of one kind."""

    part: str
    place: int
    """From 0, or from -1 at the end."""

    @property
    def description(self) -> str:
        """The rule in words, such as `number 2 of the prompt` or `the last line but 1 of the prompt`."""
        if self.place >= 0:
            return f"{self.part} {self.place + 1} of the prompt"
        return f"the last {self.part}" + (f" but {-self.place - 1}" if self.place < -1 else "") + " of the prompt"

    def apply(self, prompt: str) -> str | None:
        """Return what the rule finds; None if the prompt has too few parts."""
        parts = dict(_parts_of(prompt))[self.part]
        return parts[self.place] if -len(parts) <= self.place < len(parts) else None


def learn_rule(examples: Sequence[tuple[str, str]]) -> Rule | None:
    """Return the rule that finds most answers; None if none finds enough.

    Args:
        examples: the prompts of training tasks with the texts that solve them.
    """
    hits: Counter[Rule] = Counter()
    for prompt, message in examples:
        answer = without_label(message)
        for part, texts in _parts_of(prompt):
            for position in range(min(PLACES, len(texts))):
                for rule in (Rule(part, position), Rule(part, -position - 1)):
                    hits[rule] += texts[rule.place].strip().lower() == answer.strip().lower()
    best = hits.most_common(1)
    return best[0][0] if best and best[0][1] >= max(1, LEAST_SHARE * len(examples)) else None


def without_label(answer: str) -> str:
    """Return the last line of an answer without a label such as `Answer:`."""
    return re.sub(r"^\**[A-Za-z][\w ]{0,20}:\**\s*", "", answer.strip().rsplit("\n", 1)[-1])


def _parts_of(prompt: str) -> Iterator[tuple[str, list[str]]]:
    for part, pattern in _PARTS:
        yield part, [_text(match) for match in pattern.finditer(prompt)]


def _text(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group is not None), match[0])
