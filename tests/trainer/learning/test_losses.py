"""Losses: equal to golden values to 1e-9, gradients equal to finite differences, what is not finite left out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ludus.trainer.core.config_learning import LossConfig
from ludus.trainer.learning.losses import (
    KL_ESTIMATORS,
    Tokens,
    aggregation_weights,
    correction_weights,
    kl_k3,
    linear_objective,
    policy_objective,
    sequence_log_ratio,
    sequence_sum,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
MASK = GOLDEN["inputs"]["mask"]
COUNTS = [sum(row) for row in MASK]
SAMPLE = torch.tensor([number for number, row in enumerate(MASK) for own in row if own])
PROXIMAL = {"old_policy": "proximal"}


def flat(name: str) -> Tensor:
    rows = GOLDEN["inputs"][name]
    values = [x for row, mask in zip(rows, MASK, strict=True) for x, own in zip(row, mask, strict=True) if own]
    return torch.tensor(values, dtype=torch.float64)


def golden_tokens(
    aggregation: Any = "token",
    *,
    behavior: str = "old",
    proximal: str | None = None,
    reference: str | None = None,
    advantages: str | None = None,
) -> Tokens:
    weights = aggregation_weights(COUNTS, aggregation, GOLDEN["inputs"]["max_len"])
    given = GOLDEN["inputs"]["advantages"] if advantages is None else GOLDEN["advantages"][advantages]
    return Tokens(
        logprobs=flat("new").requires_grad_(),
        behavior=flat(behavior),
        advantages=torch.tensor(given, dtype=torch.float64)[SAMPLE],
        weights=torch.tensor(weights, dtype=torch.float64)[SAMPLE],
        sample=SAMPLE,
        proximal=None if proximal is None else flat(proximal),
        reference=None if reference is None else flat(reference),
    )


def three_policies(**options: Any) -> Tokens:
    return golden_tokens(behavior="sampler", proximal="old", **options)


def loss_of(tokens: Tokens, **config: Any) -> float:
    return policy_objective(LossConfig(**config))(tokens)[0].item()


def gradient_of(tokens: Tokens, config: LossConfig) -> Tensor:
    loss, _ = policy_objective(config)(tokens)
    (gradient,) = torch.autograd.grad(loss, tokens.logprobs)
    return gradient


def with_logprobs(tokens: Tokens, logprobs: Tensor) -> Tokens:
    return Tokens(
        logprobs, tokens.behavior, tokens.advantages, tokens.weights, tokens.sample, tokens.entropy, tokens.proximal,
        tokens.reference,
    )  # fmt: skip


GSPO = {"kind": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}
CASES: dict[str, tuple[Tokens, dict[str, Any]]] = {
    "ppo_clip_higher.token_mean(DAPO)": (golden_tokens("token"), {}),
    "ppo_clip_higher.seq_mean(GRPO)": (golden_tokens("sequence"), {}),
    "ppo_clip_higher.const(DrGRPO,L=8)": (golden_tokens("constant"), {}),
    "dual_clip_c3.token_mean": (golden_tokens(), {"dual_clip": 3.0}),
    "cispo_cap5.token_mean": (golden_tokens(), {"kind": "cispo", "clip_high": 5.0}),
    "cispo_delta(1,4).token_mean": (golden_tokens(), {"kind": "cispo", "clip_high": 1 + 4.0}),
    "gspo(3e-4,4e-4).seq_mean": (golden_tokens("sequence"), GSPO),
    "tis_token_cap2.token_mean": (three_policies(), {**PROXIMAL, "correction": "tis"}),
    "mis_seq_product_max1.1.token_mean": (
        three_policies(),
        {**PROXIMAL, "correction": "mis", "correction_high": 1.1},
    ),
    "icepop[.95,1.06].token_mean": (
        three_policies(),
        {**PROXIMAL, "correction": "icepop", "correction_low": 0.95, "correction_high": 1.06},
    ),
    "decoupled.token_mean": (three_policies(), {**PROXIMAL, "correction": "decoupled"}),
    # prime-rl's default adds 1e-3 (log ρ)² against the behavior policy, which is k2 with twice the weight.
    "prime_dppo_kl.token_mean": (
        golden_tokens(behavior="sampler", reference="sampler"),
        {"kind": "dppo", "clip_low": 0.2, "clip_high": 0.2, "kl": "k2", "kl_weight": 2e-3},
    ),
    "two_policy_ppo.token_mean": (golden_tokens(behavior="sampler"), {}),
    "two_policy_ppo.seq_mean": (golden_tokens("sequence", behavior="sampler"), {}),
    "two_policy_cispo_cap5.token_mean": (golden_tokens(behavior="sampler"), {"kind": "cispo", "clip_high": 5.0}),
}


def test_every_golden_loss_has_a_case() -> None:
    assert set(CASES) == set(GOLDEN["loss"])


@pytest.mark.parametrize("name", CASES)
def test_a_loss_equals_its_golden_value(name: str) -> None:
    tokens, config = CASES[name]
    assert loss_of(tokens, **config) == pytest.approx(GOLDEN["loss"][name], abs=1e-9)


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_a_divergence_equals_its_golden_value_and_enters_the_loss_with_its_weight(name: str) -> None:
    tokens = golden_tokens(reference="ref")
    config: dict[str, Any] = {"kl": name, "kl_weight": 0.5}
    loss, metrics = policy_objective(LossConfig(**config))(tokens)
    golden = GOLDEN["kl"][name]
    assert float(metrics["kl"] / metrics["tokens"]) == pytest.approx(golden, abs=1e-9)
    assert loss.item() - loss_of(golden_tokens()) == pytest.approx(0.5 * golden, abs=1e-9)


def test_gspo_has_the_golden_ratios() -> None:
    log_ratio = flat("new") - flat("old")
    ratios = sequence_log_ratio(log_ratio, torch.ones_like(SAMPLE, dtype=torch.bool), SAMPLE).exp()
    firsts = [SAMPLE.tolist().index(number) for number in range(4)]
    assert ratios[firsts].tolist() == pytest.approx(GOLDEN["gspo_ratio"], abs=1e-9)


def test_sequence_weights_are_the_golden_products() -> None:
    log_weight = flat("old") - flat("sampler")
    products = torch.tensor(GOLDEN["tis_seq_product"], dtype=torch.float64)[SAMPLE]
    torch.testing.assert_close(sequence_sum(log_weight, SAMPLE).exp(), products, rtol=0, atol=1e-9)
    config = LossConfig(old_policy="proximal", correction="tis_sequence", correction_high=1.1)
    weights = correction_weights(log_weight, SAMPLE, config)
    torch.testing.assert_close(weights, products.clamp(max=1.1), rtol=0, atol=1e-9)


EXACT = [name for name in CASES if "cispo" not in name]


@pytest.mark.parametrize("name", EXACT)
def test_a_gradient_equals_finite_differences(name: str) -> None:
    tokens, config = CASES[name]
    objective = policy_objective(LossConfig(**config))

    def loss(logprobs: Tensor) -> Tensor:
        return objective(with_logprobs(tokens, logprobs))[0]

    # Off the golden point: some of its ratios are exactly 1, where a difference would straddle GSPO's narrow clip.
    point = (flat("new") + 1e-3 * torch.arange(12, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(loss, (point,), eps=1e-7, atol=1e-6)


def test_the_gradient_of_cispo_is_that_of_weighted_maximum_likelihood() -> None:
    tokens = golden_tokens()
    weight = (flat("new") - flat("old")).exp().clamp(max=5.0)
    gradient = gradient_of(tokens, LossConfig(kind="cispo", clip_high=5.0))
    torch.testing.assert_close(gradient, -tokens.weights * weight * tokens.advantages, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["ppo", "gspo", "cispo", "dppo", "reinforce"])
def test_on_policy_every_loss_has_the_policy_gradient(kind: Any) -> None:
    tokens = golden_tokens("sequence", behavior="new")
    gradient = gradient_of(tokens, LossConfig(kind=kind, clip_high=5.0))
    torch.testing.assert_close(gradient, -tokens.weights * tokens.advantages, rtol=0, atol=1e-12)


def test_reinforce_with_leave_one_out_is_rloo() -> None:
    tokens = golden_tokens(advantages="rloo")
    expected = -(tokens.advantages * flat("new")).mean()
    assert loss_of(tokens, kind="reinforce") == pytest.approx(float(expected), abs=1e-12)


def test_gspo_gives_each_turn_its_own_credit_where_advantages_differ_within_a_sample() -> None:
    """−s A ∇log π per token: were the ratio differentiated as a whole, the two tokens would share both advantages."""
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    tokens = Tokens(
        logprobs, torch.tensor([-1.1, -1.9], dtype=torch.float64), torch.tensor([1.0, -0.5], dtype=torch.float64),
        torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([0, 0]),
    )  # fmt: skip
    gradient = gradient_of(tokens, LossConfig(kind="gspo"))
    torch.testing.assert_close(gradient, torch.tensor([-0.5, 0.25], dtype=torch.float64))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"kind": "gspo"},
        {"kind": "cispo", "clip_high": 5.0},
        {"kind": "dppo"},
        {"kind": "reinforce"},
        {**PROXIMAL, "correction": "tis_sequence"},
        {**PROXIMAL, "correction": "icepop"},
        {**PROXIMAL, "correction": "mis", "correction_high": 1.1},
        {"kl": "k3"},
    ],
    ids=str,
)
def test_a_token_whose_behavior_is_not_finite_is_as_if_it_were_not_there(broken: float, config: dict[str, Any]) -> None:
    whole = golden_tokens(behavior="sampler", proximal="old", reference="ref")
    for values in (whole.behavior, whole.proximal, whole.reference):
        assert values is not None
        values[3] = broken  # of a sequence that `mis` masks
    loss, metrics = policy_objective(LossConfig(**config))(whole)
    (gradient,) = torch.autograd.grad(loss, whole.logprobs)

    left = torch.arange(12) != 3
    assert whole.proximal is not None
    assert whole.reference is not None
    without = Tokens(
        whole.logprobs.detach()[left].requires_grad_(), whole.behavior[left], whole.advantages[left],
        whole.weights[left], whole.sample[left], None, whole.proximal[left], whole.reference[left],
    )  # fmt: skip
    other, expected = policy_objective(LossConfig(**config))(without)
    (other_gradient,) = torch.autograd.grad(other, without.logprobs)
    torch.testing.assert_close(loss, other)
    torch.testing.assert_close(gradient[left], other_gradient)
    assert gradient[3] == 0
    assert metrics.keys() == expected.keys()
    for name, value in metrics.items():
        torch.testing.assert_close(value, expected[name])


def test_tokens_of_weight_zero_have_no_part_in_the_ratio_of_their_sequence() -> None:
    whole = golden_tokens("sequence")
    whole.weights[0], whole.behavior[0] = 0.0, 0.0
    without = Tokens(
        *(getattr(whole, name)[1:] for name in ("logprobs", "behavior", "advantages", "weights", "sample"))
    )
    torch.testing.assert_close(loss_of(whole, **GSPO), loss_of(without, **GSPO))


@pytest.mark.parametrize("kind", ["ppo", "gspo", "dppo"])
@pytest.mark.parametrize("far", [-200.0, 200.0])
def test_a_ratio_that_float32_cannot_hold_gives_a_finite_loss_and_gradient(kind: Any, far: float) -> None:
    tokens = Tokens(
        torch.tensor([far], requires_grad=True), torch.zeros(1), torch.tensor([-1.0]), torch.ones(1),
        torch.zeros(1, dtype=torch.long), reference=torch.zeros(1),
    )  # fmt: skip
    config = LossConfig(kind=kind, kl="k3", kl_weight=1.0)
    loss, metrics = policy_objective(config)(tokens)
    assert loss.isfinite()
    assert gradient_of(tokens, config).isfinite().all()
    assert all(value.isfinite() for value in metrics.values())


def test_k3_never_pulls_a_token_away_from_its_reference() -> None:
    """Where e⁻ᵈ is bounded the gradient may vanish, but not change its sign."""
    difference = torch.linspace(-50, 50, 201, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(kl_k3(difference).sum(), difference)
    assert (gradient * difference >= 0).all()
    assert (kl_k3(difference) >= 0).all()


def test_the_mean_of_rank_means_is_the_trap_that_global_weights_avoid() -> None:
    tokens = golden_tokens()
    trap = GOLDEN["two_rank_trap"]
    parts = [(SAMPLE < 2), (SAMPLE >= 2)]
    token_losses = [loss_of(_part(tokens, part)) for part in parts]
    assert sum(token_losses) == pytest.approx(GOLDEN["loss"]["ppo_clip_higher.token_mean(DAPO)"], abs=1e-9)
    # A framework that averages over two ranks needs each rank's sum times two.
    assert [2 * loss for loss in token_losses] == pytest.approx(trap["rank_losses"], abs=1e-6)
    local = [
        loss_of(_part(tokens, part, torch.full_like(SAMPLE[part], 1.0 / int(part.sum()), dtype=torch.float64)))
        for part in parts
    ]
    assert sum(local) / 2 == pytest.approx(trap["mean_of_rank_means"], abs=1e-6)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("config", [{}, GSPO, {"kind": "cispo", "clip_high": 5.0}, {"kl": "k3"}], ids=str)
def test_no_split_into_micro_batches_changes_loss_gradient_or_metrics(aggregation: Any, config: dict[str, Any]) -> None:
    whole = golden_tokens(aggregation, reference="ref")
    objective = policy_objective(LossConfig(**config))
    loss, metrics = objective(whole)
    (gradient,) = torch.autograd.grad(loss, whole.logprobs)
    for cut in (1, 2, 3):
        pieces = [objective(_part(whole, part)) for part in (SAMPLE < cut, SAMPLE >= cut)]
        total = torch.stack([piece for piece, _ in pieces]).sum()
        torch.testing.assert_close(total, loss, rtol=0, atol=1e-12)
        torch.testing.assert_close(torch.autograd.grad(total, whole.logprobs)[0], gradient, rtol=0, atol=1e-12)
        for name, value in metrics.items():
            parts = torch.stack([part[name] for _, part in pieces])
            torch.testing.assert_close(parts.max() if name.endswith("/max") else parts.sum(), value)


def _part(tokens: Tokens, part: Tensor, weights: Tensor | None = None) -> Tokens:
    """Those tokens, their samples counted from 0 as a micro-batch does."""
    sample = tokens.sample[part]
    return Tokens(
        tokens.logprobs[part], tokens.behavior[part], tokens.advantages[part],
        tokens.weights[part] if weights is None else weights, sample - sample.min(),
        reference=None if tokens.reference is None else tokens.reference[part],
    )  # fmt: skip


def test_an_empty_micro_batch_has_the_loss_zero() -> None:
    nothing = torch.zeros(0)
    empty = Tokens(torch.zeros(0, requires_grad=True), nothing, nothing, nothing, nothing.long())
    for config in (LossConfig(), LossConfig(kind="gspo")):
        loss, metrics = policy_objective(config)(empty)
        assert (loss.item(), float(metrics["tokens"])) == (0.0, 0.0)
    assert linear_objective(empty)[0].item() == 0.0


def test_metrics_count_what_was_clipped_and_what_was_masked() -> None:
    tokens = golden_tokens()
    ratio, advantages = (flat("new") - flat("old")).exp(), tokens.advantages
    clipped = ((advantages > 0) & (ratio > 1.28)) | ((advantages < 0) & (ratio < 0.8))
    _, metrics = policy_objective(LossConfig())(tokens)
    assert (int(metrics["tokens"]), int(metrics["clipped"]), int(metrics["masked"])) == (12, int(clipped.sum()), 0)
    assert float(metrics["ratio/max"]) == pytest.approx(float(ratio.max()))
    assert float(metrics["mismatch_k3"]) == pytest.approx(float((ratio - 1 - ratio.log()).sum()))
    tokens, config = CASES["mis_seq_product_max1.1.token_mean"]
    _, metrics = policy_objective(LossConfig(**config))(tokens)
    assert int(metrics["masked"]) == COUNTS[1] + COUNTS[2]


def test_entropy_is_a_bonus_and_a_metric() -> None:
    entropy = torch.linspace(0.1, 1.2, 12, dtype=torch.float64, requires_grad=True)
    plain = golden_tokens()
    tokens = Tokens(plain.logprobs, plain.behavior, plain.advantages, plain.weights, plain.sample, entropy)
    loss, metrics = policy_objective(LossConfig(entropy_weight=0.3))(tokens)
    assert loss.item() == pytest.approx(loss_of(plain) - 0.3 * entropy.mean().item())
    assert float(metrics["entropy"]) == pytest.approx(entropy.sum().item())
    torch.testing.assert_close(torch.autograd.grad(loss, entropy)[0], -0.3 * plain.weights)


def test_rewards_move_only_tokens_with_enough_entropy_and_the_divergence_moves_all() -> None:
    plain = golden_tokens()
    entropy = torch.linspace(0.0, 1.1, 12, dtype=torch.float64)
    reference = plain.logprobs.detach() - 0.5
    given = (plain.logprobs, plain.behavior, plain.advantages, plain.weights, plain.sample, entropy, None, reference)
    choice = entropy >= 0.55

    loss, metrics = policy_objective(LossConfig(kind="reinforce", min_entropy=0.55))(Tokens(*given))
    gradient = torch.autograd.grad(loss, plain.logprobs)[0]
    torch.testing.assert_close(gradient, torch.where(choice, -plain.weights * plain.advantages, 0.0))
    assert (int(metrics["tokens"]), int(metrics["masked"])) == (12, int((~choice).sum()))

    anchored = LossConfig(kind="reinforce", min_entropy=0.55, kl="k2", kl_weight=4.0)
    loss, _ = policy_objective(anchored)(Tokens(*given))
    torch.testing.assert_close(torch.autograd.grad(loss, plain.logprobs)[0], gradient + 2.0 * plain.weights)


@pytest.mark.parametrize("config", [{"kl": "k3"}, PROXIMAL, {"entropy_weight": 0.1}, {"min_entropy": 0.1}], ids=str)
def test_a_loss_without_what_it_needs_says_what_that_is(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs the tokens' (reference|proximal|entropy)"):
        policy_objective(LossConfig(**config))(golden_tokens())


@pytest.mark.parametrize("config", [{"kind": "cispo"}, {"correction": "tis"}], ids=str)
def test_a_configuration_that_cannot_be_meant_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="5 is usual|needs old_policy"):
        LossConfig(**config)


def test_weights_sum_to_one_over_what_counts_and_leave_empty_episodes_out_of_the_denominator() -> None:
    for kind in ("token", "sequence"):
        weights = aggregation_weights([3, 0, 5], kind)
        assert sum(count * weight for count, weight in zip([3, 0, 5], weights, strict=True)) == pytest.approx(1)
        assert weights[1] == 0
    assert aggregation_weights([3, 0, 5], "sequence") == pytest.approx([1 / 6, 0, 1 / 10])
    assert aggregation_weights([3, 0, 5], "constant", 8) == pytest.approx([1 / 16, 0, 1 / 16])
    assert aggregation_weights([0], "token") == [0.0]


def test_linear_objective_is_weighted_likelihood_and_ignores_the_behavior_policy() -> None:
    tokens = golden_tokens()
    tokens.behavior[:] = math.nan
    loss, metrics = linear_objective(tokens)
    assert loss.item() == pytest.approx(-float((tokens.advantages * flat("new")).mean()))
    torch.testing.assert_close(torch.autograd.grad(loss, tokens.logprobs)[0], -tokens.weights * tokens.advantages)
    assert int(metrics["tokens"]) == 12


def test_estimators_agree_near_the_reference() -> None:
    near = torch.tensor([1e-4, -1e-4], dtype=torch.float64)
    torch.testing.assert_close(KL_ESTIMATORS["k2"](near), KL_ESTIMATORS["k3"](near), rtol=1e-3, atol=0)
