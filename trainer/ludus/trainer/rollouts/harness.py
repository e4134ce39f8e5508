"""Harnesses of others in a run: a program plays the episodes, and the policy is its model, behind the gateway."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ludus.client import Episode
from ludus.gateway import Gateway, GatewayLimits, Harness, HarnessEpisode, HarnessFailed, make_harness
from ludus.gateway.session import EpisodeSession, TimeLimit
from ludus.rendering.samples import Sample
from ludus.trainer.core.config import RolloutConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import HarnessNotes

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
        self,
        episode: Episode,
        *,
        name: str,
        seed: int,
        temperature: float,
        limit: TimeLimit,
        again: Callable[[], Awaitable[Episode]] | None,
    ) -> HarnessEpisode:
        """Return an episode for the harness to play, with the limits of the run; `again` starts another one."""
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
            again=again,
        )

    def samples(self, session: EpisodeSession) -> tuple[Sample, ...]:
        """Return what the learner gets of an episode."""
        return session.play_samples if self.config.harness_side_calls == "mask" else session.samples


def notes_of(played: HarnessEpisode) -> HarnessNotes:
    """Return what the harness of an episode did."""
    session = played.session
    return HarnessNotes(
        begins=Counter(call.begins for call in session.calls if call.begins is not None),
        side_calls=sum(call.sample in session.side_samples for call in session.calls),
        rewritten=sum(call.rewritten for call in session.calls),
        ended_by=played.ended_by,
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
