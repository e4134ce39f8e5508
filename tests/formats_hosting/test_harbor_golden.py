"""Episodes of the format harbor earn what Harbor's own runner gives for the same actions."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harbor_episodes import EXAMPLES, REWARD_FILES, SCRIPTS, write_task
from peer_clients import peer_variables, python_of
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.client import RemoteEnvironment, connect
from ludus.protocol.actions import Call
from ludus.protocol.rewards import Reward
from ludus.server import Environment
from ludus.server.tasks.formats import parse_source, resolve

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "peers" / "harbor_golden.py"
SAMPLED = ("word-report", "inventory-merge", "greeting-file")
"""The tasks that `make test` plays; the suite `formats` plays all."""


def environment_of(spec: str) -> type[Environment[Any]]:
    source = parse_source(spec)
    assert source is not None
    (found,) = resolve(source)
    return found


async def harbor(requests: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Play episodes with Harbor's own runner, and return their outcomes."""
    process = await asyncio.create_subprocess_exec(
        python_of("harbor"), str(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=peer_variables(), cwd=PROGRAM.parent,
    )  # fmt: skip
    out, errors = await process.communicate(json.dumps(list(requests)).encode())
    assert process.returncode == 0, errors.decode()[-3000:]
    outcomes: list[dict[str, Any]] = json.loads(out.decode().splitlines()[-1])
    return outcomes


async def play(environment: RemoteEnvironment, cls: type[Environment[Any]], task: str, agent: str) -> Reward:
    """Play an episode: `oracle`, `nop`, or a script for bash."""
    async with environment.episode(split="train", task=task) as episode:
        if agent == "oracle":
            policy = cls.oracle(episode.task)
            action = next(policy)
            while isinstance(action, Call):
                action = policy.send(await episode.call(action))
        elif agent != "nop":
            await episode.call("bash", command=agent)
        reward = (await episode.grade("done")).reward
        assert reward is not None
        return reward


@asynccontextmanager
async def served(serve: Callable[..., Any], cls: type[Environment[Any]]) -> AsyncIterator[RemoteEnvironment]:
    server = await serve(cls)
    async with connect(server.url) as client:
        yield client.environment(cls.name)


def difference(reward: Reward, outcome: Mapping[str, Any]) -> str | None:
    """Return how the reward differs from Harbor's outcome; None if it does not."""
    rewards = outcome.get("rewards")
    if rewards is None:
        return None if reward.value is None else f"{reward.value} for {outcome}"
    parts = {name: part.value for name, part in reward.components.items()}
    if parts != rewards or reward.value != rewards.get("reward", next(iter(rewards.values()), 0)):
        return f"{reward.value} {parts} ({reward.reason}) for {rewards}"
    return None


async def compare(serve: Callable[..., Any], folder: Path, episodes: Sequence[tuple[str, str]]) -> list[str]:
    """Play episodes (task, agent) both ways, and return the differences."""
    cls = environment_of(f"harbor:{folder}#failed-verifier=unscored")
    requests = [{"task": str(folder / task), "agent": agent} for task, agent in episodes]
    expected = asyncio.create_task(harbor(requests))
    async with served(serve, cls) as environment:
        rewards = [await play(environment, cls, task, agent) for task, agent in episodes]
    outcomes = await expected
    pairs = zip(episodes, rewards, outcomes, strict=True)
    return [f"{episode}: {why}" for episode, reward, outcome in pairs if (why := difference(reward, outcome))]


def episodes_of(tasks: Sequence[str]) -> list[tuple[str, str]]:
    return [(task, agent) for task in tasks for agent in ("oracle", "nop", *SCRIPTS[task])]


@NEEDS_BUBBLEWRAP
async def test_sampled_episodes_earn_what_harbors_own_runner_gives(serve: Callable[..., Any]) -> None:
    python_of("harbor")
    episodes = [one for task in SAMPLED for one in episodes_of([task])[:5]]
    assert await compare(serve, EXAMPLES, episodes) == []


@NEEDS_BUBBLEWRAP
@pytest.mark.suite("formats")
async def test_all_hundred_episodes_earn_what_harbors_own_runner_gives(serve: Callable[..., Any]) -> None:
    python_of("harbor")
    episodes = episodes_of(sorted(SCRIPTS))
    assert len(episodes) >= 100
    assert await compare(serve, EXAMPLES, episodes) == []


@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.suite("formats")), 7])
async def test_reward_files_are_read_as_harbor_reads_them(
    serve: Callable[..., Any], tmp_path: Path, every: int
) -> None:
    python_of("harbor")
    names = []
    for number, test in list(enumerate(REWARD_FILES))[::every]:
        names.append(write_task(tmp_path / "tasks" / f"file-{number:02}", test=test).name)
    assert await compare(serve, tmp_path / "tasks", [(name, "nop") for name in names]) == []
