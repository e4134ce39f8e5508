"""Neither the cut into micro-batches nor the layout of ranks changes what is learned."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import configure, make_batch, make_learner
from safetensors.torch import load_file
from torch import Tensor

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import TrainBatch, TrainSample
from ludus.trainer.learning.losses import policy_objective
from ludus.trainer.learning.packing import pack

BATCHES = [make_batch(seed) for seed in range(3)]
LONE = TrainBatch(BATCHES[0].samples[:1])
"""A batch that leaves one of two ranks without anything."""
KL = {"kl": "k3", "kl_weight": 0.1}
PROXIMAL = {"old_policy": "proximal", "correction": "tis"}
TWO = {"optimizer": {"tokens": 200}}
"""Several micro-batches per rank."""


def not_a_number(batch: TrainBatch, number: int) -> TrainBatch:
    item = batch.samples[number]
    broken = replace(item, advantages=(float("nan"),) * len(item.advantages))
    return TrainBatch((*batch.samples[:number], broken, *batch.samples[number + 1 :]))


SCENARIOS: dict[str, tuple[dict[str, Any], dict[str, Any], list[TrainBatch]]] = {
    "fsdp": ({}, TWO, BATCHES),
    "hsdp": ({}, {**TWO, "parallel": {"replicate": 2}}, BATCHES),
    "idle_rank": ({}, {}, [LONE, LONE]),
    "checkpointed": ({}, {**TWO, "model": {"checkpoint_activations": True}}, BATCHES),
    "reference": ({"loss": KL}, {**TWO, "loss": KL}, BATCHES),
    "kept": ({"loss": KL}, {**TWO, "loss": KL}, BATCHES),
    "kept_adapter": (
        {"loss": KL, "model": {"lora": {"rank": 4}}},
        {**TWO, "loss": KL, "model": {"lora": {"rank": 4}}},
        BATCHES,
    ),  # fmt: skip
    "proximal": ({"loss": PROXIMAL}, {**TWO, "loss": PROXIMAL}, BATCHES),
    "adapter": ({"model": {"lora": {"rank": 4}}}, {**TWO, "model": {"lora": {"rank": 4}}}, BATCHES),
    "bfloat16": ({"model": {"dtype": "bfloat16"}}, {**TWO, "model": {"dtype": "bfloat16"}}, BATCHES),
    "broken": ({}, TWO, [BATCHES[0], not_a_number(BATCHES[1], 5), BATCHES[2]]),
}
"""What one process learns, what two learn, and from which batches."""


@pytest.fixture(scope="module")
def outcomes(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which torchrun's two ranks left NAME.out, and this process NAME.alone.out."""
    folder = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("ranks.py")
    for name, (alone, together, batches) in SCENARIOS.items():
        (folder / f"{name}.one").write_bytes(pickle.dumps((configure(tiny, **alone), batches)))
        (folder / f"{name}.scenario").write_bytes(pickle.dumps((configure(tiny, **together), batches)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(folder)], env=variables, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def alone(tiny: Path, name: str) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    config, _, batches = SCENARIOS[name]
    return learned(configure(tiny, **config), batches, kept=name.startswith("kept"))


def learned(
    config: TrainConfig, batches: list[TrainBatch], *, kept: bool = False
) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    learner = make_learner(config)
    metrics: list[dict[str, float]] = []
    for number, batch in enumerate(batches):
        metrics.append(learner.step(batch, policy_objective(config.loss)))
        if number == 0 and kept:
            learner.keep_reference()
    weights = {name: tensor.clone() for name, tensor in learner.weights(torch.float32)}
    learner.parallel.close()
    return metrics, weights


def assert_same(
    ours: tuple[list[dict[str, float]], Mapping[str, Tensor]],
    theirs: tuple[list[dict[str, float]], Mapping[str, Tensor]],
    *,
    loss: float = 1e-6,
    metrics: float = 2e-5,
    weights: float = 1e-4,
) -> None:
    for mine, other in zip(ours[0], theirs[0], strict=True):
        assert mine.keys() == other.keys()
        assert mine["loss/total"] == pytest.approx(other["loss/total"], abs=loss)
        assert mine == pytest.approx(other, rel=metrics, abs=metrics)
    assert list(ours[1]) == list(theirs[1])
    for name, tensor in ours[1].items():
        torch.testing.assert_close(tensor, theirs[1][name], rtol=0, atol=weights, msg=f"{name} differs")


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize("count", [2, 4, 12])
def test_micro_batches_of_any_number_give_the_same_loss_and_weights(tiny: Path, count: int) -> None:
    whole = configure(tiny)
    samples = BATCHES[0].samples
    tokens = next(t for t in range(60, 1000) if len(pack(samples, t)) == count) if count < 12 else 1
    assert len(pack(samples, tokens)) == count
    assert len(pack(samples, whole.optimizer.tokens)) == 1
    cut = configure(tiny, optimizer={"tokens": tokens})
    assert_same(learned(cut, BATCHES[:1]), learned(whole, BATCHES[:1]), weights=1e-5)


def test_the_order_of_samples_does_not_matter(tiny: Path) -> None:
    samples: tuple[TrainSample, ...] = BATCHES[0].samples
    config = configure(tiny, optimizer={"tokens": 200})
    assert_same(learned(config, [TrainBatch(samples[::-1])]), learned(config, [TrainBatch(samples)]), weights=1e-5)


@pytest.mark.suite("training")
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in ("bfloat16", "broken")])
def test_two_ranks_learn_what_one_does(tiny: Path, outcomes: Path, name: str) -> None:
    ranks = pickle.loads((outcomes / f"{name}.out").read_bytes())
    theirs = ranks[0]["metrics"], load_file(outcomes / f"{name}.safetensors")
    mine = alone(tiny, name)
    assert_same(theirs, (mine[0], {n: mine[1][n] for n in theirs[1]}))
    assert ranks[0]["names"] == list(mine[1])
    assert all(rank == ranks[0] for rank in ranks), "every rank sees the same metrics, names and log-probabilities"


