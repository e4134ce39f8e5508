"""Other right ways to do the work: the oracle's calls with its texts and its answer in other words and layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final

from ludus.environments.workplace.exploits import Policy, play
from ludus.environments.workplace.goals import Delete, Facts, Goal, Step

_TEXTS: Final = ("body", "note", "description")
"""The parameters that take free texts."""
_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_AMOUNT: Final = re.compile(r"(?<![\w.+-])\d{4,6}(?![\w-]|\.\d)(?! \d)")
_CLOCK: Final = re.compile(r"(?<=at )(\d\d):(\d\d)\b")

Rewrite = Callable[[str, Sequence[str]], str]
"""Returns a text in other words, given the text and the facts that it states."""


def policies(goal: Goal) -> Mapping[str, Policy]:
    """Return the policies by what is different in them."""
    plain, bold = f"Answer: {goal.answer}", f"Everything is finished.\n\n**Answer: {goal.answer}**"
    rewrites: dict[str, Rewrite] = {
        "texts as numbered lists": lambda text, facts: f"1. {text}\n2. Please tell me if anything is missing.",
        "texts as letters": lambda text, facts: (
            f"Hello,\n\n{text}\n\nI answer questions within 24 hours, today until 17:00.\n\nBest regards,\n"
            f"{goal.me.name}"
        ),
        "texts as bullets": lambda text, facts: "\n".join(["As requested:", *(f"- **{fact}**" for fact in facts)]),
        "texts as tables": lambda text, facts: "\n".join(
            ["| No. | Detail |", "|---|---|", *(f"| {index} | {fact} |" for index, fact in enumerate(facts, 1))]
        ),
        "dates, times and amounts written out": lambda text, facts: written_out(text),
    }
    found = {name: rewritten(goal, rewrite) for name, rewrite in rewrites.items()}
    plays = {name: play(steps, plain) for name, steps in found.items() if steps != list(goal.steps)}
    return {**plays, "the answer in Markdown": play(goal.steps, bold)}


def rewritten(goal: Goal, rewrite: Rewrite) -> list[Step]:
    """Return the oracle's calls with other texts where the goal counts facts."""
    wanted = [
        want.needs for change in goal.changes if not isinstance(change, Delete) for want in change.wants.values()
        if isinstance(want, Facts)
    ]  # fmt: skip
    steps = []
    for step in goal.steps:
        texts = {
            name: rewrite(text, facts) for name, text in step.arguments.items()
            if name in _TEXTS and step.tool != "hr_claim_expense" and (facts := _stated(text, wanted))
        }  # fmt: skip
        steps.append(Step(step.tool, {**step.arguments, **texts}, step.shows))
    return steps


def _stated(text: str, wanted: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the wanted facts that a text states, if it states all of one text."""
    plain = text.casefold()
    return next((needs for needs in wanted if all(need.casefold() in plain for need in needs)), ())


def written_out(text: str) -> str:
    """Return a text with dates such as March 9, 2026, times such as 2:30 pm, and amounts such as 12,500."""
    text = _DATE.sub(lambda hit: f"{date.fromisoformat(hit[0]):%B %-d, %Y}", text)
    text = _CLOCK.sub(lambda hit: f"{(int(hit[1]) - 1) % 12 + 1}:{hit[2]} {'pm' if int(hit[1]) > 11 else 'am'}", text)
    return _AMOUNT.sub(lambda hit: hit[0] if _is_year(text, hit) else f"{int(hit[0]):,}", text)


def _is_year(text: str, hit: re.Match[str]) -> bool:
    return len(hit[0]) == 4 and text[: hit.start()].endswith(", ")
