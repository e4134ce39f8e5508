"""What the trainer asks of an inference engine: tokens in, tokens out, and new weights now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch

from ludus.trainer.engines.clock import PlayClock

Finish = Literal["stop", "length"]
"""Why generation ended: the model gave a stop token (which is the last of the ids), or `max_tokens` was reached."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Training needs temperature 1 and the whole distribution, so that the learner's probabilities are
    those of the policy that sampled; other values are for evaluation."""

    max_tokens: int
    stop: tuple[int, ...]
    """Token ids that end the generation; the one that did is kept."""
    temperature: float = 1.0
    """0 takes the most probable token."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sampled. The three tuples have one length."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural, under the sampling distribution (after temperature)."""
    versions: tuple[int, ...]
    """Of the weights that sampled each token."""
    finish: Finish


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """New weights, to be read once and from one thread."""

    version: int
    tensors: Iterable[tuple[str, torch.Tensor]]
    """Whole tensors in the engine's dtype, adapters merged, under the names that the engine knows: the checkpoint's for
    a server, those of transformers' model for one in this process. When
    `adapter` is set they are the adapter's own, for engines that can serve it."""
    adapter: Path | None = None
    """A folder with the LoRA adapter in PEFT's format, already written."""


class Engine(Protocol):
    """Samples from the policy. Safe to call from many tasks of one event loop at once."""

    @property
    def version(self) -> int:
        """The version of the weights it holds; -1 before the first `update_weights`."""
        ...

    @property
    def clock(self) -> PlayClock:
        """Stands still during `update_weights`, so that limits of time on what is sampled do not count it."""
        ...

    @property
    def context(self) -> int:
        """The most tokens a request may come to: prompt and generation together."""
        ...

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """Sample a continuation of `ids`.

        Args:
            ids: the prompt, at least one token.
            sampling: see `Sampling`.
            seed: makes this request's randomness its own; every request of a run has a different one.
            session: the episode; its requests share a prefix, and the same replica and cache where there are several.

        Raises:
            EngineError: refused, died or took too long.
        """
        ...

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Log-probability of each of `ids` given those before it: n - 1 values, for ids[1:]. For the canary.

        Raises:
            EngineError: as for `generate`.
        """
        ...

    async def update_weights(self, update: WeightUpdate) -> None:
        """Take new weights. Requests under way go on, with the new weights from some token on.

        When it returns, everything sampled from then on is of the new version, cached prefixes included.

        Raises:
            EngineError: as for `generate`; the engine may then hold a mixture and must not be sampled from.
        """
        ...

    async def forget(self, session: str) -> None:
        """The episode is over: what was cached for it may go."""
        ...

    async def aclose(self) -> None:
        """Stop everything it started."""
        ...
