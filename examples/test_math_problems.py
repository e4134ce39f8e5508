"""Tests of `math_problems.py`. Run with `pytest examples/test_math_problems.py`."""

from __future__ import annotations

import re

import pytest
from math_problems import COUNTS, MathProblems, Problem

from ludus.server import Split
from ludus.testing import play


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("split", COUNTS)
def test_the_oracle_earns_the_best_reward(split: str) -> None:
    with play(MathProblems) as math:
        assert [math.oracle(index=index, split=split).reward for index in range(3)] == [1.0] * 3


def test_the_value_counts_and_not_its_form() -> None:
    problem = Problem(id="half", question=r"$\frac{1}{4} + \frac{1}{4}$", level=2, solution="1/2")

    class Halves(MathProblems):
        splits = {"train": [problem]}

    with play(Halves) as math:
        rewards = {
            r"\boxed{\frac{2}{4}}": 1.0, r"First \boxed{3}, then \boxed{0.5}.": 1.0, r"\boxed{1/3}": 0.0, "0.5": 0.0,
            math.start().prompt: 0.0, r"\boxed{\frac{1}{4} + \frac{1}{4}}": 0.0, "": 0.0,
        }  # fmt: skip
        for answer, reward in rewards.items():
            episode = math.start()
            episode.answer(answer)
            assert episode.components == {"correct": reward}, answer


@pytest.mark.suite("breadth")
def test_tasks_are_the_same_each_time_and_differ_between_splits() -> None:
    questions = {}
    for name, split in MathProblems.splits.items():
        assert isinstance(split, Split)
        questions[name] = {split.get(index).question for index in range(200)}
        assert split.get(5) == split.get(5)
        assert {split.get(index).level for index in range(3)} == {2, 3, 4}
    terms = {name: {tuple(sorted(re.findall(r"frac.*?}.*?}", one))) for one in own} for name, own in questions.items()}
    assert not terms["train"] & (terms["validation"] | terms["test"])
    assert not terms["validation"] & terms["test"]
