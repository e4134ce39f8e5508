"""ORS environments, from code and from running servers, against the own clients and servers of ors-sdk and openreward."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_clients import peer_variables, python_of

from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = pytest.mark.timeout(300)  # importing a peer takes half a minute on a busy machine

PEERS = Path(__file__).parent / "peers"
EXAMPLES = Path(__file__).parents[2] / "examples" / "formats" / "ors"
WORLD = PEERS / "ors_world.py"
EPISODES = 60
"""Recorded episodes of each package."""
PACKAGES = {"ors-sdk": "ors", "openreward": "openreward"}
TARGETS = {"ors-sdk": f"{EXAMPLES}/safes.py:Safes", "openreward": f"{EXAMPLES}/museum.py:Museum"}


class Recorded:
    """The own server of a package, and what its own client recorded from it."""

    def __init__(self, package: str) -> None:
        self.package = package
        command = [python_of(package), str(PEERS / "ors_golden.py"), str(EXAMPLES), str(EPISODES), PACKAGES[package]]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=peer_variables()
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the peer's server did not start"
        found = json.loads(line)
        self.urls: dict[str, str] = found["urls"]
        self.episodes: list[dict[str, Any]] = found["episodes"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module", params=list(PACKAGES))
def golden(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    recorded = Recorded(request.param)
    yield recorded
    recorded.close()


def environments_of(target: str, **options: Any) -> list[Any]:
    source = parse_source(f"ors:{target}")
    assert source is not None
    return list(resolve(source.with_options({name: str(value) for name, value in options.items()})))


@pytest.fixture
def hosted() -> Iterator[Any]:
    """Return environments of code in a package's interpreter."""
    made: list[Any] = []

    def make(package: str, target: str, **options: Any) -> Any:
        made.extend(environments_of(target, python=python_of(package), **options))
        return made[-1]

    yield make
    for environment in made:
        environment.process.close()


async def differences(environment: Any, recorded: list[dict[str, Any]]) -> list[str]:
    """Play the recorded actions and return what differs."""
    found: list[str] = []
    async with play(environment) as world:
        for number, episode in enumerate(recorded):
            local = await world.start(split=episode["split"], index=episode["index"])
            if local.prompt != "\n".join(episode["prompt"]):
                found.append(f"{number}: prompt {local.prompt!r}, not {episode['prompt']}")
            for position, step in enumerate(episode["steps"]):
                if "answer" in step:
                    graded = await local.answer(step["answer"])
                    if graded is None or graded.value != step["reward"] or not step["finished"]:
                        found.append(f"{number}: graded {graded}, not {step}")
                    continue
                made = await local.call(step["tool"], **step["arguments"])
                texts = [block.text for block in made.result.content]
                got = (texts, made.reward, made.ended, made.result.metadata.get("metadata"))
                want = (step["texts"], step["reward"], step["finished"], step["metadata"])
                if got != want:
                    found.append(f"{number}.{position}: {got}, not {want}")
            total = sum(step["reward"] or 0.0 for step in episode["steps"])
            if not local.ended:
                await local.close()
            if local.reward != pytest.approx(total):
                found.append(f"{number}: {local.reward}, not {total}")
    return found


async def test_episodes_of_hosted_code_equal_those_of_the_packages_own_client_and_server(
    golden: Recorded, hosted: Any
) -> None:
    assert len(golden.episodes) == EPISODES
    assert await differences(hosted(golden.package, TARGETS[golden.package]), golden.episodes) == []


async def test_episodes_of_a_running_server_equal_those_of_the_packages_own_client(golden: Recorded) -> None:
    (environment,) = environments_of(golden.urls["game"])
    assert await differences(environment, golden.episodes) == []
