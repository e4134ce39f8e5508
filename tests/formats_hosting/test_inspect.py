"""`inspect:`: tasks of Inspect played here give the messages and scores of Inspect's own evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_episodes import hosted, record, shown
from peer_clients import python_of

from ludus.client import RemoteEnvironment, connect
from ludus.protocol import EndReason
from ludus.protocol.errors import AuthoringError, LudusError

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(900)]

Serve = Callable[..., Awaitable[Any]]

SHOP = "inspect:examples/formats/inspect/shop.py"
SLOW = "start_seconds=600"
"""Importing Inspect takes long on a busy machine."""


@pytest.fixture(scope="module")
def shop() -> Iterator[dict[str, Any]]:
    found = hosted(f"{SHOP}#{SLOW}", "agents")
    yield {one.name: one for one in found}
    found[0].process.close()  # type: ignore[attr-defined]


def texts(content: Any) -> list[Any]:
    return [text for text in shown(content) if text]


async def play(environment: RemoteEnvironment, golden: dict[str, Any]) -> list[Any]:
    """Play the actions of a recorded sample, and return what differs."""
    found: list[Any] = []
    async with environment.episode(split="test", index=golden["index"]) as episode:
        start = [[message.role, "".join(shown(message.content))] for message in episode.prompt]
        if start != golden["start"]:
            found.append((golden["start"], start))
        *steps, last = golden["steps"]
        for step in steps:
            tool, arguments = step["action"]
            made = await episode.call(tool or "reply", **(arguments if tool else {"text": arguments}))
            if texts(made.content) != [one for one in step["shown"] if one] or made.ended or made.reward is not None:
                found.append((step, made))
        tool, arguments = last["action"]
        wanted = next(iter(golden["scores"].values()))
        if tool or golden["limit"]:
            ended = await episode.call(tool or "reply", **(arguments if tool else {"text": arguments}))
            reward, reason = ended.reward, ended.end_reason
            if reason != (EndReason.TRUNCATED if golden["limit"] else EndReason.COMPLETED):
                found.append((golden["limit"], reason))
        else:
            reward = (await episode.grade(arguments)).reward
        if (None if reward is None else reward.value) != wanted:
            found.append((wanted, reward))
        components = {} if reward is None else {name: part.value for name, part in reward.components.items()}
        if components and components != golden["scores"]:
            found.append((golden["scores"], components))
    return found


@pytest.mark.parametrize("epochs", [2, pytest.param(20, marks=pytest.mark.suite("formats"))])
async def test_samples_are_shown_and_scored_as_in_inspects_own_evaluation(
    serve: Serve, shop: dict[str, Any], epochs: int
) -> None:
    recorded: Any = record("agents", "inspect_golden.py", {"tasks": list(shop), "epochs": epochs})
    server = await serve(*shop.values())
    room = asyncio.Semaphore(2)
    different: list[Any] = []

    async with connect(server.url) as client:

        async def compare(environment: RemoteEnvironment, golden: dict[str, Any]) -> None:
            async with room:
                different.extend(await play(environment, golden))

        async with asyncio.TaskGroup() as group:
            for name, episodes in recorded.items():
                assert len(episodes) == 5 * epochs
                for golden in episodes:
                    group.create_task(compare(client.environment(name), golden))
    assert different == []
    values = {next(iter(golden["scores"].values())) for golden in recorded["stock"]}
    assert len(values) > 1


async def test_a_final_message_ends_a_solver_that_wants_to_go_on_and_is_scored(
    serve: Serve, shop: dict[str, Any]
) -> None:
    server = await serve(shop["stock"])
    async with connect(server.url) as client, client.environment("stock").episode(split="test", index=0) as episode:
        assert {tool.name for tool in episode.tools} == {"count", "submit", "reply"}
        assert shown((await episode.call("count", article="apples")).content) == ["12"]
        graded = await episode.grade("There are 13.")
        assert graded.reward is not None
        assert graded.reward.value == 0.5


async def test_an_answer_that_the_scorer_leaves_unscored_is_unscored_and_not_0(
    serve: Serve, shop: dict[str, Any]
) -> None:
    server = await serve(shop["stock"])
    async with connect(server.url) as client, client.environment("stock").episode(split="test", index=1) as episode:
        step = await episode.call("submit", answer="many")
        assert step.terminated
        assert step.reward is not None
        assert (step.reward.value, step.reward.reason) == (None, "the scorer left the sample unscored")
    async with connect(server.url) as client, client.environment("stock").episode(split="test", index=1) as episode:
        graded = await episode.grade("There are many.")
        assert graded.reward is not None
        assert graded.reward.value is None


def test_all_tasks_of_a_file_are_environments_and_what_is_not_promised_is_said(shop: dict[str, Any]) -> None:
    assert set(shop) == {"sums", "stock", "patient"}
    assert [one.splits["test"].count for one in shop.values()] == [5, 5, 5]
    assert set(shop["sums"].described.not_promised) == {"seeds", "parallel calls", "changing tools"}
    assert not shop["sums"].seedable


OTHERS = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, match, model_graded_qa, scorer
from inspect_ai.solver import generate

@task
def boxed():
    return Task(dataset=[Sample(input="x", target="y")], solver=generate(), scorer=match(), sandbox="docker")

@task
def judged():
    return Task(dataset=[Sample(input="x", target="y")], solver=generate(), scorer=model_graded_qa())

@scorer(metrics={"*": [accuracy()]})
def many():
    async def score(state, target):
        return Score(value={"right": "C", "short": 0.25})
    return score

@task
def several():
    return Task(dataset=[Sample(input="x", target="y")], solver=generate(), scorer=many())

@task
def unjudged():
    return Task(dataset=[Sample(input="x", target="y")], solver=generate())
"""


