"""The canary: after every weight update, do engine and learner give the same tokens the same probabilities?

Weights that did not arrive (a tied head left stale, an adapter not reloaded, a cache kept) show in no other way: the
run goes on, and learns from the wrong ratios.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from ludus.trainer.config import CanaryConfig
from ludus.trainer.engines.base import Engine
from ludus.trainer.errors import CanaryError

TOLERANCES: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 5e-2}


@runtime_checkable
class ReplicatedEngine(Protocol):
    """An engine with several copies of the weights, each of which may be the wrong one."""

    async def replica_logprobs(self, ids: Sequence[int]) -> Mapping[str, list[float]]:
        """What `Engine.logprobs` returns, from each replica, under its name."""
        ...


async def check(
    engine: Engine,
    expected: Callable[[Sequence[int]], Awaitable[list[float]]],
    config: CanaryConfig,
    *,
    vocabulary: int,
    dtype: str,
    seed: int,
) -> float:
    """Compare the log-probabilities of one fixed random sequence.

    Args:
        engine: asked for all its replicas, if it has several.
        expected: the learner's own log-probabilities of `ids[1:]`.
        config: the length and the tolerance.
        vocabulary: token ids are drawn from `range(vocabulary)`.
        dtype: what the engine computes in; decides the tolerance where `config` does not.
        seed: of the sequence: the same one at every check of a run.

    Returns:
        The mean absolute difference in nats, of the replica that is furthest off.

    Raises:
        CanaryError: the difference is greater than the tolerance, or not a number.
        EngineError: the engine did not answer.
    """
    draw = random.Random(seed)
    ids = [draw.randrange(vocabulary) for _ in range(config.tokens)]
    wanted = await expected(ids)
    if isinstance(engine, ReplicatedEngine):
        answers = await engine.replica_logprobs(ids)
    else:
        answers = {"the engine": await engine.logprobs(ids)}
    tolerance = config.tolerance or TOLERANCES[dtype]
    worst = 0.0
    for name, logprobs in answers.items():
        distance = sum(abs(a - b) for a, b in zip(logprobs, wanted, strict=True)) / len(wanted)
        if not math.isfinite(distance) or distance > tolerance:
            raise CanaryError(
                f"after the update to version {engine.version}, {name} and the learner give the same "
                f"{len(wanted)} tokens log-probabilities that differ by {distance:.3g} nats on average "
                f"(allowed: {tolerance:.3g}, engine.canary.tolerance). The weights did not arrive as they were sent: "
                f"tied embeddings, another dtype, an adapter not merged, or another model are the usual causes"
            )
        worst = max(worst, distance)
    return worst
