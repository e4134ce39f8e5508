"""The interface through which the gateway samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ludus.rendering.samples import Generation, Sampling


class PolicyEngine(Protocol):
    """An engine that samples from the policy. The engines of `ludus.trainer` are such engines."""

    @property
    def context(self) -> int:
        """The maximum number of tokens of a request, prompt and generation together."""
        ...

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """Sample a continuation of `ids`. Cancellation ends the generation.

        Args:
            ids: the prompt, at least one token.
            sampling: the maximum number of tokens, the token ids that end the turn, and the temperature.
            seed: the seed of this request.
            session: requests of one session share a prefix.
        """
        ...

    async def forget(self, session: str) -> None:
        """Release the cache of a session that has ended."""
        ...