@pytest.fixture
def others(tmp_path: Path) -> str:
    tmp_path.joinpath("others.py").write_text(OTHERS, encoding="utf-8")
    return f"inspect:{tmp_path}/others.py"


async def test_a_scorer_that_asks_the_evaluated_model_is_unscored_and_the_reward_can_be_chosen(
    serve: Serve, others: str
) -> None:
    (judged,) = hosted(f"{others}@judged#{SLOW}", "agents")
    (several,) = hosted(f"{others}@several#score=many.short,{SLOW}", "agents")
    server = await serve(judged, several)
    async with connect(server.url) as client:
        async with client.environment("judged").episode(split="test", index=0) as episode:
            with pytest.raises(LudusError):
                await episode.grade("y")
        async with client.environment("several").episode(split="test", index=0) as episode:
            graded = await episode.grade("y")
            assert graded.reward is not None
            assert graded.reward.value == 0.25
            assert graded.reward.components["many.right"].value == 1.0
    for one in (judged, several):
        one.process.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("@boxed", r"runs code in a sandbox of Inspect \(docker\), which cannot be hosted"),
        ("@unjudged", "has no scorer, so it has no reward"),
        ("@nosuch", "nosuch"),
    ],
)
def test_a_task_that_cannot_be_hosted_is_refused_with_the_reason(others: str, task: str, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        hosted(f"{others}{task}#{SLOW}", "agents")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("inspect:examples/nosuch.py@x", "the file examples/nosuch.py does not exist"),
        (f"{SHOP}@sums#in_process=true", "leave out the option in_process"),
        (f"{SHOP}@sums#isolation=thread", "leave out the option isolation=thread"),
        (f"{SHOP}@sums#replies=never", "has no option 'replies'"),
    ],
)
def test_a_wrong_target_or_option_is_explained(spec: str, message: str) -> None:
    joined = f"{spec},{SLOW}" if "#" in spec else f"{spec}#{SLOW}"
    with pytest.raises(AuthoringError, match=message):
        hosted(joined, "agents")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    python = python_of("aviary")
    with pytest.raises(AuthoringError, match=f"needs the package 'inspect-ai'.*{python} -m pip install inspect-ai"):
        hosted(f"{SHOP}#python={python}")
