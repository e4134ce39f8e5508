"""The losses, as pure functions of flat tensors over the tokens that the policy sampled.

π is the policy being trained, μ the policy that sampled (the engine's own log-probabilities), π_prox the learner's
policy at the start of the step, and A the advantage. By default, π_old in the ratio r = π/π_old is μ. Then one clip
bounds both staleness and the numerical difference of engine and learner, and a forward pass is saved. With
`old_policy = "proximal"` π_old is π_prox, and the weight w = π_prox/μ corrects for the difference to μ.

An objective is the plain sum of weight × token loss. The weights contain the denominator of the whole optimizer step
(`aggregation_weights`), so the loss and its gradient do not depend on the split into micro-batches or ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ludus.trainer.core.config_learning import LossConfig

Metrics = dict[str, Tensor]
"""Sums over tokens by name; `tokens` is the divisor for means. Names ending in `/max` are maxima."""

MAX_LOG_RATIO = 10.0
"""Ratios are limited to e⁻¹⁰ to e¹⁰: beyond that, nothing can be learned from a token, and float32 would overflow."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a micro-batch, flat. Every tensor is [T]; a token of weight 0 is ignored."""

    logprobs: Tensor
    """log π, with gradient."""
    behavior: Tensor
    """log μ. Tokens for which it is not finite are left out."""
    advantages: Tensor
    weights: Tensor
    """Shares in the loss of the whole optimizer step."""
    sample: Tensor
    """The index of each token's sample in the micro-batch, from 0 (int64)."""
    entropy: Tensor | None = None
    """The entropy of π at the token, in nats, with gradient if it has a weight in the loss."""
    proximal: Tensor | None = None
    """log π_prox."""
    reference: Tensor | None = None
    """log π_ref."""


Objective = Callable[[Tokens], tuple[Tensor, Metrics]]
"""Tokens → loss of a micro-batch (a scalar, the sum over its tokens of weight × token loss), and metrics."""


def policy_objective(config: LossConfig) -> Objective:
    """Return the configured loss: policy loss × correction + kl_weight × KL − entropy_weight × entropy. The policy loss
    is 0 at tokens whose entropy is below `min_entropy`.

    Metrics: `tokens`, `policy`, `clipped` and `masked` (tokens), `mismatch_k3` (k3 estimate of KL(μ‖π)), `ratio/max`
    (of π/μ), and `kl` and `entropy` if they are available.

    The objective raises ValueError if the tokens lack values that the configuration needs.
    """

    def objective(tokens: Tokens) -> tuple[Tensor, Metrics]:
        counted = tokens.behavior.isfinite() & (tokens.weights != 0)
        weights = torch.where(counted, tokens.weights, 0.0)
        behavior = torch.where(counted, tokens.behavior, tokens.logprobs.detach())
        old, correction = behavior, torch.ones_like(behavior)
        if config.old_policy == "proximal":
            old = torch.where(counted, _given(tokens.proximal, "proximal"), tokens.logprobs.detach())
            correction = correction_weights(old - behavior, tokens.sample, config)

        policy, clipped, dropped = _policy_loss(tokens, old, counted, config)
        if config.min_entropy > 0:
            certain = _given(tokens.entropy, "entropy").detach() < config.min_entropy
            policy, dropped = torch.where(certain, 0.0, policy), dropped | certain
        loss = correction * policy
        moved = (tokens.logprobs.detach() - behavior)[counted]
        metrics = {
            "tokens": counted.sum(),
            "policy": loss.detach()[counted].sum(),
            "clipped": (clipped & counted).sum(),
            "masked": ((dropped | (correction == 0)) & counted).sum(),
            "mismatch_k3": kl_k3(-moved).sum(),
            "ratio/max": _ratio(moved).max() if len(moved) else moved.sum(),
        }
        if config.kl != "none":
            reference = torch.where(counted, _given(tokens.reference, "reference"), tokens.logprobs.detach())
            divergence = KL_ESTIMATORS[config.kl](tokens.logprobs - reference)
            loss = loss + config.kl_weight * divergence
            metrics["kl"] = divergence.detach()[counted].sum()
        if config.entropy_weight != 0:
            loss = loss - config.entropy_weight * _given(tokens.entropy, "entropy")
        if tokens.entropy is not None:
            metrics["entropy"] = tokens.entropy.detach()[counted].sum()
        return torch.where(counted, weights * loss, 0.0).sum(), metrics

    return objective


