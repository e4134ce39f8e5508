"""The warm-up before the first rollout: supervised learning (SFT), then preferences (DPO). It can be resumed."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final, Protocol

from ludus.rendering import Renderer
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.config_learning import DpoConfig, SftConfig
from ludus.trainer.core.errors import TrainerError
from ludus.trainer.core.samples import RolloutGroup, Sample, scored_rewards
from ludus.trainer.core.stopping import StopRequest
from ludus.trainer.learning.dpo import preference_pairs
from ludus.trainer.learning.sft import EpisodeSamples, demonstrations, own_episodes, sft_batches
from ludus.trainer.logs import RunLog
from ludus.trainer.worker import Worker, WorkerGroup

TRIED_EVERY: Final = 20
"""The number of batches between two trials of the policy, if `sft.until` ends the warm-up."""
TRIED_GROUPS: Final = 8
"""The number of groups of episodes in a trial."""
PROGRESS_SECONDS: Final = 5.0
"""The time between two notes on the progress."""


class Host(Protocol):
    """The parts of the run that the warm-up uses."""

    config: TrainConfig
    workers: WorkerGroup
    renderer: Renderer
    log: RunLog
    stop: StopRequest

    async def own_groups(self, count: int) -> list[RolloutGroup]:
        """Run groups of episodes with the current policy."""
        ...

    async def save(self) -> None:
        """Write a checkpoint."""
        ...


@dataclass(slots=True)
class WarmUp:
    """The progress of the warm-up. Its fields are part of every checkpoint."""

    sft_steps: int = 0
    """The number of batches of `sft` learned from."""
    imitated: bool = False
    """Whether `sft` has ended before its last batch, because the policy's own episodes earned enough."""
    dpo_steps: int = 0
    """The number of batches of `dpo` learned from."""
    reference: list[float] | None = None
    """Log-probabilities of the pairs of `dpo` under the policy before the first of these batches."""

    @property
    def steps(self) -> int:
        """The number of batches learned from."""
        return self.sft_steps + self.dpo_steps

    def unfinished(self, config: TrainConfig) -> bool:
        """Return whether batches are left to learn from."""
        return (config.sft is not None and self.sft_steps < config.sft.steps and not self.imitated) or (
            config.dpo is not None and self.dpo_steps < config.dpo.steps
        )

    async def run(self, host: Host) -> None:
        """Learn from the remaining batches and save every `checkpoints.every` batches.

        Raises:
            TrainerError: as for a run.
        """
        config = host.config
        if config.sft is not None and self.sft_steps < config.sft.steps and not self.imitated:
            await self._learn_demonstrations(host, config.sft)
        if config.dpo is not None and self.dpo_steps < config.dpo.steps:
            await self._learn_preferences(host, config.dpo)

    async def _learn_demonstrations(self, host: Host, sft: SftConfig) -> None:
        config = host.config
        episodes = demonstrations(sft, host.renderer, context=config.rollouts.context)
        if sft.own_groups:
            episodes += await self._own_episodes(host, sft)
        losses: list[float] = []
        shown = time.monotonic()
        for batch in sft_batches(episodes, sft, seed=config.seed, done=self.sft_steps):
            rate = sft.learning_rate * (1 - self.sft_steps / sft.steps)
            host.stop.check()
            losses.append((await host.workers.command(Worker.sft_step, batch, rate))["loss/total"])
            self.sft_steps += 1
            await self._save_if_due(host)
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                host.log.note(f"warm-up: batch {self.sft_steps} of {sft.steps}, loss {losses[-1]:.3f} nats per token")
            if await self._imitates(host, sft):
                break
        host.log.note(
            f"warm-up: {len(losses)} batches of {len(episodes)} episodes, "
            f"loss {losses[0]:.3f} → {losses[-1]:.3f} nats per token"
        )

    async def _imitates(self, host: Host, sft: SftConfig) -> bool:
        """Return whether the policy's own episodes earn as much as `sft.until`, which is tried every few batches."""
        if sft.until is None or self.sft_steps % TRIED_EVERY or self.sft_steps == sft.steps:
            return False
        rewards = [reward for group in await host.own_groups(TRIED_GROUPS) for reward in scored_rewards(group.rollouts)]
        if not rewards or (mean := fmean(rewards)) < sft.until:
            return False
        host.log.note(
            f"warm-up: after batch {self.sft_steps} the policy's own episodes earn {mean:.3f}, which is enough"
        )
        self.imitated = True
        return True

    async def _own_episodes(self, host: Host, sft: SftConfig) -> list[EpisodeSamples]:
        """Return the policy's own good episodes. A resumed warm-up reads them from a file: its policy has changed."""
        path = host.config.output / "warm_up_episodes.json"
        try:
            if self.sft_steps:
                records = json.loads(path.read_text(encoding="utf-8"))
                return [tuple(Sample(**{k: tuple(v) for k, v in s.items()}) for s in episode) for episode in records]
            episodes = own_episodes(await host.own_groups(sft.own_groups), sft.reward)
            path.write_text(json.dumps([[asdict(s) for s in episode] for episode in episodes]), encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TrainerError(f"the episodes of the warm-up in {path} cannot be kept or read: {error}") from None
        return episodes

    async def _learn_preferences(self, host: Host, dpo: DpoConfig) -> None:
        pairs = preference_pairs(dpo, host.renderer, context=host.config.rollouts.context)
        self.reference = await host.workers.command(Worker.set_pairs, pairs, self.dpo_steps, self.reference)
        metrics: dict[str, Any] = {}
        first = self.dpo_steps
        while self.dpo_steps < dpo.steps:
            host.stop.check()
            metrics = await host.workers.command(Worker.dpo_step)
            self.dpo_steps += 1
            await self._save_if_due(host)
        host.log.note(
            f"preferences: {dpo.steps - first} batches of {len(pairs)} pairs, accuracy {metrics['dpo/accuracy']:.2f}"
        )

    async def _save_if_due(self, host: Host) -> None:
        every = host.config.checkpoints.every
        if every and self.steps % every == 0:
            await host.save()
