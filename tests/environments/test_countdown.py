"""Countdown: its problems, and what its tools say and pay."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.countdown import Countdown, CountdownTask
from ludus.environments.countdown.expression import read_expression
from ludus.environments.countdown.generator import LEVELS, make_problem, reachable
from ludus.protocol import text_of
from ludus.server import Difficulty
from ludus.server.authoring.partition import SPLITS, place_of
from ludus.server.authoring.procedural import SECRET_VARIABLE

NAME = "countdown"
LEVELS_IN_TURN: tuple[Difficulty, ...] = ("easy", "medium", "hard")
GOLDEN = [
    ((87, 98, 66), 21, "87 - 66"),
    ((16, 2, 10, 75, 8, 100), 213, "(((16 + 2) * 10) + 8) + (100 - 75)"),
    ((2, 26, 36, 26), 14, "26 - ((36 + 2) - 26)"),
]
"""Test problem 7 of each level. A change of these raises the environment's version."""
each_difficulty = pytest.mark.parametrize("difficulty", sorted(LEVELS))


def every_value(numbers: tuple[Fraction, ...]) -> Iterator[Fraction]:
    """Whatever can be made of all the numbers, by brute force."""
    if len(numbers) == 1:
        yield numbers[0]
    for i, j in combinations(range(len(numbers)), 2):
        rest = tuple(n for k, n in enumerate(numbers) if k not in (i, j))
        a, b = numbers[i], numbers[j]
        joined = {a + b, a - b, b - a, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for value in joined:
            yield from every_value((value, *rest))


@given(st.lists(st.integers(1, 12), min_size=3, max_size=4), st.integers(1, 60), st.integers(1, 3))
def test_reachable_agrees_with_brute_force(numbers: list[int], target: int, count: int) -> None:
    chosen = [c for size in range(1, count + 1) for c in combinations(map(Fraction, numbers), size)]
    by_force = any(target in set(every_value(some)) for some in chosen)

    assert reachable(numbers, target, count) == by_force


@each_difficulty
def test_every_problem_keeps_its_levels_promise(difficulty: Difficulty) -> None:
    level = LEVELS[difficulty]
    for index in range(300):
        problem = make_problem("train", difficulty, index)
        solution = read_expression(problem.solution)

        assert len(problem.numbers) == level.small + level.large
        assert level.targets[0] <= problem.target <= level.targets[1]
        assert solution.value == problem.target
        assert not Counter(solution.numbers) - Counter(problem.numbers)
        assert len(solution.numbers) >= level.needs
        assert not reachable(problem.numbers, problem.target, level.needs - 1)


@each_difficulty
def test_no_two_places_have_the_same_numbers(difficulty: Difficulty) -> None:
    level = LEVELS[difficulty]
    places = range(min(level.choices, 60_000))

    assert len({tuple(sorted(level.numbers(place))) for place in places}) == len(places)


@each_difficulty
def test_a_level_ends_where_its_choices_of_numbers_end(difficulty: Difficulty) -> None:
    with pytest.raises(IndexError):
        make_problem("test", difficulty, LEVELS[difficulty].choices // 10)


@each_difficulty
def test_no_remainder_of_a_choice_of_numbers_shows_its_split(difficulty: Difficulty) -> None:
    """The choices are counted in the order of the combinatorial number system, as `Level.numbers` does."""
    level = LEVELS[difficulty]
    for split in SPLITS:
        ranks = set()
        for index in range(400):
            small = sorted(level.numbers(place_of(split, index))[: level.small])
            ranks.add(sum(math.comb(number + at - 1, at + 1) for at, number in enumerate(small)))
        assert {rank % 10 for rank in ranks} == set(range(10))


def test_the_problems_of_this_version_are_fixed() -> None:
    problems = [make_problem("test", level, 7) for level in sorted(LEVELS)]

    assert [(problem.numbers, problem.target, problem.solution) for problem in problems] == GOLDEN


async def opened(player: Any, index: int = 2) -> tuple[str, CountdownTask]:
    [episode] = await player.start(NAME, "train", index)
    return episode.episode, cast(CountdownTask, player.task(NAME, "train", index))


async def test_evaluate_returns_value_distance_and_what_is_left(player: Any) -> None:
    hard = (index for index in range(2, 300, 3) if len(set(player.task(NAME, "train", index).numbers)) == 6)
    episode, task = await opened(player, next(hard))
    first, second = task.numbers[:2]
    result = await player.step(episode, "evaluate", expression=f"{first} / {second}")

    assert f"The value is {Fraction(first, second)}:" in text_of(result.content)
    assert f"Numbers not used: {', '.join(map(str, task.numbers[2:]))}." in text_of(result.content)
    assert not result.ended
    assert result.reward is None


async def test_evaluate_recognizes_a_solution_and_leaves_the_episode_open(player: Any) -> None:
    episode, task = await opened(player)
    result = await player.step(episode, "evaluate", expression=task.solution)

    assert "exactly the target" in text_of(result.content)
    assert not result.ended


async def test_a_wrong_submission_ends_the_episode_without_reward(player: Any) -> None:
    episode, task = await opened(player)
    await player.step(episode, "evaluate", expression=f"{task.numbers[0]}")
    result = await player.step(episode, "submit", expression=f"{task.numbers[0]}")

    assert result.terminated
    assert result.reward.value == 0.0
    assert result.reward.components["tries"].value == 1.0
    assert 0.0 < result.reward.components["closeness"].value < 1.0


@pytest.mark.parametrize("tool", ["evaluate", "submit"])
async def test_breaking_the_rules_is_refused_and_ends_nothing(player: Any, tool: str) -> None:
    episode, task = await opened(player)
    number = task.numbers[0]
    too_often = " + ".join([str(number)] * (task.numbers.count(number) + 1))
    for expression, message in [(too_often, f"You use {number}"), ("98765", "not listed"), ("1 +", "breaks off")]:
        result = await player.step(episode, tool, expression=expression)
        assert result.error.code == "refused"
        assert message in result.error.message
        assert not result.ended
    won = await player.step(episode, "submit", expression=task.solution)
    assert won.reward.value == 1.0


async def test_a_number_may_be_used_as_often_as_it_is_listed(player: Any) -> None:
    tasks = ((index, player.task(NAME, "train", index)) for index in range(2, 3000, 3))
    index, task = next((i, t) for i, t in tasks if max(Counter(t.numbers).values()) == 2)
    twice = next(number for number, often in Counter(task.numbers).items() if often == 2)
    episode, _ = await opened(player, index)

    assert (await player.step(episode, "evaluate", expression=f"{twice} + {twice}")).error is None
    refused = await player.step(episode, "evaluate", expression=f"{twice} + {twice} + {twice}")
    assert f"You use {twice} 3 times, but it is listed 2 times" in refused.error.message


async def test_any_correct_expression_wins_not_only_the_known_one(player: Any) -> None:
    episode, task = await opened(player)
    result = await player.step(episode, "submit", expression=f"(({task.solution}))")

    assert result.reward.value == 1.0


def test_a_secret_draws_test_tasks_whose_numbers_are_in_no_public_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public = [Countdown.load_task("test", index, LEVELS_IN_TURN) for index in range(300)]
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this")
    fresh = [Countdown.load_task("test", index, LEVELS_IN_TURN) for index in range(300)]
    numbers = [{tuple(sorted(task.numbers)) for task in tasks} for tasks in (public, fresh)]
    assert numbers[0].isdisjoint(numbers[1])
    assert len(numbers[1]) == 300
    assert {task.id for task in fresh}.isdisjoint(task.id for task in public)
    assert not any("nobody" in task.id for task in fresh)
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert {Countdown.load_task("test", index, LEVELS_IN_TURN).id for index in range(300)}.isdisjoint(
        task.id for task in fresh
    )


def test_the_first_training_tasks_are_the_same_in_every_release() -> None:
    """Tasks may be made faster, but never become others; the hash is that of their rows."""
    rows = "".join(Countdown.load_task("train", index, LEVELS_IN_TURN).model_dump_json() for index in range(600))
    assert hashlib.sha256(rows.encode()).hexdigest()[:16] == "94569a14efdfbe3b"
