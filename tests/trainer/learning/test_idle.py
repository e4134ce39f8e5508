"""A step that learns nothing says so, with the cause, whichever it is; one that learns says nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learners import configure, make_batch, make_learner

from ludus.trainer.core.samples import TrainBatch
from ludus.trainer.learning.idle import IdleSteps
from ludus.trainer.learning.losses import policy_objective

BATCH = make_batch(0)


def with_advantage(value: float) -> TrainBatch:
    items = [replace(item, advantages=tuple(value * own for own in item.sample.mask)) for item in BATCH.samples]
    return TrainBatch(tuple(items))


def sampled_at(logprob: float) -> TrainBatch:
    """Every token was good, and was sampled with that log-probability."""
    batch = with_advantage(1.0)
    items = [
        replace(item, sample=replace(item.sample, logprobs=tuple(logprob * own for own in item.sample.mask)))
        for item in batch.samples
    ]
    return TrainBatch(tuple(items))


def learn(tiny: Path, batch: TrainBatch, **sections: Any) -> tuple[str | None, float]:
    """What is said of a real learner's step, and its gradient."""
    config = configure(tiny, **sections)
    metrics = make_learner(config).step(batch, policy_objective(config.loss))
    return IdleSteps(config).check(1, batch, metrics), metrics.get("loss/gradient_norm", 0.0)


@pytest.mark.suite("training", first=2)
@pytest.mark.parametrize(
    ("batch", "sections", "words"),
    [
        (with_advantage(0.0), {}, "an advantage of 0, 0 were clipped, and 0 were masked. All episodes earned the same"),
        (with_advantage(0.0), {"rollouts": {"drop_zero_variance": False}}, "set rollouts.drop_zero_variance = true"),
        (sampled_at(-20.0), {}, "moved too far from the one that sampled"),  # all are clipped
        (
            sampled_at(-20.0),
            {"loss": {"old_policy": "proximal", "correction": "icepop", "correction_high": 2.0}},
            "moved too far from the one that sampled",  # all are masked
        ),
        (with_advantage(1.0), {"loss": {"min_entropy": 100.0}}, "below loss.min_entropy"),
        (TrainBatch(()), {}, "No token was left"),
        (TrainBatch(()), {"loss": {"truncated": "mask"}}, 'loss.truncated = "mask"'),
    ],
)
def test_every_cause_of_a_gradient_of_0_is_named(
    tiny: Path, batch: TrainBatch, sections: dict[str, Any], words: str
) -> None:
    remark, norm = learn(tiny, batch, **sections)
    assert norm == 0
    assert remark is not None
    assert "its gradient is exactly 0" in remark
    assert words in remark


def test_a_step_that_only_other_terms_moved_says_so(tiny: Path) -> None:
    remark, norm = learn(tiny, with_advantage(0.0), loss={"entropy_weight": 0.1})
    assert norm > 0
    assert remark is not None
    assert "only the KL and entropy terms moved the policy" in remark


def test_a_step_that_learned_something_is_not_mentioned(tiny: Path) -> None:
    remark, norm = learn(tiny, BATCH)
    assert norm > 0
    assert remark is None


def test_every_idle_step_is_counted_and_the_summary_names_the_last_cause(tiny: Path) -> None:
    idle = IdleSteps(configure(tiny))
    assert idle.summary() is None
    nothing = {"loss/gradient_norm": 0.0}
    assert idle.check(1, BATCH, {"loss/gradient_norm": 0.5}) is None
    first, again = idle.check(2, with_advantage(0.0), nothing), idle.check(3, with_advantage(0.0), nothing)
    assert first is not None
    assert "step 2 learned nothing" in first
    assert again == "step 3 learned nothing from its rewards, again: 2 of 3 steps so far"
    summary = idle.summary()
    assert summary is not None
    assert summary.startswith("2 of 3 steps learned nothing from their rewards. All episodes earned the same")
