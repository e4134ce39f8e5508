"""Faultless servers pass: ours on every wire, with and without tokens, and those made with the peers' SDKs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from waiting import answers, block_until_up
from worlds import SECRET_ANSWER, Playground

from ludus.conformance import CHECKS, WIRES, Report, conform
from ludus.environments.countdown import Countdown
from ludus.environments.guess_number import GuessNumber
from ludus.environments.wordle import Wordle
from ludus.protocol.modules import Module
from ludus.server import Environment, Task, tool
from ludus.server.serving.serve import LudusServer

ROOT = Path(__file__).parents[2]
Serve = Callable[..., Awaitable[LudusServer]]
ENVIRONMENTS = (Playground, GuessNumber, Countdown, Wordle)
SAMPLED = [
    Playground, *(pytest.param(one, marks=pytest.mark.suite("planted-faults")) for one in ENVIRONMENTS[1:])
]  # fmt: skip
"""All of them as parameters; those of the library, whose checks differ little, are in the suite."""
NEEDS_TOKENS = {
    "no_token", "wrong_token", "capability_as_token", "other_principal", "keys_of_principals", "scopes",
    "hidden_rewards", "test_split", "api_key", "ids", "secrets", "upgrade_token", "cors", "large_body",
}  # fmt: skip


NEEDS_REWARDS = {"log", "total", "components", "after", "closed", "earned"}
"""Checks of what steps earn, which random calls do not everywhere."""


class Bare(Environment[Task]):
    """As little as an environment can have: no seeds, no grades, no forks, one task, one tool."""

    splits = {"train": [Task(id="only")]}
    seedable = False

    def prompt(self) -> str:
        return "Press."

    @tool(ends=True)
    def press(self) -> str:
        """Press the button."""
        return "pressed"


def skipped(report: Report) -> set[str]:
    return {f"{verdict.wire}/{verdict.check}" for verdict in report.of("skipped")}


def wrong(report: Report) -> list[tuple[str, str, str]]:
    return [(verdict.wire, verdict.check, verdict.detail) for verdict in report.of("failed", "noted")]


@pytest.mark.suite("planted-faults")
@pytest.mark.timeout(200)  # the first look at 40,000 countdown tasks takes a while
@pytest.mark.parametrize("environment", [*SAMPLED, Bare], ids=lambda kind: kind.__name__)
async def test_our_server_conforms_without_tokens(environment: type[Environment[Any]], serve: Serve) -> None:
    server = await serve(environment)
    report = await conform(server.url, private=[SECRET_ANSWER], seconds=100.0)
    assert wrong(report) == []
    assert report.passed
    assert report.wires == WIRES
    assert NEEDS_TOKENS >= {name.split("/")[1] for name in skipped(report)} - {
        "endless", "test_tasks", "test_rows", "chosen_tools", "fork_once", "final_answer", "other_environment",
        "grade_entry", "great_seeds", "submit_wrong", "unannounced", "expiry", *NEEDS_REWARDS,
    }  # fmt: skip
    assert environment is not Playground or not NEEDS_REWARDS & {name.split("/")[1] for name in skipped(report)}
    assert server.app.context.host.stats().running == 0


@pytest.mark.timeout(200)
@pytest.mark.parametrize("environment", SAMPLED, ids=lambda kind: kind.__name__)
async def test_our_server_conforms_with_tokens(
    environment: type[Environment[Any]], serve: Serve, credentials: Any
) -> None:
    server = await serve(environment, variables=credentials.variables)
    report = await conform(server.url, private=[SECRET_ANSWER], seconds=100.0, **credentials.tokens)
    assert wrong(report) == []
    assert server.app.context.host.stats().running == 0


@pytest.mark.suite("planted-faults")
async def test_with_tokens_and_an_environment_that_has_everything_hardly_a_check_is_left_out(
    serve: Serve, credentials: Any
) -> None:
    server = await serve(Playground, Bare, variables=credentials.variables)
    report = await conform(
        server.url, environment="playground", private=[SECRET_ANSWER], parallel=8, **credentials.tokens
    )
    only_without_tokens = {"mcp/other_host", "play/other_host", "ors/other_host"}
    assert skipped(report) == only_without_tokens | {"channel/unannounced", "mcp/unannounced", "play/expiry"}
    assert len(report.verdicts) == sum(map(len, CHECKS.values()))


async def test_every_module_of_the_standard_is_announced_and_none_fails(serve: Serve, credentials: Any) -> None:
    server = await serve(Playground, variables=credentials.variables)
    report = await conform(server.url, checks=["mcp/discover", "mcp/modules", "channel/turn_key"], **credentials.tokens)
    found = report.as_json()["modules"]
    assert list(found) == ["core", *Module]
    assert all(entry["announced"] for entry in found.values())
    assert found["turns"] == {"announced": True, "passed": 1, "failed": 0, "noted": 0, "skipped": 0}
    assert found["core"]["passed"] == 2


@pytest.mark.suite("planted-faults")
async def test_capabilities_that_expire_soon_are_seen_to_expire(serve: Serve) -> None:
    server = await serve(Playground, capability_seconds=2.0)
    report = await conform(server.url, wires=["play"])
    (expiry,) = (verdict for verdict in report.verdicts if verdict.check == "expiry")
    assert expiry.status == "passed", expiry
    assert expiry.seconds > 1


@pytest.mark.suite("planted-faults")
async def test_one_environment_of_several_is_played_on_the_split_that_was_named(serve: Serve) -> None:
    server = await serve(Bare, Playground)
    report = await conform(server.url, environment="playground", split="validation", wires=["channel", "ors"])
    assert wrong(report) == []
    assert (report.environment, report.split) == ("playground", "validation")


@pytest.fixture(scope="module", params=["ors-sdk", "openreward"])
def peer(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server made with each peer's SDK, run by the peer's own Python."""
    name: str = request.param
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the peer {name!r} is not installed (.peers/{name}); `python scripts/peers.py` installs it")
    port = free_port()
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    command: list[str | Path] = [
        python,
        ROOT / "tests/ors/peers/server.py",
        "ors" if name == "ors-sdk" else name,
        str(port),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**kept, "OPENREWARD_DISABLE_UPDATE_CHECK": "1"},
    ) as process:  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            block_until_up(process, lambda: answers(url + "/health"))
            yield url
        finally:
            process.terminate()


