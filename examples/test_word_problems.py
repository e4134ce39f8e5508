"""Tests of `word_problems.py`. Run with `pytest examples/test_word_problems.py`."""

from __future__ import annotations

import re

import pytest
from word_problems import COUNTS, Problem, WordProblems, make_problem

from ludus.testing import play


@pytest.mark.parametrize("split", COUNTS)
def test_the_oracle_earns_the_best_reward(split: str) -> None:
    with play(WordProblems) as environment:
        assert [environment.oracle(index=index, split=split).reward for index in range(4)] == [1.0] * 4


def test_only_a_message_that_is_the_number_earns_anything() -> None:
    class Ten(WordProblems):
        splits = {"train": [Problem(id="ten", question="How many cards does Ben have?", level=2, solution="10")]}

    with play(Ten) as environment:
        rewards = {"10": 1.0, " 10.\n": 1.0, "11": 0.0, "10 cards": 0.0, "7 or 10": 0.0, "7 + 3": 0.0, "": 0.0}
        for answer, reward in rewards.items():
            episode = environment.start()
            episode.answer(answer)
            assert episode.components == {"correct": reward}, answer


@pytest.mark.suite("breadth")
def test_the_solution_is_what_the_text_says() -> None:
    for problem in (make_problem("train", index) for index in range(400)):
        asked = re.search(r"How many (\w+) does (\w+) have", problem.question)
        assert asked is not None
        what, who = asked.groups()
        assert re.findall(rf"{who} has [^.]*?\b(\d+) {what}", problem.question) == [problem.solution]
        numbers = re.findall(r"\d+", problem.question)
        assert len(set(numbers)) == len(numbers) == 2 * problem.level


@pytest.mark.suite("breadth")
def test_the_same_numbers_are_never_in_two_splits() -> None:
    numbers = {
        split: {tuple(sorted(re.findall(r"\d+", make_problem(split, index).question))) for index in range(count)}
        for split, count in COUNTS.items()
    }
    assert not numbers["train"] & numbers["test"]
    assert not numbers["train"] & numbers["validation"]
    assert not numbers["validation"] & numbers["test"]
