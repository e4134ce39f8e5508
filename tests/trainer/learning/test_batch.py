"""Batches: who is compared with whom, which tokens count, and that the denominator counts exactly those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from ludus.protocol.episodes import TaskRow
from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, Sample, TrainBatch, TrainSample
from ludus.trainer.learning.batch import informative, make_batch, split_minibatches
from ludus.trainer.learning.losses import sequence_log_ratio
from ludus.trainer.learning.packing import pack

TRAJECTORY = Trajectory(
    environment="e", split="train", task=TaskRow(id="t", split="train", index=0, fields={}), policy="p",
    started_at=0.0, seconds=0.0,
)  # fmt: skip
FAILED, TRUNCATED = RolloutStatus.FAILED, RolloutStatus.TRUNCATED


def sample(*turn_tokens: int, first: int = 0, logprob: float = -1.0) -> Sample:
    """Two tokens of prompt before each turn, then that many sampled ones."""
    turns = [turn for number, count in enumerate(turn_tokens, start=first) for turn in [-1, -1, *[number] * count]]
    return Sample(
        ids=tuple(range(len(turns))),
        mask=tuple(turn >= 0 for turn in turns),
        logprobs=tuple(logprob if turn >= 0 else 0.0 for turn in turns),
        versions=tuple(0 if turn >= 0 else -1 for turn in turns),
        turns=tuple(turns),
    )


def rollout(
    reward: float | None,
    *samples: Sample,
    status: RolloutStatus = RolloutStatus.COMPLETED,
    turn_rewards: Sequence[float] | None = None,
) -> Rollout:
    earned = tuple(turn_rewards) if turn_rewards is not None else (() if reward is None else (reward,))
    return Rollout(status, samples, reward, earned, TRAJECTORY)


def group(*rollouts: Rollout, number: int = 0) -> RolloutGroup:
    return RolloutGroup(number, "e", "t", rollouts, 0)


def configuration(**sections: dict[str, Any]) -> TrainConfig:
    return TrainConfig.model_validate(
        {"output": "run", "model": {"path": "m"}, "environments": [{"url": "http://e"}], **sections}
    )


def advantage(item: TrainSample) -> float:
    (value,) = {a for a, own in zip(item.advantages, item.sample.mask, strict=True) if own}
    return value


def total_weight(batch: TrainBatch) -> float:
    return math.fsum(weight for item in batch.samples for weight in item.weights)


def test_only_sampled_tokens_have_advantages_and_weights() -> None:
    batch = make_batch([group(rollout(1.0, sample(3, 2)), rollout(0.0, sample(5)))], configuration())
    first, second = batch.samples
    none, some = (0.0, 0.0), (0.1,)
    assert first.weights == pytest.approx(none + 3 * some + none + 2 * some)
    assert first.advantages == none + 3 * (0.5,) + none + 2 * (0.5,)
    assert second.advantages == none + 5 * (-0.5,)
    assert (first.sequence, second.sequence) == (0, 1)


def test_a_failed_episode_is_in_no_mean_no_deviation_no_size_and_no_loss() -> None:
    healthy = [rollout(1.0, sample(3)), rollout(0.25, sample(2)), rollout(0.0, sample(4))]
    broken = rollout(None, sample(50), status=FAILED)
    for scale in ("none", "group", "batch", "mean"):
        for credit in ("episode", "step"):
            config = configuration(advantages={"scale": scale, "credit": credit})
            with_failure = make_batch([group(healthy[0], broken, *healthy[1:], broken)], config)
            assert with_failure.samples == make_batch([group(*healthy)], config).samples


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "none"])
def test_the_only_survivor_of_a_group_is_left_out_of_loss_and_denominator(baseline: str) -> None:
    config = configuration(advantages={"baseline": baseline})
    pair = group(rollout(1.0, sample(3)), rollout(0.0, sample(3)), number=0)
    survivor = group(rollout(1.0, sample(7)), rollout(None, status=FAILED), number=1)
    batch = make_batch([survivor, pair], config)
    assert [len(item.sample.ids) for item in batch.samples] == [5, 5]
    assert total_weight(batch) == pytest.approx(1)
    assert make_batch([survivor], config).samples == ()


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("broken", [math.nan, -math.inf, math.inf])
def test_tokens_without_a_finite_logprob_leave_loss_and_denominator(aggregation: str, broken: float) -> None:
    config = configuration(loss={"aggregation": aggregation, "constant": 4})
    good, other = sample(4), sample(3)
    torn = replace(good, logprobs=(0.0, 0.0, -1.0, broken, -1.0, broken))
    batch = make_batch([group(rollout(1.0, torn), rollout(0.0, other))], config)
    weights = [tuple(w for w in item.weights if w) for item in batch.samples]
    expected = {"token": (1 / 5, 1 / 5), "sequence": (1 / 4, 1 / 6), "constant": (1 / 8, 1 / 8)}[aggregation]
    assert weights == [pytest.approx((expected[0],) * 2), pytest.approx((expected[1],) * 3)]
    assert batch.samples[0].weights[3] == batch.samples[0].weights[5] == 0


def test_an_episode_of_broken_tokens_only_votes_but_is_no_part_of_the_batch() -> None:
    config = configuration(loss={"aggregation": "sequence"})
    broken = rollout(0.0, sample(4, logprob=math.nan))
    batch = make_batch([group(rollout(1.0, sample(2)), broken)], config)
    (item,) = batch.samples
    assert advantage(item) == 0.5
    assert total_weight(batch) == pytest.approx(1)


def test_a_sample_of_broken_tokens_is_no_part_of_the_batch_but_the_rest_of_its_episode_is() -> None:
    rewritten = rollout(1.0, sample(4, logprob=math.nan), sample(3, first=1))
    batch = make_batch([group(rewritten, rollout(0.0, sample(2)))], configuration())
    assert [item.sample.sampled for item in batch.samples] == [3, 2]


def test_masked_truncated_episodes_vote_in_the_baseline_only() -> None:
    rollouts = [rollout(1.0, sample(2)), rollout(0.5, sample(2)), rollout(0.0, sample(20), status=TRUNCATED)]
    kept = make_batch([group(*rollouts)], configuration())
    masked = make_batch([group(*rollouts)], configuration(loss={"truncated": "mask"}))
    assert [advantage(item) for item in kept.samples] == [0.5, 0.0, -0.5]
    assert [advantage(item) for item in masked.samples] == [0.5, 0.0]
    assert total_weight(kept) == pytest.approx(1)
    assert total_weight(masked) == pytest.approx(1)


def test_the_mean_over_sequences_counts_episodes_not_their_samples() -> None:
    """An episode whose context was rewritten has several samples, and no more say than another."""
    rewritten = rollout(1.0, sample(2), sample(6, first=1))
    batch = make_batch([group(rewritten, rollout(0.0, sample(4)))], configuration(loss={"aggregation": "sequence"}))
    assert [item.sequence for item in batch.samples] == [0, 0, 1]
    of_episode = [sum(sum(i.weights) for i in batch.samples if i.sequence == number) for number in (0, 1)]
    assert of_episode == pytest.approx([0.5, 0.5])
    assert {w for item in batch.samples[:2] for w in item.weights} - {0.0} == {1 / 16}


def test_the_constant_is_the_context_unless_given() -> None:
    groups = [group(rollout(1.0, sample(2)), rollout(0.0, sample(2)))]
    batch = make_batch(groups, configuration(loss={"aggregation": "constant"}, rollouts={"context": 50}))
    assert total_weight(batch) == pytest.approx(4 / (2 * 50))


def test_whitening_sees_the_tokens_that_count_and_no_others() -> None:
    config = configuration(advantages={"baseline": "none", "scale": "batch"})
    groups = [
        group(rollout(1.0, sample(3)), rollout(0.0, sample(1)), number=0),
        group(rollout(100.0, sample(9)), rollout(None, status=FAILED), number=1),
    ]
    batch = make_batch(groups, config)
    # Tokens 1, 1, 1, 0: mean 3/4, deviation 1/2.
    assert [advantage(item) for item in batch.samples] == pytest.approx([0.5, -1.5], rel=1e-5)


def test_step_credit_reaches_the_tokens_of_its_turn_in_whichever_sample_they_are() -> None:
    config = configuration(advantages={"credit": "step", "discount": 0.5})
    first = rollout(1.0, sample(2), sample(1, first=1), turn_rewards=(0.0, 1.0))
    second = rollout(1.0, sample(2, 1), turn_rewards=(1.0, 0.0))
    batch = make_batch([group(first, second)], config)
    # Returns: 0.5 then 1, and 1 then 0.
    assert [item.advantages[2] for item in batch.samples] == [-0.25, 0.5, 0.25]
    assert batch.samples[2].advantages == (0.0, 0.0, 0.25, 0.25, 0.0, 0.0, -0.5)


def test_an_episode_that_has_ended_is_in_no_baseline_of_later_turns() -> None:
    config = configuration(advantages={"credit": "step"})
    short = rollout(1.0, sample(1), turn_rewards=(1.0,))
    longer = [rollout(r, sample(1, 1), turn_rewards=(0.0, r)) for r in (1.0, 4.0)]
    batch = make_batch([group(short, *longer)], config)
    assert [item.advantages[2] for item in batch.samples] == [-1.0, -1.0, 2.0]
    assert [item.advantages[5] for item in batch.samples[1:]] == [-1.5, 1.5]


def test_a_turn_that_earned_nothing_yet_was_cut_off_is_still_a_turn() -> None:
    """A policy may be stopped in mid-turn: tokens of a turn for which no reward was ever recorded."""
    config = configuration(advantages={"credit": "step"})
    cut = rollout(1.0, sample(2, 3), status=TRUNCATED, turn_rewards=(1.0,))
    batch = make_batch([group(cut, rollout(2.0, sample(1, 1), turn_rewards=(0.0, 2.0)))], config)
    assert batch.samples[0].advantages == (0.0, 0.0, -0.5, -0.5, 0.0, 0.0, -1.0, -1.0, -1.0)


@pytest.mark.parametrize("credit", ["episode", "step"])
def test_the_overlong_punishment_lowers_the_reward_before_it_is_compared(credit: str) -> None:
    config = configuration(loss={"overlong": 10}, rollouts={"context": 22}, advantages={"credit": credit})
    batch = make_batch([group(rollout(1.0, sample(15)), rollout(1.0, sample(5)))], config)
    assert [advantage(item) for item in batch.samples] == pytest.approx([-0.25, 0.25])


def test_nothing_to_learn_from_is_an_empty_batch() -> None:
    config = configuration(advantages={"scale": "batch", "credit": "step"})
    silent = group(rollout(0.0, turn_rewards=()), rollout(1.0, turn_rewards=()))
    for groups in ([], [group(rollout(None, status=FAILED))], [silent]):
        assert make_batch(groups, config).samples == ()


def four_groups() -> list[RolloutGroup]:
    return [
        group(
            rollout(1.0, sample(number + 1)), rollout(0.0, sample(2), sample(1, first=1)),
            rollout(None, status=FAILED), rollout(0.5, sample(3)), number=number,
        )
        for number in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_minibatches_are_whole_groups_weighted_as_if_each_were_the_batch(aggregation: str, count: int) -> None:
    config = configuration(loss={"aggregation": aggregation}, optimizer={"minibatches": count})
    batch = make_batch(four_groups(), config)
    parts = split_minibatches(batch, config)
    assert len(parts) == count
    assert [g for part in parts for g in part.groups] == list(batch.groups)
    assert [item.sample for part in parts for item in part.samples] == [item.sample for item in batch.samples]
    for part in parts:
        alone = make_batch(part.groups, config)
        assert [item.advantages for item in part.samples] == [item.advantages for item in alone.samples]
        for item, other in zip(part.samples, alone.samples, strict=True):
            assert item.weights == pytest.approx(other.weights)


def test_advantages_over_the_batch_are_those_of_the_whole_step_in_every_minibatch() -> None:
    config = configuration(advantages={"scale": "batch"}, optimizer={"minibatches": 2})
    batch = make_batch(four_groups(), config)
    parts = split_minibatches(batch, config)
    assert [i.advantages for part in parts for i in part.samples] == [i.advantages for i in batch.samples]


def test_there_are_no_more_minibatches_than_groups_with_tokens() -> None:
    config = configuration(optimizer={"minibatches": 8})
    survivor = group(rollout(1.0, sample(2)), rollout(None, status=FAILED), number=9)
    groups = [*four_groups()[:2], survivor]
    assert len(split_minibatches(make_batch(groups, config), config)) == 2
    lone = TrainBatch(make_batch(groups, config).samples)
    assert split_minibatches(lone, config) == [lone]


STEP = {"advantages": {"credit": "step"}}


@pytest.mark.parametrize(
    ("turns", "learned"),
    [
        ([(0.0,), (0.0, 0.0)], False),  # different lengths, nothing earned
        ([(0.0,), (0.0, 0.0), (0.0, 0.0, 0.0)], False),
        ([(0.5, 0.5), (0.5, 0.5, 0.0)], False),
        ([(1.0,), (0.0, 1.0)], False),  # the same from each turn on, as far as both got
        ([(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)], True),
        ([(0.1, 0.2), (0.2, 0.1)], True),
        ([(1.0,), (1.0, 1.0)], True),
    ],
)
def test_with_step_credit_returns_decide_whether_a_group_can_be_learned_from(
    turns: list[tuple[float, ...]], learned: bool
) -> None:
    rollouts = [rollout(sum(earned), sample(*[2] * len(earned)), turn_rewards=earned) for earned in turns]
    config = configuration(**STEP)
    assert informative(group(*rollouts), config) is learned
    items = make_batch([group(*rollouts)], config).samples
    assert any(a for item in items for a, w in zip(item.advantages, item.weights, strict=True) if w) is learned


def test_a_difference_of_rounding_is_none() -> None:
    close = [rollout(0.1 + 0.2, sample(2)), rollout(0.3, sample(2))]
    assert close[0].reward != close[1].reward
    assert not informative(group(*close), configuration())
    tiny = [rollout(1e-6, sample(2)), rollout(0.0, sample(2))]
    assert informative(group(*tiny), configuration())


def test_a_difference_in_tokens_that_do_not_count_is_none() -> None:
    config = configuration(loss={"truncated": "mask"})
    cut = [rollout(reward, sample(2), status=TRUNCATED) for reward in (1.0, 0.0)]
    assert not informative(group(*cut), config)
    assert informative(group(*cut), configuration())
    assert informative(group(rollout(1.0, sample(2)), cut[1]), config)
    unknown = [rollout(reward, sample(2, logprob=-math.inf)) for reward in (1.0, 0.0)]
    assert not informative(group(*unknown), configuration())


def test_a_penalty_for_length_is_a_difference() -> None:
    config = configuration(loss={"overlong": 10}, rollouts={"context": 12})
    equal = [rollout(1.0, sample(2)), rollout(1.0, sample(8))]
    assert informative(group(*equal), config)
    assert not informative(group(*equal), configuration())


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "none"])
@pytest.mark.parametrize("scale", ["none", "group", "batch", "mean"])
def test_constant_groups_are_constant_whatever_the_advantages(baseline: str, scale: str) -> None:
    config = configuration(advantages={"baseline": baseline, "scale": scale})
    assert not informative(group(rollout(1.0, sample(2)), rollout(1.0, sample(3))), config)
    assert informative(group(rollout(1.0, sample(2)), rollout(0.0, sample(3))), config)


def test_an_episode_whose_context_was_rewritten_has_a_ratio_for_each_of_its_samples() -> None:
    rewritten = rollout(1.0, sample(2), sample(3, first=1))
    batch = make_batch([group(rewritten, rollout(0.0, sample(4)))], configuration(loss={"kind": "gspo"}))
    assert [item.sequence for item in batch.samples] == [0, 0, 1]
    (micro,) = pack(batch.samples, 1_000)
    log_ratio = micro.sample.double()
    counted = torch.ones_like(micro.sample, dtype=torch.bool)
    ratios = sequence_log_ratio(log_ratio, counted, micro.sample)
    assert len(set(ratios.tolist())) == 3
    assert sorted(torch.bincount(micro.sample).tolist()) == [2, 3, 4]
