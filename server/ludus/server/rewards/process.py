"""A process reward at the end of an episode: one check on every step, all steps concurrently."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.nodes import Check, Node, Offload, Pending, settled
from ludus.server.rewards.verdict import Verdict


@dataclass(frozen=True)
class EachStep(Node):
    """The mean of a check over the steps, each with a component `step-N`, so that trainers can assign credit to each.

    The check sees the attempt as it was after that step: `attempt.steps[-1]` is the step, and there is no answer. With
    a judge, this sends one request per step at the end of the episode; a `@reward(when="step")` method would delay each
    step. A step that cannot be judged leaves the whole unscored; with `optional` on the check, it is left out of the
    mean instead.
    """

    check: Check
    empty: float = 0.0
    """The value of an episode without steps."""

    def names(self) -> Iterator[str]:
        """Yield one name for all steps."""
        yield f"{self._title}/step"

    @property
    def _title(self) -> str:
        return self.name or self.check.label

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Evaluate all steps concurrently."""
        if not attempt.steps:
            return Verdict(self.empty, "there are no steps", self._title, [(Verdict(self.empty, "", "none"), 1.0)])
        pending: list[Pending] = [
            self.check.evaluate(replace(attempt, steps=attempt.steps[:count], answer=""), offload)
            for count in range(1, len(attempt.steps) + 1)
        ]
        outcomes = await settled(pending)
        named = [
            Verdict(outcome.value, outcome.evidence, f"step-{step.number}")
            for step, outcome in zip(attempt.steps, outcomes, strict=True)
        ]
        scored = [outcome.value for outcome in named if outcome.value is not None]
        missing = next((outcome for outcome in named if outcome.value is None), None)
        if not scored or (missing is not None and not self.check.optional):
            assert missing is not None
            return Verdict(
                None, f"{missing.name}: {missing.evidence}", self._title, [(verdict, 0.0) for verdict in named]
            )
        share = 1.0 / len(scored)
        parts = [(verdict, share if verdict.value is not None else 0.0) for verdict in named]
        return Verdict(math.fsum(scored) * share, "", self._title, parts)
