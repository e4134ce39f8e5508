"""`bfcl:`: answers to the leaderboard's multi-turn tasks are judged here as by the leaderboard's own checker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from golden_episodes import hosted, record, shown
from peer_clients import python_of

from ludus.client import RemoteEnvironment, connect
from ludus.protocol.errors import AuthoringError
from ludus.testing import play as ludus_play

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(600)]

Serve = Callable[..., Awaitable[Any]]

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
BASE = "bfcl-multi-turn-base"


@pytest.fixture
def environments() -> Iterator[list[Any]]:
    found: list[Any] = list(hosted("bfcl:multi_turn", "bfcl"))
    yield found
    found[0].process.close()


async def play(environment: RemoteEnvironment, golden: dict[str, Any]) -> list[Any]:
    """Play the calls of a recorded episode, and return what differs."""
    found: list[Any] = []
    offered: set[str] = set()
    last: Any = None
    async with environment.episode(split="test", index=golden["index"]) as episode:
        assert episode.task.id == golden["id"]
        offered = {tool.name for tool in episode.tools}
        for names in golden["held"].values():
            assert not offered & set(names)
        asked = [text for message in episode.prompt[1:] for text in shown(message.content)]
        for number, (calls, results) in enumerate(zip(golden["turns"], golden["shown"], strict=True)):
            if golden["questions"][number] and asked != golden["questions"][number]:
                found.append(("question", asked))
            if not golden["questions"][number] and not all(one in asked[0] for one in golden["held"][str(number)]):
                found.append(("functions", asked))
            for (name, arguments), wanted in zip(calls, results, strict=True):
                given = (
                    (name, arguments)
                    if name in offered
                    else ("call_new_function", {"name": name, "arguments": arguments})
                )
                step = await episode.call(given[0], **given[1])
                assert step.error is None, step
                if shown(step.content) != [wanted]:
                    found.append((wanted, shown(step.content)))
            last = await episode.call("reply", text="Done.")
            asked = shown(last.content)
        assert last.terminated
        assert last.reward is not None
        if last.reward.value != float(golden["valid"]) or last.metadata.get("error_type") != golden["error_type"]:
            found.append((golden["valid"], golden["error_type"], last))
    return found


@pytest.mark.parametrize("count", [7, pytest.param(200, marks=pytest.mark.suite("formats"))])
async def test_exact_and_mutated_reference_calls_are_judged_as_by_the_checker(
    serve: Serve, environments: list[Any], count: int
) -> None:
    server = await serve(*environments)
    room = asyncio.Semaphore(8)
    different: list[Any] = []
    played = 0
    async with connect(server.url) as client:

        async def compare(environment: RemoteEnvironment, golden: dict[str, Any]) -> None:
            async with room:
                different.extend(await play(environment, golden))

        for category in CATEGORIES:
            recorded = record("bfcl", "bfcl_golden.py", {"category": category, "indices": list(range(count))})
            assert all(one["valid"] for one in recorded if one["way"] == "exact")
            assert not all(one["valid"] for one in recorded)
            environment = client.environment(f"bfcl-{category.replace('_', '-')}")
            async with asyncio.TaskGroup() as group:
                for golden in recorded:
                    group.create_task(compare(environment, golden))
            played += len(recorded)
    assert different == []
    assert played >= 40


async def test_a_turn_with_too_many_steps_and_an_early_final_message_are_wrong(
    serve: Serve, environments: list[Any]
) -> None:
    server = await serve(*environments)
    async with connect(server.url) as client:
        async with client.environment(BASE).episode(split="test", index=0) as episode:
            for _ in range(20):
                assert not (await episode.call("pwd")).ended
            step = await episode.call("pwd")
            assert (step.terminated, step.reward and step.reward.value) == (True, 0.0)
            assert step.metadata["error_type"] == "multi_turn:force_terminated"
        async with client.environment(BASE).episode(split="test", index=0) as episode:
            graded = await episode.grade("I cannot do this.")
            assert graded.reward is not None
            assert graded.reward.value == 0.0


async def test_answers_stay_private_and_wrong_calls_are_refused(serve: Serve, environments: list[Any]) -> None:
    server = await serve(*environments)
    async with connect(server.url) as client:
        async with client.environment(BASE).episode(split="test", index=0) as episode:
            assert episode.task.fields == {}
            step = await episode.call("cd", folder="document", other="__import__('os')")
            assert "unexpected keyword argument 'other'" in str(step.content)
            step = await episode.call("cd", folder="document') or 1 / 0 or ('")
            assert "Unsupported path" in str(step.content)
        missing = client.environment("bfcl-multi-turn-miss-func")
        async with missing.episode(split="test", index=0) as episode:
            step = await episode.call("call_new_function", name="no_such", arguments={})
            assert "no function 'no_such' became available" in str(step.content)


def test_a_category_is_an_environment_and_what_is_not_promised_is_said(environments: list[Any]) -> None:
    assert [one.name for one in environments] == [f"bfcl-{name.replace('_', '-')}" for name in CATEGORIES]
    assert [one.splits["test"].count for one in environments] == [200] * 4
    assert set(environments[0].described.not_promised) == {"parallel calls"}


async def test_the_system_message_can_be_left_out(serve: Serve) -> None:
    (found,) = hosted("bfcl:multi_turn_base#instructions=false", "bfcl")
    server = await serve(found)
    async with connect(server.url) as client, client.environment(BASE).episode(split="test", index=0) as episode:
        assert [message.role for message in episode.prompt] == ["user"]
    found.process.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bfcl:simple", "there is no category 'simple'; those that are hosted are: multi_turn_base"),
        ("bfcl:multi_turn_base#instruction=no", "has no option 'instruction'; did you mean 'instructions'"),
        ("bfcl:multi_turn_base#instructions=perhaps", "option instructions"),
    ],
)
def test_a_wrong_category_or_option_is_explained(spec: str, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        hosted(spec, "bfcl")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    python = python_of("aviary")
    with pytest.raises(AuthoringError, match=f"needs the package 'bfcl-eval'.*{python} -m pip install bfcl-eval"):
        hosted(f"bfcl:multi_turn_base#python={python}")


async def test_the_oracle_plays_the_reference_calls_of_each_task_and_earns_1(environments: list[Any]) -> None:
    played = 0
    for environment in environments:
        async with ludus_play(environment) as world:
            for index in range(0, environment.splits["test"].count, 10):
                assert (await world.oracle(index=index, split="test")).reward == 1.0, (environment.name, index)
                played += 1
    assert played == 80


async def test_arguments_that_do_not_fit_the_schema_reach_the_simulator_but_no_code_does(
    environments: list[Any],
) -> None:
    async with ludus_play(environments[0]) as world:
        episode = await world.start(index=173, split="test")
        step = await episode.call("close_ticket", ticket_id="ticket_001")
        assert "Ticket ticket_001 has been closed" in step.text
        code = {"ticket_id=__import__('os').getpid(), b": 1}
        refused = await episode.call("close_ticket", **code)
        assert "is no name of an argument" in refused.text
