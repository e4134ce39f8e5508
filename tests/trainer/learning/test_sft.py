"""Supervised batches: which episodes are learned from, which of their tokens, and how often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.client.trajectory_files import TrajectoryWriter
from ludus.protocol.actions import Call
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import TaskRow
from ludus.protocol.items import CallItem, Item, OutputItem, text_message, to_json
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, Trajectory
from ludus.rendering import Renderer
from ludus.trainer.core.config_learning import DpoConfig, SftConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, Sample
from ludus.trainer.core.tiny import make_tokenizer
from ludus.trainer.learning.dpo import preference_pairs
from ludus.trainer.learning.losses import Tokens, linear_objective
from ludus.trainer.learning.sft import demonstrations, own_episodes, render, sft_batches, shuffled
from ludus.trainer.quickstart import Demonstrations

TOOLS = ({"type": "function", "name": "guess", "description": "A guess.", "parameters": {"type": "object"}},)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


def played(guess: int) -> list[Item]:
    return [
        text_message("user", "Find it."),
        CallItem("c", Call("guess", {"number": guess})),
        OutputItem("c", (TextBlock(text="higher"),)),
        text_message("assistant", f"It is {guess}."),
    ]


def trajectory(
    reward: float | None, items: Sequence[Item] | None = None, *, sample: int = 0, failure: Failure | None = None
) -> Trajectory:
    return Trajectory(
        environment="e", split="train", task=TaskRow(id="t", split="train", index=0, fields={}), sample=sample,
        policy="p", reward=None if reward is None else Reward.of(reward), started_at=0.0, seconds=0.0, tools=TOOLS,
        items=tuple(to_json(played(sample) if items is None else items)), failure=failure,
    )  # fmt: skip


def recorded(path: Path, *trajectories: Trajectory) -> Path:
    with TrajectoryWriter(path) as writer:
        for one in trajectories:
            writer.write(one)
    return path


def test_episodes_that_a_later_one_of_the_same_number_would_hide_are_refused(
    renderer: Renderer, tmp_path: Path
) -> None:
    broken = trajectory(None, failure=Failure(kind="infrastructure", error="E", message="m", attempt=1))
    again = recorded(tmp_path / "resumed.jsonl", broken, trajectory(1.0), trajectory(0.5, sample=1))
    assert len(demonstrations(SftConfig(demonstrations=(again,)), renderer, context=1000)) == 2
    other = trajectory(1.0, sample=1).model_copy(update={"sample": 0, "policy": "q"})
    both = recorded(tmp_path / "both.jsonl", trajectory(1.0), other)
    assert len(demonstrations(SftConfig(demonstrations=(both,)), renderer, context=1000)) == 2
    seats = recorded(tmp_path / "seats.jsonl", trajectory(1.0), trajectory(0.0))
    with pytest.raises(ConfigError, match=r"seats.jsonl: 1 of its 2 scored episodes .* number of its own"):
        demonstrations(SftConfig(demonstrations=(seats,)), renderer, context=1000)
    with pytest.raises(ConfigError, match=r"seats.jsonl: 1 of its 2 scored episodes"):
        Demonstrations.read([seats])


@pytest.mark.parametrize("split", ["test", "Validation", "hard-test", "dev"])
def test_episodes_of_splits_that_are_not_for_training_are_refused_unless_allowed(
    split: str, renderer: Renderer, tmp_path: Path
) -> None:
    row = TaskRow(id="t", split=split, index=0, fields={})
    held_out = trajectory(1.0).model_copy(update={"split": split, "task": row})
    path = recorded(tmp_path / "mixed.jsonl", trajectory(1.0), held_out)
    with pytest.raises(ConfigError, match=rf"not for training: 1 of '{split}' among 2.*sft.held_out = true"):
        demonstrations(SftConfig(demonstrations=(path,)), renderer, context=1000)
    allowed = demonstrations(SftConfig(demonstrations=(path,), held_out=True), renderer, context=1000)
    assert len(allowed) == 2
    worse = trajectory(0.0, sample=1).model_copy(update={"split": split, "task": row})
    pairs = recorded(tmp_path / "pairs.jsonl", held_out, worse)
    with pytest.raises(ConfigError, match=r"dpo.held_out = true"):
        preference_pairs(DpoConfig(trajectories=(pairs,)), renderer, context=1000)
    assert preference_pairs(DpoConfig(trajectories=(pairs,), held_out=True), renderer, context=1000)


def own_sample(*turn_tokens: int) -> Sample:
    turns = [turn for number, count in enumerate(turn_tokens) for turn in [-1, *[number] * count]]
    own = [turn >= 0 for turn in turns]
    return Sample(tuple(turns), tuple(own), tuple(map(float, own)), (0,) * len(own), tuple(turns))


def test_a_recorded_conversation_is_learned_from_where_the_policy_spoke(renderer: Renderer) -> None:
    sample = render(trajectory(1.0, played(7)), renderer)
    assert sample is not None
    text = renderer.tokenizer.decode([i for i, own in zip(sample.ids, sample.mask, strict=True) if own])
    assert '{"number": 7}' in text or '{"number":7}' in text
    assert "It is 7." in text
    assert "higher" not in text
    assert "Find it." not in text
    assert {turn for turn, own in zip(sample.turns, sample.mask, strict=True) if own} == {0, 1}
    assert all((turn >= 0) is own for turn, own in zip(sample.turns, sample.mask, strict=True))


def test_a_conversation_without_the_policy_is_nothing_to_learn_from(renderer: Renderer) -> None:
    assert render(trajectory(1.0, [text_message("user", "Find it.")]), renderer) is None


def test_demonstrations_are_those_that_did_not_fail_and_earned_enough(tmp_path: Path, renderer: Renderer) -> None:
    broken = Failure(kind="infrastructure", error="E", message="m", attempt=1)
    path = recorded(
        tmp_path / "runs.jsonl",
        trajectory(1.0, sample=1), trajectory(0.4, sample=2), trajectory(None, sample=3),
        trajectory(None, sample=4, failure=broken), trajectory(0.5, sample=5),
    )  # fmt: skip
    for least, expected in ((0.5, [1, 5]), (None, [1, 2, 3, 5])):
        config = SftConfig(demonstrations=(path,), reward=least)
        found = demonstrations(config, renderer, context=4096)
        assert found == [(render(trajectory(1.0, sample=number), renderer),) for number in expected]


def test_a_demonstration_tried_again_counts_once_as_it_was_last(tmp_path: Path, renderer: Renderer) -> None:
    broken = Failure(kind="infrastructure", error="E", message="m", attempt=1)
    first = trajectory(None, played(1), failure=broken)
    path = recorded(tmp_path / "runs.jsonl", first, trajectory(1.0, played(2)))
    found = demonstrations(SftConfig(demonstrations=(path,)), renderer, context=4096)
    assert found == [(render(trajectory(1.0, played(2)), renderer),)]


def test_a_demonstration_that_does_not_fit_is_left_out_whole(tmp_path: Path, renderer: Renderer) -> None:
    long = [text_message("user", "x" * 500), text_message("assistant", "yes")]
    path = recorded(tmp_path / "runs.jsonl", trajectory(1.0, long, sample=0), trajectory(1.0, sample=1))
    config = SftConfig(demonstrations=(path,))
    both = demonstrations(config, renderer, context=4096)
    assert demonstrations(config, renderer, context=len(both[0][0].ids) - 1) == [both[1]]


@pytest.mark.parametrize("content", ["nonsense\n", ""])
def test_files_that_teach_nothing_are_named(tmp_path: Path, renderer: Renderer, content: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match="runs.jsonl"):
        demonstrations(SftConfig(demonstrations=(path,)), renderer, context=4096)


def test_demonstrations_that_all_earned_too_little_say_how_many_there_were(tmp_path: Path, renderer: Renderer) -> None:
    path = recorded(tmp_path / "runs.jsonl", trajectory(0.2, sample=1), trajectory(0.4, sample=2))
    with pytest.raises(ConfigError, match=r"of its 2 episodes 0 did not fail and reach sft.reward \(0.5\)"):
        demonstrations(SftConfig(demonstrations=(path,), reward=0.5), renderer, context=4096)


def test_own_episodes_are_filtered_by_reward_and_kept_token_by_token() -> None:
    def rollout(reward: float | None, *samples: Sample, status: RolloutStatus = RolloutStatus.COMPLETED) -> Rollout:
        return Rollout(status, samples, reward, (), trajectory(reward))

    first, second = own_sample(2, 1), own_sample(3)
    group = RolloutGroup(
        0, "e", "t",
        (
            rollout(1.0, first, second), rollout(0.0, own_sample(9)), rollout(1.0),
            rollout(None, own_sample(4), status=RolloutStatus.FAILED),
        ),
        0,
    )  # fmt: skip
    (episode,) = own_episodes([group], 0.5)
    assert episode[0] is first
    assert episode[1] is second
    assert len(own_episodes([group], None)) == 2


def test_a_batch_is_the_mean_negative_log_likelihood_of_its_tokens() -> None:
    episodes = [(own_sample(2, 1), own_sample(3)), (own_sample(4),)]
    (batch,) = sft_batches(episodes, SftConfig(steps=1, batch=2), seed=0)
    weights = torch.tensor([w for item in batch.samples for w in item.weights], dtype=torch.float64)
    own = torch.tensor([o for item in batch.samples for o in item.sample.mask])
    advantages = torch.tensor([a for item in batch.samples for a in item.advantages], dtype=torch.float64)
    logprobs = torch.randn(len(weights), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nothing = torch.full_like(logprobs, torch.nan)
    loss, _ = linear_objective(Tokens(logprobs, nothing, advantages, weights, torch.zeros_like(own, dtype=torch.long)))
    torch.testing.assert_close(loss, -logprobs[own].mean())
    assert len({item.sequence for item in batch.samples}) == 2


def test_as_many_batches_as_steps_each_a_new_choice_and_the_same_for_the_same_seed() -> None:
    episodes = [(own_sample(number + 1),) for number in range(6)]
    config = SftConfig(steps=7, batch=4)
    batches = list(sft_batches(episodes, config, seed=3))
    assert len(batches) == 7
    assert all(len(batch.samples) == 4 for batch in batches)
    assert batches == list(sft_batches(episodes, config, seed=3))
    assert batches != list(sft_batches(episodes, config, seed=4))


def test_own_episodes_that_all_earned_too_little_are_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match=r"none of the policy's own reached sft.reward \(0.9\)"):
        next(sft_batches([], SftConfig(reward=0.9), seed=0))


@pytest.mark.parametrize(("count", "size"), [(6, 2), (7, 3), (3, 10), (1, 1)])
def test_shuffling_holds_no_index_twice_and_favors_none(count: int, size: int) -> None:
    batches = list(islice(shuffled(count, size, seed=0), 60))
    assert all(len(set(batch)) == len(batch) == min(count, size) for batch in batches)
    seen: Counter[int] = Counter(index for batch in batches for index in batch)
    assert set(seen) == set(range(count))
    if count % size == 0:
        assert len(set(seen.values())) == 1


def test_the_file_of_a_run_can_be_read_as_demonstrations(tmp_path: Path, renderer: Renderer) -> None:
    """What `ludus run --out` writes is JSON lines; a torn last line is no error."""
    path = recorded(tmp_path / "runs.jsonl", trajectory(1.0))
    line: dict[str, Any] = json.loads(path.read_text())
    assert line["format"] == "ludus.trajectory/0.1"
    with path.open("a") as file:
        file.write('{"torn')
    assert len(demonstrations(SftConfig(demonstrations=(path,)), renderer, context=4096)) == 1