def linear_objective(tokens: Tokens) -> tuple[Tensor, Metrics]:
    """Return −Σ weight · A · log π and metrics: maximum likelihood if A is 1 (SFT), and the exact gradient of DPO
    (`ludus.trainer.learning.dpo`). The behavior policy is not used.
    """
    counted = tokens.weights != 0
    loss = torch.where(counted, -tokens.weights * tokens.advantages * tokens.logprobs, 0.0).sum()
    metrics = {"tokens": counted.sum(), "policy": -(tokens.advantages * tokens.logprobs.detach())[counted].sum()}
    if tokens.entropy is not None:
        metrics["entropy"] = tokens.entropy.detach()[counted].sum()
    return loss, metrics


def _policy_loss(tokens: Tokens, old: Tensor, counted: Tensor, config: LossConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return the token losses of the configured kind, which tokens were clipped, and which were dropped."""
    logprobs, advantages = tokens.logprobs, tokens.advantages
    low, high = config.clip_low, config.clip_high
    log_ratio = logprobs - old
    none = torch.zeros_like(counted)
    match config.kind:
        case "ppo":
            return *ppo_clip(log_ratio, advantages, low, high, config.dual_clip), none
        case "gspo":
            of_sequence = sequence_log_ratio(log_ratio, counted, tokens.sample)
            return *ppo_clip(of_sequence, advantages, low, high, config.dual_clip), none
        case "cispo":
            return *cispo(logprobs, log_ratio, advantages, high), none
        case "reinforce":
            return -advantages * logprobs, none, none
        case "dppo":
            loss, dropped = dppo(logprobs, old, advantages, low, high)
            return loss, none, dropped


def ppo_clip(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute −min(r A, clip(r, 1 − low, 1 + high) A) (PPO, 1707.06347; `high` > `low` is DAPO's clip-higher,
    2503.14476). Where A < 0 it is at most −c A with `dual` = c (dual clip, 1912.09729).

    Returns:
        Token losses, and the tokens whose gradient was clipped.
    """
    ratio = _ratio(log_ratio)
    free, bounded = -ratio * advantages, -ratio.clamp(1 - low, 1 + high) * advantages
    loss, clipped = torch.maximum(free, bounded), bounded > free
    if dual is not None:
        ceiling = torch.where(advantages < 0, -dual * advantages, torch.inf)
        loss, clipped = torch.minimum(loss, ceiling), clipped | (loss > ceiling)
    return loss, clipped


def sequence_log_ratio(log_ratio: Tensor, counted: Tensor, sample: Tensor) -> Tensor:
    """Return the log of GSPO's (2507.18071) sequence-level ratio s = exp(mean over the sample's tokens of log r), for
    each token as sg[s] · π/sg[π] (the paper's GSPO-token). Value and gradient are those of GSPO if all tokens of a
    sample have the same advantage; otherwise each token keeps its own credit.
    """
    count = sequence_sum(counted.to(log_ratio.dtype), sample).clamp(min=1)
    mean = sequence_sum(log_ratio.detach(), sample) / count
    return mean + (log_ratio - log_ratio.detach())


def cispo(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """Compute −sg[min(r, cap)] · A · log π (MiniMax-M1, 2506.13585; the cap as in ScaleRL, 2510.13786). Every token
    keeps a gradient, whose size is bounded.

    Returns:
        Token losses, and the tokens whose ratio was capped.
    """
    ratio = _ratio(log_ratio.detach())
    return -ratio.clamp(max=cap) * advantages * logprobs, ratio > cap


def dppo(logprobs: Tensor, old: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Compute −r A, except 0 where the probability has already moved too far in the direction of the advantage: A > 0
    and π − π_old > high, or A < 0 and π_old − π > low (DPPO with total variation, 2602.04879). So rare tokens, whose
    ratio is not informative, are not clipped early.

    Returns:
        Token losses, and which tokens were dropped.
    """
    moved = logprobs.detach().exp() - old.exp()
    dropped = ((advantages > 0) & (moved > high)) | ((advantages < 0) & (moved < -low))
    return torch.where(dropped, 0.0, -_ratio(logprobs - old) * advantages), dropped


def correction_weights(log_weight: Tensor, sample: Tensor, config: LossConfig) -> Tensor:
    """Return the factor of the policy loss that corrects for the difference of π_prox and μ, from log w = log π_prox −
    log μ.

    * `decoupled`: w (2110.00641, AReaL 2505.24298)
    * `tis`: min(w, high) (truncated importance sampling, fengyao.notion.site/off-policy-rl)
    * `tis_sequence`: min(Π w over the sample, high)
    * `mis`: Π w over the sample, 0 outside [low, high] (masked importance sampling, 2512.23075)
    * `icepop`: w, 0 outside [low, high] (ringtech.notion.site/icepop)
    """
    low, high = config.correction_low, config.correction_high
    if config.correction in ("tis_sequence", "mis"):
        log_weight = sequence_sum(log_weight, sample)
    weight = _ratio(log_weight)
    match config.correction:
        case "none":
            return torch.ones_like(weight)
        case "decoupled":
            return weight
        case "tis" | "tis_sequence":
            return weight.clamp(max=high)
        case "mis" | "icepop":
            return torch.where((weight >= low) & (weight <= high), weight, 0.0)


def kl_k2(difference: Tensor) -> Tensor:
    """Return d²/2 with d = log π − log π_ref, whose gradient on-policy is that of the reverse KL divergence
    (joschu.net/blog/kl-approx.html)."""
    return difference.square() / 2


def kl_k3(difference: Tensor) -> Tensor:
    """Return e⁻ᵈ − 1 + d, the estimator of GRPO (2402.03300): unbiased, never negative, of low variance. Its gradient
    is biased."""
    bounded = difference.clamp(min=-MAX_LOG_RATIO)
    return torch.expm1(-bounded) + bounded


KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k2": kl_k2, "k3": kl_k3}


def aggregation_weights(
    counts: Sequence[int], kind: Literal["token", "sequence", "constant"], constant: int = 1
) -> list[float]:
    """Return for each episode the weight of its tokens in the loss. `counts` are the numbers of tokens that count in
    each episode of the whole optimizer step, over all micro-batches and ranks.

    * `token`: 1/N, N all tokens (DAPO, 2503.14476)
    * `sequence`: 1/(E nᵢ), nᵢ the episode's tokens, E the episodes (GRPO, 2402.03300)
    * `constant`: 1/(E L), L a constant such as the longest length (Dr.GRPO, 2503.20783)

    Episodes without tokens that count are not part of E; their weight is 0.
    """
    episodes, total = sum(count > 0 for count in counts), sum(counts)
    divisors = {
        "token": [total for _ in counts],
        "sequence": [episodes * count for count in counts],
        "constant": [episodes * constant for _ in counts],
    }[kind]
    return [1 / divisor if count else 0.0 for count, divisor in zip(counts, divisors, strict=True)]


def sequence_sum(values: Tensor, sample: Tensor) -> Tensor:
    """Return for each token the sum of `values` over its sample."""
    samples = int(sample.max()) + 1 if len(sample) else 0
    return values.new_zeros(samples).index_add(0, sample, values)[sample]


def _ratio(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _given(values: Tensor | None, name: str) -> Tensor:
    if values is None:
        raise ValueError(f"this loss needs the tokens' {name}")
    return values
