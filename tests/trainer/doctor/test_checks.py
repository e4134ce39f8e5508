"""The checks find what they are for: each planted fault makes its own check fail, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.trainer.doctor import weights
from ludus.trainer.doctor.checks import CHECKS
from ludus.trainer.doctor.model import build
from ludus.trainer.engines import canary
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning import attention, learner, losses, packing
from ludus.trainer.learning.learner import Learner

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.timeout(300),
]
ON_CPU = ("attention-sdpa", "attention-flex", "canary", "update", "resume")
Outcome = Callable[..., dict[str, Any]]
Plant = Callable[[pytest.MonkeyPatch], None]


def wrong_scale(monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype) -> None:
    right: Any = attention._KINDS[kind]

    def attend(query: Tensor, key: Tensor, value: Tensor, scale: float | None, *rest: Any) -> Any:
        factor = 2.0 if value.dtype == dtype else 1.0
        return right(query, key, value, (scale or query.shape[-1] ** -0.5) * factor, *rest)

    monkeypatch.setitem(attention._KINDS, kind, attend)


def sees_other_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flex attention takes the whole row for one sample."""
    right = attention.Layout.mask

    def mask(self: attention.Layout, window: int | None) -> Any:
        return right(attention.Layout((self.total,), "flex", self.device), window)

    monkeypatch.setattr(attention.Layout, "mask", mask)


def stale_output_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not load the output layer."""
    right = TorchEngine._load

    def load(self: TorchEngine, update: WeightUpdate) -> None:
        kept = self._weights["lm_head.weight"].clone()
        right(self, update)
        self._weights["lm_head.weight"].copy_(kept)

    monkeypatch.setattr(TorchEngine, "_load", load)


def blind_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "LIMITS", {"float32": (100.0, 100.0)})


def gradient_of_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = losses._policy_loss

    def loss(*arguments: Any) -> Any:
        policy, clipped, dropped = right(*arguments)
        return 2 * policy.detach() - policy, clipped, dropped

    monkeypatch.setattr(losses, "_policy_loss", loss)


def lost_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    right = packing.pack
    monkeypatch.setattr(learner, "pack", lambda *arguments, **options: right(*arguments, **options)[:3])


def lost_optimizer_state(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Learner.load_state
    fresh: dict[str, Any] = {}

    def load(self: Learner, state: Mapping[str, Any]) -> None:
        moments = {name: {k: torch.zeros_like(v) for k, v in parts.items()} for name, parts in _moments(state).items()}
        right(self, {**state, "optimizer": {**state["optimizer"], "state": moments}, **fresh})

    monkeypatch.setattr(Learner, "load_state", load)


def _moments(state: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = state["optimizer"]["state"]
    return found


def lost_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Learner.load_state
    monkeypatch.setattr(Learner, "load_state", lambda self, state: right(self, {**state, "batches": 0}))


FAULTS: dict[str, tuple[str, Plant]] = {
    "wrong scale in sdpa": ("attention-sdpa", lambda patch: wrong_scale(patch, "sdpa", torch.bfloat16)),
    "wrong scale in flex": ("attention-flex", lambda patch: wrong_scale(patch, "flex", torch.float32)),
    "flex sees other samples": ("attention-flex", sees_other_samples),
    "stale output layer": ("canary", stale_output_layer),
    "blind canary": ("canary", blind_canary),
    "gradient of wrong sign": ("update", gradient_of_wrong_sign),
    "lost micro-batches": ("update", lost_microbatches),
    "lost optimizer state": ("resume", lost_optimizer_state),
    "lost schedule": ("resume", lost_schedule),
}


@pytest.mark.suite("doctor", first=1)
@pytest.mark.parametrize("name", ON_CPU)
def test_without_a_fault_a_check_passes_with_figures(check: Outcome, name: str) -> None:
    found = check(name)
    assert (found["status"], found["reason"]) == ("passed", None)
    assert found["figures"]
    assert found["memory"]["host_bytes"] > 2**20
    assert found["memory"]["gpu_bytes"] is None


@pytest.mark.suite("doctor", first=1)
@pytest.mark.parametrize("name", ["canary", "update", "resume"])
def test_checks_pass_in_bfloat16_which_the_learner_computes_with_fsdp(check: Outcome, name: str) -> None:
    found = check(name, "bfloat16")
    assert (found["status"], found["reason"]) == ("passed", None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_canary_passes_for_a_model_with_a_tied_output_layer(check: Outcome, tmp_path: Path, dtype: str) -> None:
    tied = build(tmp_path / "tied", small=True, tie_word_embeddings=True)
    found = check("canary", dtype, tied)
    assert (found["status"], found["reason"]) == ("passed", None)


@pytest.mark.suite("doctor", first=1)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_makes_its_own_check_fail(check: Outcome, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, plant = FAULTS[fault]
    plant(monkeypatch)
    found = check(name)
    assert found["status"] == "failed"
    assert found["log"] is False  # the check found it, and did not stumble over it


@pytest.mark.suite("doctor")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_makes_no_other_check_fail(check: Outcome, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, plant = FAULTS[fault]
    plant(monkeypatch)
    assert {other: check(other)["reason"] for other in ON_CPU if other != name} == dict.fromkeys(
        [other for other in ON_CPU if other != name]
    )


def test_flash_attention_is_skipped_where_it_cannot_run(check: Outcome) -> None:
    found = check("attention-flash")
    assert (found["status"], found["figures"]) == ("skipped", {})
    assert "needs a GPU" in found["reason"]


def test_every_check_has_a_function() -> None:
    assert all(callable(one.load()) for one in CHECKS.values())


@pytest.mark.suite("doctor")
def test_weights_on_another_rank_are_equal_bit_by_bit(check: Outcome) -> None:
    found = check("weights")
    assert (found["status"], found["reason"]) == ("passed", None)
    assert found["figures"]["backend"] == "gloo"
    assert found["figures"]["tensors"] == 25


@pytest.mark.suite("doctor")
def test_a_tied_output_layer_is_compared_under_both_names(check: Outcome, tmp_path: Path) -> None:
    tied = build(tmp_path / "tied", small=True, tie_word_embeddings=True)
    found = check("weights", "bfloat16", tied)
    assert (found["status"], found["reason"]) == ("passed", None)
    assert found["figures"]["tensors"] == 25


@pytest.mark.suite("doctor")
def test_one_bit_that_changes_on_the_way_is_found(check: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    right, sent = weights.broadcast, []

    def broadcast(group: Any, tensor: Tensor) -> None:
        sent.append(tensor)
        if len(sent) == 3:
            tensor = tensor.clone()
            tensor.view(-1).view(torch.int32)[0] ^= 1
        right(group, tensor)

    monkeypatch.setattr(weights, "broadcast", broadcast)
    found = check("weights")
    assert found["status"] == "failed"
    assert "1 of 25 tensors are not equal bit by bit in the engine after update 0" in found["reason"]