@pytest.mark.suite("training")
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", ["fsdp", "bfloat16"])
def test_two_ranks_export_their_weights(outcomes: Path, name: str) -> None:
    weights = load_file(outcomes / f"{name}.safetensors")
    exported = load_file(outcomes / f"{name}.model" / "model.safetensors")
    assert exported.keys() == weights.keys()
    for key, tensor in exported.items():
        assert torch.equal(tensor, weights[key].to(tensor.dtype)), key


@pytest.mark.suite("training")
@pytest.mark.timeout(500)
def test_in_bfloat16_two_ranks_differ_from_one_by_rounding_only(tiny: Path, outcomes: Path) -> None:
    ranks = pickle.loads((outcomes / "bfloat16.out").read_bytes())
    theirs = ranks[0]["metrics"], load_file(outcomes / "bfloat16.safetensors")
    mine = alone(tiny, "bfloat16")
    assert_same(theirs, (mine[0], {n: mine[1][n] for n in theirs[1]}), loss=1e-3, metrics=2e-2, weights=7e-3)


@pytest.mark.suite("training")
@pytest.mark.timeout(500)
def test_a_loss_that_is_not_a_number_is_an_error_on_all_ranks_and_changes_none(tiny: Path, outcomes: Path) -> None:
    ranks = pickle.loads((outcomes / "broken.out").read_bytes())
    assert len({rank["error"] for rank in ranks}) == 1
    number, message = ranks[0]["error"]
    assert number == 1
    assert "batch 1: the loss is nan" in message
    assert "sample 5 (" in message
    healthy = learned(configure(tiny), [BATCHES[0], BATCHES[2]])
    theirs = ranks[0]["metrics"], load_file(outcomes / "broken.safetensors")
    assert_same(theirs, (healthy[0], {n: healthy[1][n] for n in theirs[1]}))


@pytest.mark.suite("training")
@pytest.mark.timeout(500)
def test_the_reference_of_sharded_ranks_is_the_model_as_it_was_loaded(tiny: Path, outcomes: Path) -> None:
    ranks = pickle.loads((outcomes / "reference.out").read_bytes())
    untouched = make_learner(configure(tiny)).logprobs([item.sample for item in BATCHES[0].samples])
    for found, values in zip(ranks[0]["reference"], untouched, strict=True):
        torch.testing.assert_close(torch.tensor(found), values, rtol=0, atol=2e-6)
