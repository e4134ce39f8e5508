"""OpenEnv environments, from code and from running servers, against openenv's own client and server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from peer_clients import peer_variables, python_of

from ludus.protocol.errors import AuthoringError, EpisodeFailed, InvalidParams
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = pytest.mark.timeout(300)  # importing the peer takes a minute on a busy machine

PEERS = Path(__file__).parent / "peers"
EXAMPLES = Path(__file__).parents[2] / "examples" / "formats" / "openenv"
WORLD = PEERS / "openenv_world.py"
EPISODES = 40
"""Recorded episodes of each of three environments."""


@pytest.fixture(scope="module")
def golden() -> Iterator[dict[str, Any]]:
    """The peer's own servers, and what its own client recorded from them."""
    command = [python_of("openenv"), str(PEERS / "openenv_golden.py"), str(EXAMPLES), str(EPISODES)]
    variables = {**peer_variables(), "FASTMCP_LOG_LEVEL": "CRITICAL"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the peer's server did not start"
        yield json.loads(line)
        process.kill()


def environment_of(target: str, **options: Any) -> Any:
    source = parse_source(f"openenv:{target}")
    assert source is not None
    return resolve(source.with_options({name: str(value) for name, value in options.items()}))[0]


@pytest.fixture
def hosted() -> Iterator[Any]:
    """Return environments of code in the peer's interpreter."""
    made: list[Any] = []

    def make(target: str, **options: Any) -> Any:
        made.append(environment_of(target, python=python_of("openenv"), **options))
        return made[-1]

    yield make
    for environment in made:
        environment.process.close()


TARGETS = {"orchard": f"{EXAMPLES}/orchard.py:Orchard", "parcels": f"{EXAMPLES}/parcels.py:app",
           "dice": f"{WORLD}:Dice"}  # fmt: skip


async def differences(environment: Any, recorded: list[dict[str, Any]]) -> list[str]:
    """Play the recorded actions and return what differs."""
    found: list[str] = []
    async with play(environment) as world:
        for number, episode in enumerate(recorded):
            reset = episode["reset"]
            split, index = reset.get("split", "train"), reset.get("index", reset.get("seed"))
            local = await world.start(split=split, index=index)
            if not local.prompt.endswith(shown(episode["first"])):
                found.append(f"{number}: first {local.prompt!r}, not {episode['first']}")
            for position, step in enumerate(episode["steps"]):
                action = step["action"]
                tool, arguments = (
                    (action["tool_name"], action["arguments"]) if "tool_name" in action else ("step", action)
                )
                made = await local.call(tool, **arguments)
                told = (made.text, made.reward, made.ended, made.result.metadata.get("metadata") or {})
                want = (shown(step["observation"]), as_reward(step["reward"]), step["done"],
                        step["observation"]["metadata"])  # fmt: skip
                if told != want:
                    found.append(f"{number}.{position}: {told}, not {want}")
            total = sum(as_reward(step["reward"]) or 0.0 for step in episode["steps"])
            if episode["steps"][-1]["done"] and local.reward != pytest.approx(total):
                found.append(f"{number}: {local.reward}, not {total}")
            if not local.ended:
                await local.close()
    return found


def shown(observation: dict[str, Any]) -> str:
    """Return what an agent sees of an observation of the peer's client."""
    if "tool_name" in observation:
        if observation["error"]:
            return f"The tool failed: {observation['error']['message']}"
        return "\n".join(block["text"] for block in observation["result"]["content"])
    return json.dumps({name: value for name, value in observation.items() if name != "metadata"})


def as_reward(value: Any) -> float | None:
    return None if value is None else float(value)


@pytest.mark.parametrize("name", list(TARGETS))
async def test_episodes_of_hosted_code_equal_those_of_the_peers_own_client_and_server(
    golden: dict[str, Any], hosted: Any, name: str
) -> None:
    assert len(golden["episodes"][name]) == EPISODES
    assert await differences(hosted(TARGETS[name]), golden["episodes"][name]) == []


@pytest.mark.parametrize("name", list(TARGETS))
async def test_episodes_of_a_running_server_equal_those_of_the_peers_own_client(
    golden: dict[str, Any], name: str
) -> None:
    assert await differences(environment_of(golden["urls"][name]), golden["episodes"][name]) == []
