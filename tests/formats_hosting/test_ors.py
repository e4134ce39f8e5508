"""ORS environments, from code and from running servers, against ors-sdk's and openreward's own clients and servers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_clients import peer_variables, python_of

from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.server import EpisodeLimits
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = [
    pytest.mark.suite("formats"),
    pytest.mark.timeout(300),
]  # importing a peer takes half a minute on a busy machine

PEERS = Path(__file__).parent / "peers"
EXAMPLES = Path(__file__).parents[2] / "examples" / "formats" / "ors"
WORLD = PEERS / "ors_world.py"
EPISODES = 60
"""Recorded episodes of each package."""
SAMPLE = 6
"""Those of them that every `make test` plays."""
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
                texts = [getattr(block, "text", None) for block in made.result.content]
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
    assert await differences(hosted(golden.package, TARGETS[golden.package]), golden.episodes[:SAMPLE]) == []


async def test_episodes_of_a_running_server_equal_those_of_the_packages_own_client(golden: Recorded) -> None:
    (environment,) = environments_of(golden.urls["game"])
    assert await differences(environment, golden.episodes[:SAMPLE]) == []


@pytest.mark.suite("formats")
async def test_all_recorded_episodes_are_equal_on_both_ways(golden: Recorded, hosted: Any) -> None:
    assert len(golden.episodes) == EPISODES
    assert await differences(hosted(golden.package, TARGETS[golden.package]), golden.episodes) == []
    assert await differences(environments_of(golden.urls["game"])[0], golden.episodes) == []


async def test_tools_of_toolsets_and_of_tasks_and_all_splits_are_published(golden: Recorded, hosted: Any) -> None:
    first, second = environments_of(golden.urls["world"])
    assert [first.name, second.name] == ["faults", "other"]
    assert {one.name: one.count for one in first.described.splits} == {"train": 3, "hard": 2}
    assert not first.seedable
    assert set(first.described.not_promised) >= {"seeds", "exactly-once", "isolation"}
    for environment in (first, hosted(golden.package, f"{WORLD}:Faults", deterministic="true")):
        async with play(environment) as world:
            plain, special = await world.start(), await world.start(index=1)
            assert (plain.tools, special.tools) == (("do",), ("do", "extra"))
            assert plain.prompt.startswith("task 0")
            assert plain.remote.task.fields == {}
            assert (await special.extra()).reward == 0.125


async def test_a_tool_that_raises_is_shown_if_the_option_says_so_and_the_session_goes_on(
    golden: Recorded, hosted: Any
) -> None:
    running = environments_of(golden.urls["world"], tool_errors="show")[0]
    for environment in (running, hosted(golden.package, f"{WORLD}:Faults", tool_errors="show")):
        async with play(environment) as world:
            episode = await world.start()
            refused = await episode.do(what="raise")
            assert refused.error == "refused"
            assert "this step is broken" in refused.text
            assert (await episode.do(what="go")).error is None


async def test_faults_end_one_episode_unscored_and_no_other(golden: Recorded, hosted: Any) -> None:
    environment = hosted(golden.package, f"{WORLD}:Faults")
    environment.limits = EpisodeLimits(tool_seconds=5)
    async with play(environment) as world:
        other = await world.start(index=1)
        with pytest.raises(LudusError):
            await world.start(index=2)
        for what in ("raise", "exit", "hang"):
            environment.limits = EpisodeLimits(tool_seconds=0.5)
            episode = await world.start()
            with pytest.raises(LudusError):
                await episode.do(what=what)
            await episode.refresh()
            assert what == "hang" or (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.do(what="print")).text == "step 1"
        assert (await other.do(what="long")).text == "word  " * 3000
        assert (await other.call("do", deed=1)).error == "invalid_arguments"
        ended = await other.do(what="end")
        assert (ended.reward, ended.ended, other.end_reason) == (0.5, True, EndReason.COMPLETED)


async def test_secrets_reach_the_environment_from_variables_and_not_the_spec(
    golden: Recorded, hosted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORS_TEST_SECRET", "t0p")
    options = {"secrets": '["ORS_TEST_SECRET"]'}
    for environment in (
        hosted(golden.package, f"{WORLD}:Faults", **options), environments_of(golden.urls["world"], **options)[0]
    ):  # fmt: skip
        async with play(environment) as world:
            episode = await world.start()
            assert (await episode.do(what="secret")).text == "t0p"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (f"{WORLD}:not_an_environment", "is neither an Environment class of ors-sdk or openreward nor a Server"),
        (f"{WORLD}:faults", "has no 'faults'; did you mean 'Faults'?"),
        (f"{WORLD}:Unfinished", "is abstract; it lacks list_splits, list_tasks"),
        ("missing.py:Thing", "there is no file 'missing.py'"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_with_the_reason(hosted: Any, target: str, message: str) -> None:
    with pytest.raises(AuthoringError) as refusal:
        hosted("ors-sdk", target)
    assert message in refusal.value.message


def test_a_missing_package_and_a_wrong_option_are_refused_with_what_to_do() -> None:
    with pytest.raises(AuthoringError, match="-m pip install ors-sdk"):
        environments_of(TARGETS["ors-sdk"])
    with pytest.raises(AuthoringError, match="has no option 'secret'; did you mean 'secrets'"):
        environments_of(TARGETS["ors-sdk"], secret="[]")
    with pytest.raises(AuthoringError, match="the option 'isolation' is for code that is run here"):
        environments_of("http://127.0.0.1:9", isolation="thread")
    with pytest.raises(AuthoringError, match="the environment variable 'NO_SUCH_VARIABLE' of .* is not set"):
        environments_of("http://127.0.0.1:9", secrets='["NO_SUCH_VARIABLE"]')
    with pytest.raises(AuthoringError, match="does not answer: .* start the server"):
        environments_of("http://127.0.0.1:9")
