"""`inspect:`: tasks of Inspect played here give the messages and scores of Inspect's own evaluation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_episodes import hosted, record, shown
from peer_clients import python_of

from ludus.client import RemoteEnvironment, connect
from ludus.protocol import EndReason
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.testing import play as environment_play

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


ROLES = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.scorer import Score, accuracy, includes, scorer
from inspect_ai.solver import generate, self_critique, solver
from inspect_ai.tool import tool

@modelapi(name="scripted")
class Scripted(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        return ModelOutput.from_content("scripted", "I want my money back.")

SAMPLES = [Sample(input="Your order number is secret-17. Ask for a refund.", target="sorry")]

@tool
def refund():
    async def execute(order: str):
        \'\'\'Refund an order.

        Args:
            order: its number.
        \'\'\'
        return "done"
    return execute

@solver
def talk(desk_role, customer_role, rounds=2):
    async def solve(state, generate):
        desk = get_model(role=desk_role) if desk_role else get_model()
        customer = get_model(role=customer_role) if customer_role else get_model()
        said = [ChatMessageSystem(content="You are at the desk.")]
        for _ in range(rounds):
            try:  # as the customer simulation of tau2 does
                output = await customer.generate(state.messages)
                state.messages.append(output.message)
                said.append(ChatMessageUser(content=output.completion))
                output = await desk.generate(said, tools=[refund()])
                said.append(output.message)
                state.output = output
                state.messages.append(ChatMessageUser(content=output.completion))
            except Exception as error:
                print(error)
        return state
    return solve

@solver
def once(role):
    async def solve(state, generate):
        output = await get_model(role=role).generate(state.messages)
        state.messages.append(output.message)
        output = await get_model(role=role).generate([*state.messages, ChatMessageUser(content="Are you sure?")])
        state.output = output
        return state
    return solve

@solver
def ask_again():
    async def solve(state, generate):
        for _ in range(2):
            state.output = await get_model().generate(state.messages)
        return state
    return solve

@scorer(metrics=[accuracy()])
def forgiving():
    async def score(state, target):
        try:
            await get_model(role="grader").generate("Is it right?")
        except Exception:
            pass
        return Score(value=0)
    return score

@task
def customer_first():
    return Task(dataset=SAMPLES, solver=talk(None, "customer"), scorer=includes())

@task
def two_roles():
    return Task(dataset=SAMPLES, solver=talk("desk", "customer"), scorer=includes())

@task
def nameless():
    return Task(dataset=SAMPLES, solver=talk(None, None), scorer=includes())

@task
def critique():
    return Task(dataset=SAMPLES, solver=[generate(), self_critique()], scorer=includes())

@task
def graded():
    return Task(dataset=SAMPLES, solver=generate(), scorer=forgiving())

@task
def one_role():
    return Task(dataset=SAMPLES, solver=once("writer"), scorer=includes())

@task
def again():
    return Task(dataset=SAMPLES, solver=ask_again(), scorer=includes())
"""


@pytest.fixture
def roles(tmp_path: Path) -> str:
    tmp_path.joinpath("roles.py").write_text(ROLES, encoding="utf-8")
    return f"inspect:{tmp_path}/roles.py"


@pytest.mark.parametrize(
    ("task", "begins", "message"),
    [
        ("customer_first", False, r"the role 'customer', which no model plays.*model_roles={\"customer\":MODEL}"),
        ("two_roles", False, r"the role 'customer', 'desk'.*model_roles={\"customer\":MODEL,\"desk\":MODEL}"),
        ("nameless", True, "a conversation that does not continue the agent's.*model_roles"),
        ("critique", True, "a conversation that does not continue the agent's.*model_roles"),
        ("graded", True, "a scorer asks the model that is evaluated.*model_roles"),
    ],
)
async def test_another_role_of_a_solver_is_never_the_agents_and_the_episode_is_unscored_with_the_option_named(
    roles: str, task: str, begins: bool, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    (environment,) = hosted(f"{roles}@{task}#{SLOW}", "agents")
    async with environment_play(environment) as world:
        if begins:
            episode = await world.start(index=0)
            with pytest.raises(LudusError):
                await episode.answer("sorry")
            reward = (await episode.remote.info()).reward
            assert reward is None or reward.value is None
        else:
            with pytest.raises(LudusError):
                await world.start(index=0)
    assert re.search(message, caplog.text)
    environment.process.close()  # type: ignore[attr-defined]


async def test_a_role_with_a_model_of_its_own_leaves_the_agent_its_own_conversation(roles: str) -> None:
    options = f'model_roles={{"customer":"scripted/model"}},{SLOW}'
    (environment,) = hosted(f"{roles}@customer_first#{options}", "agents")
    async with environment_play(environment) as world:
        episode = await world.start(index=0)
        assert [message.role for message in episode.remote.prompt] == ["system", "user"]
        assert "secret-17" not in str(episode.remote.prompt)
        assert "refund" in episode.tools
        await episode.call("reply", text="Which order?")
        await episode.call("reply", text="I am sorry.")
        assert episode.reward == 1.0
    environment.process.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("task", ["one_role", "again"])
async def test_a_single_role_and_a_question_that_is_asked_again_are_the_agents_own(roles: str, task: str) -> None:
    (environment,) = hosted(f"{roles}@{task}#reply=always,{SLOW}", "agents")
    async with environment_play(environment) as world:
        episode = await world.start(index=0)
        step = await episode.call("reply", text="well")
        assert ("Are you sure?" in step.text) == (task == "one_role")
        await episode.call("reply", text="I am sorry")
        assert episode.reward == 1.0
    environment.process.close()  # type: ignore[attr-defined]


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
