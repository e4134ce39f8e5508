"""A checklist with judged items, and a tournament between the letters of one group."""

from __future__ import annotations

import os
from pathlib import Path

from ludus.server import (
    Attempt,
    Budget,
    Endpoint,
    Environment,
    PairwiseJudge,
    Panel,
    Price,
    Task,
    Tournament,
    judged_by,
    load_checklist,
)

JUDGE = Endpoint(
    "judge-model-2026-01-01",
    os.environ.get("JUDGE_URL", "https://api.example.com/v1"),
    price=Price(input=0.2, output=0.8),
    budget=Budget(usd=25.0),
)


def at_most_words(attempt: Attempt, words: int) -> bool:
    """Whether the letter is short enough."""
    return len(attempt.answer.split()) <= words


class Letters(Environment[Task]):
    """Write a letter."""

    splits = {"train": [Task(id="thanks"), Task(id="sorry")]}
    rubric = load_checklist(
        Path(__file__).with_name("letters.toml"), functions={"letters:at_most_words": at_most_words},
        judge=judged_by(Panel([JUDGE], least_agreement=0.5)),
    )  # fmt: skip
    group_rubric = Tournament(PairwiseJudge("Which letter would you rather get?", JUDGE), by="bradley_terry")

    def prompt(self) -> str:
        """What to write."""
        return f"Write a letter that says {self.task.id}."
