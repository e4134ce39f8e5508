"""The first use: five environments as a stranger writes them pass validation, are played over MCP, and are learned.

Each environment is one file that follows README and tutorial. A baseline is what a policy earns on the held-out tasks
that has not understood the task: random calls, or the one obvious thing to do.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client
from terminal import run_ludus_here

from ludus.client import Call, Conversation, RandomPolicy, connect, read_trajectories, rollout_all, text_of
from ludus.client.local_server import LocalServer
from ludus.protocol.content import Message
from ludus.validation.core.oracle import DemonstratorPolicy, OraclePolicy

HERE: Final = Path(__file__).parent
LUDUS: Final = Path(sys.executable).with_name("ludus")
ENVIRONMENTS: Final = {
    "tickets": "Tickets", "form": "OrderForm", "sorting": "Sorting", "lookup": "BossRoom", "nim": "Nim",
}  # fmt: skip
GAIN: Final = 0.20
"""By how much a trained policy must be better than the baseline, on tasks that it has not seen."""
each_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def target(name: str) -> str:
    return f"{HERE / name}.py:{ENVIRONMENTS[name]}"


def prompt_of(conversation: Conversation) -> str:
    return "\n".join(text_of(item.content) for item in conversation.items if isinstance(item, Message))


async def copied(conversation: Conversation) -> Call:
    """Give the numbers in the order of the prompt."""
    return Call("answer", {"numbers": [int(one) for one in re.findall(r"\d", prompt_of(conversation))]})


async def one_stone(conversation: Conversation) -> Call:
    """Take one stone, whatever happens."""
    return Call("take", {"count": 1})


async def first_team(conversation: Conversation) -> Call:
    """Guess a ticket, without looking."""
    return Call("assign", {"ticket": 500, "team": "billing"})


async def usual_order(conversation: Conversation) -> Call:
    """Fill in the right name and guess the rest."""
    name = next(one for one in re.findall(r"[A-Z][a-z]+", prompt_of(conversation)) if one not in ("Hi", "Please"))
    return Call("fill", {"name": name, "item": "lamp", "count": 5, "day": "Monday"})


async def some_room(conversation: Conversation) -> Call:
    """Guess a room."""
    return Call("answer", {"room": 50})


OBVIOUS: Final[dict[str, Callable[[Conversation], Awaitable[Call]]]] = {
    "tickets": first_team, "form": usual_order, "sorting": copied, "lookup": some_room, "nim": one_stone,
}  # fmt: skip


async def baseline(name: str) -> float:
    """Return the better mean reward of random calls and of the obvious thing, on 100 held-out tasks."""
    server, means = LocalServer((target(name),)), []
    try:
        async with connect(server.url) as client:
            (info,) = await client.environments()
            for policy in (RandomPolicy(0), OBVIOUS[name]):
                played = await rollout_all(client.environment(info.name), policy, split="test", n=100)
                values = [one.value for one in played if one.value is not None]
                assert len(values) == len(played)
                means.append(sum(values) / len(values))
    finally:
        server.close()
    return max(means)


@pytest.mark.suite("first-use", first=1)
@pytest.mark.timeout(240)
@each_environment
def test_the_strict_command_finds_nothing(name: str) -> None:
    done = run_ludus_here("validate", target(name), "--strict", "--tasks", "4", cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.suite("first-use", first=1)
@pytest.mark.timeout(120)
@each_environment
async def test_a_stock_mcp_client_plays_the_demonstration_and_earns_the_reward(name: str) -> None:
    """The calls of the environment's own policy, made by a stock client, which sees tools and texts only."""
    server = LocalServer((target(name),))
    try:
        async with connect(server.url) as control:
            (info,) = await control.environments()
            own: Any = DemonstratorPolicy(target(name))
            own = own if own.defined(info.name) else OraclePolicy(target(name))
            (played,) = await rollout_all(control.environment(info.name), own, split="test", n=1, seed=3)
            calls = [one for one in played.items if one["type"] == "function_call"]
            async with control.environment(info.name).episode(
                split="test", index=played.task.index, seed=played.seed
            ) as episode:
                assert episode.play_url is not None
                async with Client(episode.play_url) as agent:
                    assert {tool.name for tool in (await agent.list_tools()).tools} >= {one["name"] for one in calls}
                    for call in calls:
                        result = await agent.call_tool(call["name"], json.loads(call["arguments"]))
                        assert not result.is_error
                assert (await episode.rewards()).total.value == 1.0
    finally:
        server.close()


@pytest.mark.suite("first-use", first=1)
@pytest.mark.timeout(120)
@each_environment
def test_demonstrations_win_and_can_be_imitated(name: str, tmp_path: Path) -> None:
    done = run_ludus_here("demos", target(name), "-n", 60, "--out", "games.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note:" not in done.stdout
    assert {one.value for one in read_trajectories(tmp_path / "games.jsonl")} == {1.0}


@pytest.mark.suite("first-use")
@pytest.mark.timeout(1800)
@each_environment
def test_a_tiny_model_learns_it_on_tasks_that_it_has_not_seen(name: str, tmp_path: Path) -> None:
    train = ("train", "--tiny-from", "games.jsonl", "--serve", target(name), "--output=run")
    for command in (("demos", target(name), "--out", "games.jsonl"), train):
        done = subprocess.run(
            [LUDUS, *command], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1700
        )
        assert done.returncode == 0, done.stdout + done.stderr
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    held_out = [value for record in records for key, value in record.items()
                if re.fullmatch(r"evaluation/\w+/mean", key)]  # fmt: skip
    floor = asyncio.run(baseline(name))
    assert held_out[-1] >= floor + GAIN, f"baseline {floor:.3f}, held-out {held_out[0]:.3f} → {held_out[-1]:.3f}"