NOTED = {"foreign_task_id", "large_results", "other_environment", "secrets", "origin", "other_host", "large_body"}
"""What our profile of ORS demands and the published servers do not do."""


@pytest.mark.suite("planted-faults", first=1)
async def test_the_published_ors_servers_are_ors_and_learn_what_our_profile_has_beyond_it(peer: str) -> None:
    report = await conform(peer, wires=["ors"])
    assert report.plain_ors
    assert [verdict for verdict in report.verdicts if verdict.status == "failed"] == []
    assert report.passed
    assert {verdict.check for verdict in report.of("noted")} == NOTED
    passed = {verdict.check for verdict in report.of("passed")}
    assert {"environments", "tasks", "session", "calls", "resume", "mistakes", "refusals"} <= passed
    assert report.as_json()["profile"] == "ors"


@pytest.mark.suite("planted-faults", first=1)
async def test_a_server_that_speaks_ors_alone_is_checked_on_ors_alone_by_default(peer: str) -> None:
    report = await conform(peer, environment="echo", strict=True)
    assert report.wires == ("ors",)
    assert not report.passed, "strict makes notes count"
    async with asyncio.timeout(50):
        report = await conform(peer, wires=["mcp"], seconds=5.0)
    failed = {verdict.check for verdict in report.of("failed")}
    assert {"environments", "starting", "step_once", "discover", "legacy"} <= failed, "the extension is not there"
