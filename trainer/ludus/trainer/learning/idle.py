"""Idle steps, which learn nothing from rewards: their number and their causes."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import TrainBatch
from ludus.trainer.learning.batch import ROUNDING


class IdleSteps:
    """A counter of this process's steps whose gradient was exactly 0 or came from no reward. It explains each step."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._steps = 0
        self._idle = 0
        self._last = ""

    def check(self, step: int, batch: TrainBatch, metrics: Mapping[str, float]) -> str | None:
        """Return a message about a step (counted from 1) that learned nothing from rewards; None for any other step."""
        self._steps += 1
        counted = (pair for item in batch.samples for pair in zip(item.advantages, item.weights, strict=True))
        zero = metrics.get("loss/gradient_norm", 0.0) == 0
        if not zero and any(weight and abs(advantage) > ROUNDING for advantage, weight in counted):
            return None
        self._idle += 1
        advantages = [
            advantage
            for item in batch.samples
            for advantage, weight in zip(item.advantages, item.weights, strict=True)
            if weight
        ]
        flat = sum(abs(advantage) <= ROUNDING for advantage in advantages)
        clipped = round(metrics.get("loss/clipped", 0.0) * len(advantages))
        masked = round(metrics.get("loss/masked", 0.0) * len(advantages))
        cause = self._cause(len(advantages), flat, clipped, masked)
        reason = "its gradient is exactly 0" if zero else "only the KL and entropy terms moved the policy"
        again, self._last = cause == self._last, cause
        if again:
            return f"step {step} learned nothing from its rewards, again: {self._idle} of {self._steps} steps so far"
        sampled = sum(rollout.sampled for group in batch.groups for rollout in group.scored)
        return (
            f"step {step} learned nothing from its rewards: {reason}. Of {sampled} sampled tokens {len(advantages)} "
            f"count in the loss; of those {flat} have an advantage of 0, {clipped} were clipped, and {masked} were "
            f"masked. {cause}"
        )

    def summary(self) -> str | None:
        """Return a message for the end of a run; None if every step learned something."""
        if not self._idle:
            return None
        return f"{self._idle} of {self._steps} steps learned nothing from their rewards. {self._last}"

    def _cause(self, tokens: int, flat: int, clipped: int, masked: int) -> str:
        config = self._config
        if not tokens:
            masking = (
                ' or were masked as truncated (loss.truncated = "mask")' if config.loss.truncated == "mask" else ""
            )
            return (
                f"No token was left: all were sampled with probabilities that are not finite{masking}. Look at "
                "rollout/truncated and at the log-probabilities in rollouts.jsonl."
            )
        if flat == tokens:
            dropping = "" if config.rollouts.drop_zero_variance else ", or set rollouts.drop_zero_variance = true"
            return (
                "All episodes earned the same as those they are compared with. Choose easier or harder tasks, raise "
                f"rollouts.group_size{dropping}."
            )
        if config.loss.min_entropy and flat + masked >= tokens:
            return (
                "Wherever the policy has a choice, it earned what it is compared with: the entropy at all other tokens "
                "is below loss.min_entropy. Lower it, or stop here."
            )
        if flat + clipped + masked >= tokens:
            return (
                "The policy has moved too far from the one that sampled these tokens. Lower optimizer.learning_rate, "
                "rollouts.staleness or optimizer.epochs, or widen loss.clip_low, clip_high and the correction's bounds."
            )
        return (
            "Some tokens have an advantage and were neither clipped nor masked: their gradient is too small for "
            "model.dtype, or the policy gives them a probability of 1. Look at loss/entropy."
        )
