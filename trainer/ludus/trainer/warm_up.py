"""The warm-up before the first rollout: supervised learning (SFT), then preferences (DPO). It can be resumed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ludus.rendering import Renderer
from ludus.trainer.config import DpoConfig, SftConfig, TrainConfig
from ludus.trainer.errors import TrainerError
from ludus.trainer.learning.dpo import preference_pairs
from ludus.trainer.learning.sft import EpisodeSamples, demonstrations, own_episodes, sft_batches
from ludus.trainer.samples import RolloutGroup, Sample


class Host(Protocol):
    """The methods of the run that the warm-up uses."""

    config: TrainConfig
    renderer: Renderer

    async def do(self, order: str, *arguments: Any) -> Any:
        """Run a method of `Worker` on every rank; raise `Interrupted` if a signal has arrived."""
        ...

    async def own_groups(self, count: int) -> list[RolloutGroup]:
        """Run groups of episodes with the current policy."""
        ...

    async def save(self) -> None:
        """Write a checkpoint."""
        ...

    def note(self, text: str) -> None:
        """Record a note."""
        ...


@dataclass(slots=True)
class WarmUp:
    """The progress of the warm-up. Its state is part of every checkpoint."""

    imitated: int = 0
    """Batches of `sft` learned from."""
    preferred: int = 0
    """Batches of `dpo` learned from."""
    reference: list[float] | None = None
    """Log-probabilities of the pairs of `dpo` under the policy before the first of these batches."""

    @property
    def steps(self) -> int:
        """The number of batches learned from."""
        return self.imitated + self.preferred

    def state(self) -> dict[str, Any]:
        """Return the arguments that create an equal object, JSON-ready."""
        return asdict(self)

    def unfinished(self, config: TrainConfig) -> bool:
        """Return whether batches are left to learn from."""
        return (config.sft is not None and self.imitated < config.sft.steps) or (
            config.dpo is not None and self.preferred < config.dpo.steps
        )

    async def run(self, host: Host) -> None:
        """Learn from the remaining batches and save every `checkpoints.every` batches.

        Raises:
            TrainerError: as for a run.
        """
        config = host.config
        if config.sft is not None and self.imitated < config.sft.steps:
            await self._imitate(host, config.sft)
        if config.dpo is not None and self.preferred < config.dpo.steps:
            await self._prefer(host, config.dpo)

    async def _imitate(self, host: Host, sft: SftConfig) -> None:
        config = host.config
        episodes = demonstrations(sft, host.renderer, context=config.rollouts.context)
        if sft.own_groups:
            episodes += await self._own_episodes(host, sft)
        losses: list[float] = []
        for batch in sft_batches(episodes, sft, seed=config.seed, done=self.imitated):
            rate = sft.learning_rate * (1 - self.imitated / sft.steps)
            losses.append((await host.do("imitate", batch, rate))["loss/total"])
            self.imitated += 1
            await self._save_if_due(host)
        host.note(
            f"warm-up: {len(losses)} batches of {len(episodes)} episodes, "
            f"loss {losses[0]:.3f} → {losses[-1]:.3f} nats per token"
        )

    async def _own_episodes(self, host: Host, sft: SftConfig) -> list[EpisodeSamples]:
        """Return the policy's own good episodes. A resumed warm-up reads them from a file: its policy has changed."""
        path = host.config.output / "warm_up_episodes.json"
        try:
            if self.imitated:
                records = json.loads(path.read_text(encoding="utf-8"))
                return [tuple(Sample(**{k: tuple(v) for k, v in s.items()}) for s in episode) for episode in records]
            episodes = own_episodes(await host.own_groups(sft.own_groups), sft.reward)
            path.write_text(json.dumps([[asdict(s) for s in episode] for episode in episodes]), encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TrainerError(f"the episodes of the warm-up in {path} cannot be kept or read: {error}") from None
        return episodes

    async def _prefer(self, host: Host, dpo: DpoConfig) -> None:
        pairs = preference_pairs(dpo, host.renderer, context=host.config.rollouts.context)
        self.reference = await host.do("set_pairs", pairs, self.preferred, self.reference)
        metrics: dict[str, float] = {}
        begun = self.preferred
        while self.preferred < dpo.steps:
            metrics = await host.do("prefer")
            self.preferred += 1
            await self._save_if_due(host)
        host.note(
            f"preferences: {dpo.steps - begun} batches of {len(pairs)} pairs, accuracy {metrics['dpo/accuracy']:.2f}"
        )

    async def _save_if_due(self, host: Host) -> None:
        every = host.config.checkpoints.every
        if every and self.steps % every == 0:
            await host.save()
