"""Guess a number: what is drawn, what is said, and what it pays."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from ludus.environments.guess_number import GuessNumber
from ludus.environments.guess_number.environment import LEVELS, GuessNumberTask
from ludus.protocol import EndReason, text_of
from ludus.server.authoring.procedural import SECRET_VARIABLE

NAME = "guess_number"


async def opened(player: Any, name: str = NAME, index: int = 2, seed: int = 0) -> tuple[str, Any, int]:
    """An episode, its task, and its number, read from a second episode of the same group."""
    first, second = await player.start(name, "train", index, seed=seed, count=2)
    results = await player.play(second.episode, player.oracle(name, "train", index))
    return first.episode, player.task(name, "train", index), results[-1].metadata["secret"]


def test_the_budget_is_what_halving_needs_and_the_levels_spare(load: Any) -> None:
    [cls] = [cls for cls in load() if cls.__name__ == "GuessNumber"]
    for index in range(3000):
        task = cls.splits["train"].get(index)
        size = task.high - task.low + 1
        level = LEVELS[task.difficulty]

        assert level.sizes[0] <= size <= level.sizes[1]
        assert task.guesses == math.floor(math.log2(size)) + 1 + level.spare


@pytest.mark.parametrize("name", ["guess_number", "guess_number-hard", "guess_number-tiny"])
async def test_halving_always_wins_in_time(player: Any, name: str) -> None:
    for seed in range(100):
        [episode] = await player.start(name, "train", 2, seed=seed)
        results = await player.play(episode.episode, player.oracle(name, "train", 2))
        assert "You win" in text_of(results[-1].content)
        assert len(results) <= player.task(name, "train", 2).guesses


async def test_seeds_spread_over_the_whole_range(player: Any) -> None:
    secrets = [(await opened(player, "guess_number-easy", index=0, seed=seed))[2] for seed in range(200)]
    task = player.task("guess_number-easy", "train", 0)

    assert min(secrets) <= task.low + 1
    assert max(secrets) >= task.high - 1


async def test_hints_point_to_the_number(player: Any) -> None:
    episode, task, secret = await opened(player)
    below, above = max(task.low, secret - 1), min(task.high, secret + 1)

    assert f"higher than {below}" in text_of((await player.step(episode, "guess", number=below)).content)
    assert f"lower than {above}" in text_of((await player.step(episode, "guess", number=above)).content)
    won = await player.step(episode, "guess", number=secret)
    assert won.terminated
    assert won.reward.value == 1.0


async def test_a_number_outside_the_range_costs_no_guess(player: Any) -> None:
    episode, task, secret = await opened(player)
    for number in (task.low - 1, task.high + 1, -(10**30)):
        refused = await player.step(episode, "guess", number=number)
        assert refused.error.code == "refused"
    wrong = await player.step(episode, "guess", number=task.low if secret != task.low else task.high)
    assert f"Guesses left: {task.guesses - 1}." in text_of(wrong.content)


async def test_using_up_the_guesses_loses_and_does_not_tell_the_number(player: Any) -> None:
    episode, task, secret = await opened(player)
    wrong = task.low if secret != task.low else task.high
    results = [await player.step(episode, "guess", number=wrong) for _ in range(task.guesses)]

    assert results[-1].end_reason is EndReason.COMPLETED
    assert "You lose" in text_of(results[-1].content)
    assert not any(str(secret) in text_of(result.content).split() for result in results)
    total, _ = await player.rewards(episode)
    assert total.value == 0.0
    assert total.components["guesses"].value == task.guesses


async def test_a_guess_that_hints_rule_out_is_counted(player: Any) -> None:
    episode, task, secret = await opened(player, index=2, seed=1)
    wrong = task.low if secret != task.low else task.high
    await player.step(episode, "guess", number=wrong)
    again = await player.step(episode, "guess", number=wrong)

    assert again.reward.components["impossible"].value == 1.0
    assert again.reward.components["progress"].value == 0.0


async def test_shaped_rewards_grow_with_what_is_known_and_add_up_to_one(player: Any) -> None:
    for seed in range(50):
        [episode] = await player.start("guess_number-shaped", "train", 2, seed=seed)
        await player.play(episode.episode, player.oracle("guess_number-shaped", "train", 2))
        total, steps = await player.rewards(episode.episode)

        assert total.value == 1.0
        assert all(reward.value > 0 for reward in steps)


async def test_shaped_rewards_of_a_lost_game_stay_below_the_shaping(player: Any) -> None:
    episode, task, secret = await opened(player, "guess_number-shaped")
    near = [n for n in (secret - 1, secret + 1) if task.low <= n <= task.high]
    for turn in range(task.guesses):
        await player.step(episode, "guess", number=near[turn % len(near)])
    total, _ = await player.rewards(episode)

    assert 0.0 < total.value <= 0.25


async def test_guessing_at_random_within_the_hints_seldom_wins_hard_tasks(player: Any) -> None:
    rng = random.Random(2)
    wins = 0
    for index in range(100):
        [episode] = await player.start("guess_number-hard", "train", index, seed=index)
        task = player.task("guess_number-hard", "train", index)
        low, high = task.low, task.high
        while True:
            number = rng.randint(low, high)
            result = await player.step(episode.episode, "guess", number=number)
            if result.ended:
                break
            low, high = (number + 1, high) if "higher" in text_of(result.content) else (low, number - 1)
        wins += "You win" in text_of(result.content)
    assert wins <= 30


def test_no_tiny_range_is_in_two_splits_and_all_are_in_one(load: Any) -> None:
    [cls] = [cls for cls in load() if cls.__name__ == "GuessNumber"]
    splits = cls.splits_of(cls.variants["tiny"]["difficulties"])
    ranges = {
        name: {(task.low, task.high) for task in map(split.get, range(split.count))} for name, split in splits.items()
    }

    assert all(len(ranges[name]) == split.count for name, split in splits.items())
    assert sum(map(len, ranges.values())) == len(set().union(*ranges.values())) == 360
    assert all(low // 10 == high // 10 and high - low == 6 for own in ranges.values() for low, high in own)


def test_a_secret_draws_other_ranges_for_test_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> tuple[Sequence[GuessNumberTask], Sequence[GuessNumberTask]]:
        wide = GuessNumber.load_tasks("test")
        return wide, GuessNumber.load_tasks("test", ["tiny"])

    def ranges(tasks: Sequence[GuessNumberTask]) -> set[tuple[int, int]]:
        return {(task.low, task.high) for task in tasks}

    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public, public_tiny = drawn()
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this")
    fresh, fresh_tiny = drawn()
    assert len(ranges(fresh)) == 300
    assert len(ranges(fresh) & ranges(public)) <= 3
    assert ranges(fresh_tiny) == ranges(public_tiny)
    assert [task.low for task in fresh_tiny] != [task.low for task in public_tiny]
    assert {task.id for task in (*fresh, *fresh_tiny)}.isdisjoint(task.id for task in (*public, *public_tiny))
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert drawn()[0] != fresh
