"""The canary: a check after every weight update that engine and learner give the same tokens the same probabilities.

Weights that did not arrive (a tied head left stale, an adapter not reloaded, a cache kept) cause no other symptom: the
run continues and learns from wrong ratios. The learner computes the text after another sample of the same row, as in
training, so that a model that mixes packed samples differs from the engine too.

Even with equal weights, engine and learner differ by an amount that depends on model, kernels and dtype. So the first
check of a run, where both hold the same loaded weights, has a generous limit, and later checks may differ by a multiple
of what the first one found.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice
from typing import Final

from ludus.trainer.core.config import CanaryConfig
from ludus.trainer.core.errors import CanaryError
from ludus.trainer.core.probe import LIMITS
from ludus.trainer.engines.base import Engine

FACTOR: Final = 4.0
"""Later checks may differ by this many times the difference of the first check."""


class Canary:
    """The checks of a run.

    Args:
        engine: the engine to check.
        config: the number of tokens, and the tolerance if it is not measured.
        dtype: the dtype in which the engine computes.
        ids: tokens of ordinary text (`core.probe.TEXT`), at least two; repeated or cut to the configured number.
        measured: the difference in the first check of the run; None for a new run.
    """

    def __init__(
        self, engine: Engine, config: CanaryConfig, *, dtype: str, ids: Sequence[int], measured: float | None = None
    ) -> None:
        self._engine = engine
        self._config = config
        self._first, self._least = LIMITS[dtype]
        self._ids = list(islice(cycle(ids), min(config.tokens, engine.context)))
        self.measured = measured
        """See the arguments; set by the first check."""

    @property
    def tolerance(self) -> float:
        """The maximum mean difference in the next check."""
        if self._config.tolerance is not None:
            return self._config.tolerance
        return self._first if self.measured is None else max(self._least, FACTOR * self.measured)

    async def check(self, expected: Callable[[Sequence[int]], Awaitable[list[float]]]) -> float:
        """Compare the log-probabilities that engine and learner give the tokens.

        Args:
            expected: called with the ids; returns the learner's log-probabilities of `ids[1:]`.

        Returns:
            The mean absolute difference in nats, of the replica with the greatest difference.

        Raises:
            CanaryError: the difference is greater than the tolerance, or not finite.
            EngineError: the engine did not answer.
        """
        wanted, worst = await expected(self._ids), 0.0
        for name, logprobs in (await self._engine.logprobs(self._ids)).items():
            distance = sum(abs(a - b) for a, b in zip(logprobs, wanted, strict=True)) / len(wanted)
            if not math.isfinite(distance) or distance > self.tolerance:
                raise CanaryError(self._blame(name, distance, len(wanted)))
            worst = max(worst, distance)
        self.measured = worst if self.measured is None else self.measured
        return worst

    def _blame(self, name: str, distance: float, tokens: int) -> str:
        if self._config.tolerance is not None:
            allowed = "engine.canary.tolerance"
        elif self.measured is None:
            allowed = "for the first check"
        else:
            allowed = f"after the first check found {self.measured:.3g}"
        return (
            f"after the update to version {self._engine.version}, {name} and the learner give the same {tokens} tokens "
            f"log-probabilities that differ by {distance:.3g} nats on average (allowed: {self.tolerance:.3g}, "
            f"{allowed}). The weights did not arrive as they were sent: tied embeddings, another dtype, an adapter not "
            "merged, or another model are the usual causes. If both are right, set engine.canary.tolerance"
        )
