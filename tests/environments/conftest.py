"""A host with every built-in environment, and a player that drives its episodes."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Generator
from importlib.metadata import entry_points
from typing import Any

import pytest

from ludus.protocol import Answer, Call, EpisodeInfo, Reward, StartedEpisode, StepResult, Task
from ludus.protocol import episodes as e
from ludus.server import EpisodeHost
from ludus.server.auth.principal import Principal

Policy = Generator[Call | Answer, StepResult, None]


class Player:
    """Plays whole episodes against a host."""

    def __init__(self, host: EpisodeHost) -> None:
        self.host = host
        self.principal = Principal.open()
        self._keys = map(str, itertools.count())

    def task(self, environment: str, split: str, index: int) -> Task:
        """The author's own task, private fields included."""
        task: Task = self.host.catalog[environment].splits[split].get(index)
        return task

    def oracle(self, environment: str, split: str, index: int) -> Policy:
        return self.host.catalog[environment].cls.oracle(self.task(environment, split, index))

    async def start(
        self, environment: str, split: str, index: int, seed: int = 0, count: int = 1
    ) -> list[StartedEpisode]:
        params = e.StartParams(
            environment=environment, split=split, index=index, seed=seed, count=count, key=next(self._keys)
        )
        return list((await self.host.start(params, self.principal)).episodes)

    async def step(self, episode: str, tool: str, **arguments: Any) -> StepResult:
        info = await self.info(episode)
        params = e.StepParams(
            episode=episode, step=info.steps + 1, tool=tool, arguments=arguments, key=next(self._keys)
        )
        return await self.host.step(params, self.principal)

    async def answer(self, episode: str, text: str) -> EpisodeInfo:
        params = e.GradeParams(episode=episode, answer=text, key=next(self._keys))
        return (await self.host.grade(params, self.principal)).info

    async def info(self, episode: str) -> EpisodeInfo:
        return (await self.host.get_episode(e.GetEpisodeParams(episode=episode), self.principal)).info

    async def rewards(self, episode: str) -> tuple[Reward, list[Reward]]:
        """The total, and the reward of each step."""
        result = await self.host.rewards(e.RewardsParams(episode=episode), self.principal)
        return result.total, [entry.reward for entry in result.entries]

    async def play(self, episode: str, policy: Policy) -> list[StepResult]:
        """Drive an episode by a policy until either ends."""
        results: list[StepResult] = []
        action = next(policy, None)
        while isinstance(action, Call):
            results.append(await self.step(episode, action.tool, **action.arguments))
            if results[-1].ended:
                break
            try:
                action = policy.send(results[-1])
            except StopIteration:
                break
        if isinstance(action, Answer):
            await self.answer(episode, action.text)
        return results


@pytest.fixture
def load() -> Callable[..., list[Any]]:
    """All environment classes of our own that are registered as plugins, or the one that publishes a name."""

    def read(published: str | None = None) -> list[Any]:
        ours = [
            entry for entry in entry_points(group="ludus.environments") if entry.value.startswith(("ludus.", "ludus_"))
        ]
        return [
            entry.load()
            for entry in ours
            if published is None or published == entry.name or published.startswith(f"{entry.name}-")
        ]

    return read


def folder_of(cls: type[Any]) -> str:
    """The last part of the package of an environment: `swe` of `ludus.environments.swe`, `sql` of `ludus_sql`."""
    return cls.__module__.removeprefix("ludus.environments.").removeprefix("ludus_").partition(".")[0]


@pytest.fixture
async def player(
    load: Callable[..., list[Any]], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Player]:
    """A player of the environment that the test's parameter `name` names, or of all.

    Without that parameter, those in sandboxes are left out where the file is not about them. Sandboxes start on demand.
    """
    callspec = getattr(request.node, "callspec", None)
    name = callspec.params.get("name") if callspec else None
    about = request.node.path.stem
    classes = load(name)
    if name is None and about not in ("test_every_environment", "test_golden"):
        classes = [cls for cls in classes if cls.sandbox_settings is None or folder_of(cls) in about]
    for cls in classes:
        if cls.sandbox_settings is not None:
            if shutil.which("bwrap") is None:
                pytest.skip("bubblewrap is not installed")
            monkeypatch.setattr(cls, "sandbox_settings", cls.sandbox_settings.but(warm=0, background=()))
    async with EpisodeHost(classes) as host:
        yield Player(host)
