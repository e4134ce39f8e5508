"""The examples of docs/rewards.md work as the page says."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.server import Environment
from ludus.server.rewards import lint_checklist
from ludus.server.tasks.loading import load_environment

EXAMPLES = Path(__file__).parent / "examples"
Host = Callable[[type[Environment[Any]]], Awaitable[Any]]
LETTER = "Your order is cancelled. Goodbye."


@pytest.mark.parametrize(
    ("calls", "answer", "total"),
    [
        ([("cancel", {"order": 1})], LETTER, 1.0),
        ([("cancel", {"order": 2})], LETTER, 0.0),
        ([], LETTER, 0.0),
        ([("cancel", {"order": 1}), ("refund", {"euros": 5.0})], LETTER, 0.2),
        ([("cancel", {"order": 1})], "Done.", 0.4),
        ([("cancel", {"order": 1})], LETTER.upper(), 0.3),
        ([("cancel", {"order": 1}), ("cancel", {"order": 1})], LETTER, 0.99),
    ],
)
async def test_the_bookshop_earns_what_the_page_says(playing: Host, calls: Any, answer: str, total: float) -> None:
    host = await playing(load_environment(f"{EXAMPLES / 'bookshop.py'}:Bookshop"))
    (episode,) = await host.start()
    for number, (tool, arguments) in enumerate(calls, start=1):
        await host.step(episode, number, tool, **arguments)
    result = await host.grade(episode, answer)
    assert result.info.reward.value == pytest.approx(total)
    assert result.reward.rubric == "bookshop@1"
    added = math.fsum(part.value * part.weight for part in result.reward.components.values())
    assert added == pytest.approx(result.reward.value)


async def test_the_letters_are_counted_judged_and_compared(
    playing: Host, served: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_URL", served.url)
    served.says(say.verdict(1, "kind words"))
    host = await playing(load_environment(f"{EXAMPLES / 'letters.py'}:Letters"))
    try:
        (episode,) = await host.start()
        reward = (await host.grade(episode, "Hi there, thanks a lot!")).reward
        assert (reward.value, reward.reason, reward.rubric) == (0.75, "2/3 met", "letters@2")
        assert reward.components["style/polite"].evidence == "judge-model-2026-01-01 gives 1: kind words"
    finally:
        await sys.modules["letters"].JUDGE.aclose()


def test_the_checklist_of_the_page_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    assert lint_checklist(EXAMPLES / "letters.toml") == []
