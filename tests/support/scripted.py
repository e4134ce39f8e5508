"""An engine that says what a script contains, and a run up to the learner, for tests of rollouts."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus.rendering import Renderer
from ludus.trainer.collecting.collector import Collector
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import EngineError
from ludus.trainer.engines.base import Generation, Sampling, WeightUpdate
from ludus.trainer.engines.clock import PlayClock
from ludus.trainer.rollouts.sampler import TaskSampler, open_source


def call(name: str, /, **arguments: Any) -> str:
    """A tool call as the tiny model's template writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


Say = str | Awaitable[str]
Script = Callable[[str, random.Random], Say]
"""From the prompt as text, and randomness of the request's seed, to what the policy says."""


def guess(prompt: str, rng: random.Random) -> str:
    """Say a number at random."""
    return call("say", number=rng.randrange(4))


@dataclass
class ScriptedEngine:
    """An engine whose policy is a script; what it is asked is counted."""

    tokenizer: Any
    script: Script = guess
    version: int = 0
    context: int = 4096
    seeds: Counter[int] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    forgotten: Counter[str] = field(default_factory=Counter)
    temperatures: set[float] = field(default_factory=set)
    broken: bool = False
    clock: PlayClock = field(default_factory=PlayClock)

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        self.seeds[seed] += 1
        self.sessions[session] += 1
        self.temperatures.add(sampling.temperature)
        if self.broken:
            raise EngineError("the engine is dead")
        version = self.version
        said = self.script(self.tokenizer.decode(ids), random.Random(seed))
        text = said if isinstance(said, str) else await said
        sampled = [*self.tokenizer.encode(text, add_special_tokens=False), sampling.stop[0]][: sampling.max_tokens]
        rng = random.Random(seed)
        finish: Any = "stop" if sampled[-1] in sampling.stop else "length"
        return Generation(
            tuple(sampled), tuple(-rng.random() for _ in sampled), tuple(version for _ in sampled), finish
        )

    async def logprobs(self, ids: Sequence[int]) -> dict[str, list[float]]:
        return {"the engine": [-1.0] * (len(ids) - 1)}

    async def update_weights(self, update: WeightUpdate) -> None:
        self.version = update.version

    async def forget(self, session: str) -> None:
        self.forgotten[session] += 1

    async def aclose(self) -> None:
        await asyncio.sleep(0)


def make_config(*urls: str, environments: Sequence[dict[str, Any]] = (), **options: Any) -> TrainConfig:
    """A configuration with small groups; `options` are those of `rollouts`, or whole sections."""
    sections = {name: options.pop(name) for name in list(options) if name in TrainConfig.model_fields}
    rollouts = {"groups": 2, "group_size": 4, "staleness": 0, "max_tokens": 200, "retries": 0, **options}
    entries = [{"url": url} for url in urls] + list(environments)
    return TrainConfig.model_validate(
        {
            "output": Path("/nowhere"),
            "model": {"path": "none"},
            "environments": entries,
            "rollouts": rollouts,
            **sections,
        }
    )


class Playing:
    """The parts of a run up to the learner."""

    def __init__(self, config: TrainConfig, engine: ScriptedEngine, renderer: Renderer, source: TaskSampler) -> None:
        self.source = source
        self.collector = Collector(config, engine, renderer, source)
        self._engine = engine

    def sync(self, version: int) -> None:
        """What the main loop does after an update."""
        self._engine.version = version
        self.collector.on_weights_updated(version)


@asynccontextmanager
async def playing(
    config: TrainConfig, engine: ScriptedEngine, renderer: Renderer, state: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Playing]:

    async with open_source(config, **options) as source:
        run = Playing(config, engine, renderer, source)
        if state is not None:
            run.collector.load_state(state)
        async with run.collector:
            yield run
