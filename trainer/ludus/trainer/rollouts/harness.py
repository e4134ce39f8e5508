"""Harnesses of others in a run: a program plays the episodes, and the policy is its model, behind the gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ludus.client import Episode
from ludus.gateway import Gateway, GatewayLimits, Harness, HarnessEpisode, HarnessFailed, make_harness
from ludus.gateway.session import TimeLimit
from ludus.trainer.core.config import RolloutConfig
from ludus.trainer.core.errors import ConfigError

if TYPE_CHECKING:
    from ludus.rendering import Renderer
    from ludus.trainer.engines.base import Engine


@dataclass(frozen=True, slots=True)
class HarnessPlayer:
    """The gateway of a run and its harness."""

    gateway: Gateway
    harness: Harness
    config: RolloutConfig

    def episode(
        self, episode: Episode, *, name: str, seed: int, temperature: float, limit: TimeLimit
    ) -> HarnessEpisode:
        """Return an episode for the harness to play, with the limits of the run."""
        return HarnessEpisode(
            episode,
            self.gateway,
            self.harness,
            name,
            seed=seed,
            temperature=temperature,
            episode_seconds=self.config.episode_seconds,
            idle_seconds=self.config.harness_idle_seconds,
            limit=limit,
        )


@asynccontextmanager
async def open_harness(
    config: RolloutConfig, engine: Engine, renderer: Renderer
) -> AsyncIterator[HarnessPlayer | None]:
    """Open the gateway and the harness that a run names; None if it names none. End both at the end.

    Raises:
        ConfigError: there is no such program, or a variable for it is not set.
    """
    if config.harness is None:
        yield None
        return
    missing = sorted(source for source in config.harness_variables.values() if source not in os.environ)
    if missing:
        raise ConfigError(f"rollouts.harness_variables needs {', '.join(missing)}, which is not set; export it")
    variables = {name: os.environ[source] for name, source in config.harness_variables.items()}
    try:
        harness = make_harness(config.harness, variables)
    except HarnessFailed as error:
        raise ConfigError(f"rollouts.harness: {error}") from None
    limits = GatewayLimits(
        max_calls=config.max_turns,
        max_tokens=config.max_tokens,
        context=config.context,
        call_seconds=config.turn_seconds,
        override=config.harness_override,
    )
    async with Gateway(engine, renderer, limits=limits) as gateway:
        try:
            yield HarnessPlayer(gateway, harness, config)
        finally:
            await harness.aclose()
