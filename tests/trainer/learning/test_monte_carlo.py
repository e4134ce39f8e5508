"""Monte-Carlo credit: values of states from continuations, and the advantages of turns, by hand."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ludus.protocol.episodes import TaskRow
from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, Sample, TrainBatch
from ludus.trainer.learning.advantages import monte_carlo_advantages
from ludus.trainer.learning.batch import informative, make_batch, split_minibatches

TRAJECTORY = Trajectory(
    environment="e", split="train", task=TaskRow(id="t", split="train", index=0, fields={}), policy="p",
    started_at=0.0, seconds=0.0,
)  # fmt: skip


def tokens(first: int, turns: int) -> Sample:
    """One token of prompt and two sampled ones for each turn; turns before `first` are those of another rollout."""
    of_turn = [turn for number in range(turns) for turn in (-1, *[number if number >= first else -1] * 2)]
    own = [turn >= 0 for turn in of_turn]
    return Sample(
        tuple(range(len(own))), tuple(own), tuple(-1.0 if mine else 0.0 for mine in own),
        tuple(0 if mine else -1 for mine in own), tuple(of_turn),
    )  # fmt: skip


def played(*rewards: float, continuations: Mapping[int, Sequence[Rollout]] | None = None, first: int = 0) -> Rollout:
    found = {turn: tuple(many) for turn, many in (continuations or {}).items()}
    samples, total = (tokens(first, len(rewards)),), math.fsum(rewards)
    return Rollout(RolloutStatus.COMPLETED, samples, total, rewards, TRAJECTORY, continuations=found)


def failed() -> Rollout:
    return Rollout(RolloutStatus.FAILED, (), None, (), TRAJECTORY)


def configuration(rollouts: dict[str, Any] | None = None, **advantages: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "output": "run", "model": {"path": "m"}, "environments": [{"url": "http://e"}],
            "advantages": {"credit": "monte_carlo", **advantages}, "rollouts": rollouts or {},
        }
    )  # fmt: skip


def group(*rollouts: Rollout) -> RolloutGroup:
    return RolloutGroup(0, "e", "t", rollouts, 0)


def by_turn(batch: TrainBatch, sequence: int) -> Any:
    """The advantage of each turn of an episode, and whether its tokens count in the loss."""
    found: dict[int, set[tuple[float, bool]]] = {}
    for item in batch.samples:
        if item.sequence == sequence:
            for turn, advantage, weight in zip(item.sample.turns, item.advantages, item.weights, strict=True):
                found.setdefault(turn, set()).add((advantage, weight > 0))
    assert found.pop(-1) == {(0.0, False)}
    return {turn: values.pop() for turn, values in found.items() if len(values) == 1}


def test_advantages_of_vine_ppo_by_hand() -> None:
    rewards = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    values = {0: 0.25, 1: 0.75, 2: 0.5}
    expected = [0.0 + 0.75 - 0.25, 0.5 + 0.5 - 0.75, 1.0 + 0.0 - 0.5]
    assert monte_carlo_advantages(rewards, values, 1.0).tolist() == pytest.approx(expected)
    expected = [0.0 + 0.5 * 0.75 - 0.25, 0.5 + 0.5 * 0.5 - 0.75, 1.0 - 0.5]
    assert monte_carlo_advantages(rewards, values, 0.5).tolist() == pytest.approx(expected)


def test_advantages_sum_to_the_return_minus_the_value_of_the_start() -> None:
    rewards = torch.tensor([0.25, 0.0, 0.5, 1.0], dtype=torch.float64)
    for values in ({0: 0.3, 1: 0.9, 2: -0.4, 3: 0.1}, {0: 0.3}):
        advantages = monte_carlo_advantages(rewards, values, 1.0)
        share = advantages.sum() if len(values) == 4 else advantages[0]
        assert share == pytest.approx(1.75 - 0.3)


def test_turns_between_two_valued_states_share_one_advantage() -> None:
    rewards = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    found = monte_carlo_advantages(rewards, {0: 5.0, 2: 3.0}, 0.5).tolist()
    first, second = 1.0 + 0.5 * 2.0 + 0.25 * 3.0 - 5.0, 4.0 + 0.5 * 8.0 - 3.0
    assert found == pytest.approx([first, first, second, second])


def test_turns_next_to_an_unknown_value_have_no_advantage() -> None:
    rewards = torch.tensor([1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = monte_carlo_advantages(rewards, {0: 2.0, 1: 3.0, 2: math.nan, 3: 0.5}, 1.0).tolist()
    assert found[0] == pytest.approx(2.0)
    assert math.isnan(found[1])
    assert math.isnan(found[2])
    assert found[3] == pytest.approx(0.5)


def test_a_state_is_worth_the_mean_return_of_its_continuations_and_the_start_that_of_the_other_episodes() -> None:
    lucky = played(0.0, 1.0, continuations={1: [played(0.0, 0.0, first=1), played(0.0, 0.5, first=1)]})
    longer = played(0.0, 0.0, 0.0, continuations={1: [played(0.0, 0.0, 1.0, first=1)], 2: [played(0.0, 0.0, 0.25)]})
    other = played(0.5)
    batch = make_batch([group(lucky, longer, other)], configuration())
    # V(start) of each: the mean of the two others. V(s1) of the first: (0 + 0.5) / 2.
    assert by_turn(batch, 0) == {0: (pytest.approx(0.25 - 0.25), True), 1: (pytest.approx(1.0 - 0.25), True)}
    assert by_turn(batch, 1) == {
        0: (pytest.approx(1.0 - 0.75), True), 1: (pytest.approx(0.25 - 1.0), True), 2: (pytest.approx(-0.25), True),
    }  # fmt: skip
    assert by_turn(batch, 2) == {0: (pytest.approx(0.5 - 0.5), True)}
    assert batch.unvalued == 0
    assert math.fsum(weight for item in batch.samples for weight in item.weights) == pytest.approx(1.0)


def test_rewards_of_shared_turns_are_no_part_of_a_continuations_return() -> None:
    one = played(7.0, 0.0, continuations={1: [played(7.0, 1.0, first=1), played(7.0, 3.0, first=1)]})
    batch = make_batch([group(one, played(0.0))], configuration())
    assert by_turn(batch, 0) == {0: (pytest.approx(7.0 + 2.0 - 0.0), True), 1: (pytest.approx(-2.0), True)}


def test_failed_continuations_leave_no_value_and_no_gradient_and_are_counted() -> None:
    partly = played(0.0, 1.0, continuations={1: [failed(), played(0.0, 0.5, first=1)]})
    wholly = played(0.0, 0.0, 1.0, continuations={1: [failed(), failed()], 2: [played(0.0, 0.0, 0.5, first=2)]})
    batch = make_batch([group(partly, wholly)], configuration())
    assert by_turn(batch, 0) == {0: (pytest.approx(0.5 - 1.0), True), 1: (pytest.approx(0.5), True)}
    assert by_turn(batch, 1) == {0: (0.0, False), 1: (0.0, False), 2: (pytest.approx(0.5), True)}
    assert batch.unvalued == 2
    for aggregation in ("token", "sequence"):
        config = configuration().model_copy(
            update={"loss": configuration().loss.model_copy(update={"aggregation": aggregation})}
        )
        total = math.fsum(w for item in make_batch([group(partly, wholly)], config).samples for w in item.weights)
        assert total == pytest.approx(1.0)


def test_whitening_leaves_turns_without_a_value_out() -> None:
    episodes = [
        played(0.0, 1.0, continuations={1: [failed()]}),
        played(0.0, 1.0, continuations={1: [played(0.0, 0.5)]}),
        played(0.0),
    ]
    batch = make_batch([group(*episodes)], configuration(scale="batch"))
    values = [a for item in batch.samples for a, w in zip(item.advantages, item.weights, strict=True) if w]
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-9)
    assert batch.unvalued == 2


def test_continuations_are_learned_from_only_if_wanted_and_only_in_their_own_tokens() -> None:
    good, bad = played(0.0, 1.0, first=1), played(0.0, 0.0, first=1)
    both = group(played(0.0, 1.0, continuations={1: [good, bad, failed()], 2: [good]}), played(0.0))
    assert len(make_batch([both], configuration()).samples) == 2
    config = configuration(monte_carlo={"train": True})
    batch = make_batch([both], config)
    assert [item.sequence for item in batch.samples] == [0, 1, 2, 3]
    assert by_turn(batch, 2) == {1: (pytest.approx(0.5), True)}
    assert by_turn(batch, 3) == {1: (pytest.approx(-0.5), True)}
    config = config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"minibatches": 2})})
    second = group(played(1.0), played(0.0))
    parts = split_minibatches(make_batch([both, second], config), config)
    assert [[item.sequence for item in part.samples] for part in parts] == [[0, 1, 2, 3], [4, 5]]


def test_a_group_of_equal_returns_teaches_something_if_a_turn_changed_the_value() -> None:
    equal = [played(0.0, 1.0, continuations={1: [played(0.0, 0.0)]}), played(0.0, 1.0)]
    assert informative(group(*equal), configuration())
    assert not informative(group(played(1.0), played(1.0)), configuration())


@pytest.mark.parametrize(
    ("rollouts", "advantages", "problem"),
    [
        ({}, {"scale": "group"}, "compares whole episodes"),
        ({"concurrency": 1}, {}, "at least 2"),
        ({"harness": "command agent"}, {}, "own loop and not for a harness"),
        ({}, {"monte_carlo": {"continuations": 0}}, "greater than or equal to 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    rollouts: dict[str, Any], advantages: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        configuration(rollouts, **advantages)


@pytest.mark.suite("training")
def test_the_expected_gradient_is_that_of_the_expected_reward() -> None:
    """Two turns with two actions each: small enough for the exact gradient with respect to each logit."""
    rng = random.Random(0)
    first, second = 0.3, {0: 0.6, 1: 0.8}  # the probability of action 1, in the second turn by the action before
    reward = {(0, 0): 0.2, (0, 1): 1.0, (1, 0): 0.0, (1, 1): 0.7}

    def choose(chance: float) -> int:
        return int(rng.random() < chance)

    def of_logit(action: int, chance: float) -> float:
        return 1 - chance if action else -chance

    gradients: dict[str, list[float]] = {"first": [], "second after 0": [], "second after 1": []}
    for _ in range(2000):
        actions = [(a, choose(second[a])) for a in (choose(first) for _ in range(4))]
        episodes = [
            played(
                0.0, reward[pair], continuations={1: [played(0.0, reward[pair[0], choose(second[pair[0]])], first=1)]}
            )
            for pair in actions
        ]
        found = dict.fromkeys(gradients, 0.0)
        for item in make_batch([group(*episodes)], configuration()).samples:
            a, b = actions[item.sequence]
            advantage = dict(zip(item.sample.turns, item.advantages, strict=True))
            found["first"] += advantage[0] * of_logit(a, first) / 4
            found[f"second after {a}"] += advantage[1] * of_logit(b, second[a]) / 4
        for name, value in found.items():
            gradients[name].append(value)
    worth = {a: second[a] * reward[a, 1] + (1 - second[a]) * reward[a, 0] for a in (0, 1)}
    exact = {"first": first * (1 - first) * (worth[1] - worth[0])}
    for a, chance in ((0, 1 - first), (1, first)):
        exact[f"second after {a}"] = chance * second[a] * (1 - second[a]) * (reward[a, 1] - reward[a, 0])
    for name, values in gradients.items():
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert abs(statistics.fmean(values) - exact[name]) < 3 * error, name
        assert abs(exact[name]) > 6 * error, "the sample is large enough to tell"
