"""The interface of inference engines: token ids in, token ids out, and weight updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ludus.rendering.samples import Finish, Generation, Sampling
from ludus.trainer.engines.clock import PlayClock

__all__ = ["Engine", "Finish", "Generation", "Sampling", "WeightUpdate"]


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """New weights. They can be read once, from one thread."""

    version: int
    tensors: Iterable[tuple[str, torch.Tensor]]
    """Whole tensors in the engine's dtype, with adapters merged, under the names that the engine uses: those of the
    checkpoint for a server, those of transformers' model for an engine in this process. Empty when `adapter` is set."""
    adapter: Path | None = None
    """A folder with the LoRA adapter in PEFT's format, already written, for engines that serve adapters."""


class Engine(Protocol):
    """An engine that samples from the policy. Many tasks of one event loop may call it at once."""

    @property
    def version(self) -> int:
        """The version of the engine's weights; -1 before the first `update_weights`."""
        ...

    @property
    def clock(self) -> PlayClock:
        """The clock for time limits on sampling. It is paused during `update_weights`."""
        ...

    @property
    def context(self) -> int:
        """The maximum number of tokens of a request, prompt and generation together."""
        ...

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """Sample a continuation of `ids`.

        Args:
            ids: the prompt, at least one token.
            sampling: see `Sampling`.
            seed: the seed of this request; every request of a run has a different one.
            session: the episode. Its requests share a prefix, and go to the same replica and cache if there are
                several.

        Raises:
            EngineError: the engine refused, died or took too long.
        """
        ...

    async def logprobs(self, ids: Sequence[int]) -> dict[str, list[float]]:
        """Return the log-probability of each of `ids[1:]` given the ids before it (n - 1 values), from each copy of the
        weights, by the copy's name in messages. For the canary.

        Raises:
            EngineError: as for `generate`.
        """
        ...

    async def update_weights(self, update: WeightUpdate) -> None:
        """Load new weights. Open requests continue, with the new weights from some token on.

        After it returns, every token is sampled with the new version, cached prefixes included.

        Raises:
            EngineError: as for `generate`. The engine may then hold a mixture of weights and must not be sampled from.
        """
        ...

    async def forget(self, session: str) -> None:
        """Release the cache of an episode that has ended."""
        ...

    async def aclose(self) -> None:
        """Stop everything that the engine started."""
        ...
