"""`aviary:`: environments of Aviary played here give what Aviary alone gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from golden_episodes import differences, hosted, record
from peer_clients import python_of

from ludus.client import connect
from ludus.protocol import TextBlock
from ludus.protocol.errors import AuthoringError, EpisodeFailed

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(120)]

Serve = Callable[..., Awaitable[Any]]

LEDGER = "aviary:examples/formats/aviary/ledger.py:LedgerTasks"


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    for environment in _OPEN:
        environment.process.close()
    _OPEN.clear()


_OPEN: list[Any] = []


def of(spec: str) -> Any:
    found = hosted(spec, "aviary")[0]
    _OPEN.append(found)
    return found


@pytest.mark.parametrize("count", [16, pytest.param(100, marks=pytest.mark.suite("formats"))])
@pytest.mark.parametrize(("name", "spec"), [("ledger", LEDGER), ("dummy", "aviary:dummy")])
async def test_episodes_are_those_that_aviary_plays(serve: Serve, name: str, spec: str, count: int) -> None:
    recorded = record("aviary", "aviary_golden.py", {"environment": name, "seeds": list(range(count))})
    assert len(recorded) == count
    rewards = {step["reward"] for episode in recorded for step in episode["steps"]}
    assert len(rewards) > 1
    server = await serve(of(spec))
    async with connect(server.url) as client:
        environment = client.environment((await client.environments())[0].name)
        assert await differences(environment, "train", recorded) == []
    assert any(step["answer"] for episode in recorded for step in episode["steps"])
    assert name == "dummy" or any(step["truncated"] for episode in recorded for step in episode["steps"])


async def test_splits_take_their_own_arguments_and_tasks_of_a_class_are_texts(serve: Serve) -> None:
    splits = of(LEDGER + '#splits={"train":{"first":6}%2C"eval":{}}')
    assert [(name, split.count, split.type) for name, split in splits.splits.items()] == [
        ("train", 4, "train"), ("eval", 10, "validation"),
    ]  # fmt: skip
    texts = of('aviary:aviary.core:DummyEnv#tasks=["a fox"%2C"a hen"]')
    assert texts.splits["train"].count == 2
    server = await serve(texts)
    async with connect(server.url) as client, client.environment(texts.name).episode(index=1) as episode:
        assert episode.prompt[0].content == (TextBlock(text="Write a 5 word story via print_story about a hen"),)
        assert "hen" not in str(episode.task)


async def test_an_exception_in_a_tool_ends_the_episode_as_failed_unless_it_is_to_be_shown(serve: Serve) -> None:
    failing, showing = of("aviary:dummy#name=failing"), of("aviary:dummy#tool_errors=show,name=showing")
    server = await serve(failing, showing)
    async with connect(server.url) as client:
        async with client.environment("failing").episode(index=0) as episode:
            with pytest.raises(EpisodeFailed):
                await episode.call("cast_float", x="many")
        async with client.environment("showing").episode(index=0) as episode:
            step = await episode.call("cast_float", x="many")
            assert "could not convert string to float" in str(step.content)
            assert not step.ended


async def test_arguments_that_do_not_fit_a_tools_schema_are_refused_and_the_episode_goes_on(serve: Serve) -> None:
    server = await serve(of(LEDGER))
    async with connect(server.url) as client, client.environment(_OPEN[0].name).episode(index=0) as episode:
        assert (await episode.call("transfer", payer="Ada", receiver="Ben", amount="ten")).error is not None
        assert (await episode.call("transfer", payer="Ada", receiver="Ben", amount=1, id=1)).error is not None
        step = await episode.call("finish")
        assert (step.reward and step.reward.value, step.terminated) == (-0.5, True)


def test_a_final_message_is_not_graded_if_the_option_says_so() -> None:
    assert of("aviary:dummy").described.gradable
    assert not of("aviary:dummy#final_message=none").described.gradable


def test_what_aviary_cannot_promise_is_in_the_description() -> None:
    found = of("aviary:dummy")
    assert not found.seedable
    assert set(found.described.not_promised) == {"seeds", "parallel calls"}
    assert found.described.package == "fhaviary 0.37.0"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("aviary:gsm8k", r"needs the package 'fhaviary\[gsm8k\]'|needs the package 'aviary"),
        ("aviary:nosuch", "has no environment named 'nosuch'; it has: calculator, dummy, gsm8k"),
        ("aviary:examples/nosuch.py:Env", "no file 'examples/nosuch.py'"),
        ("aviary:examples/formats/aviary/ledger.py:Nosuch", "has no 'Nosuch'"),
        ("aviary:examples/formats/aviary/ledger.py:TASKS", "is a tuple, and no environment or task dataset"),
        (LEDGER + '#make={"last":1}', "see the option make"),
        (LEDGER + '#tasks=["a"]', "the option tasks is for environment classes"),
        (LEDGER + "#splits=train", "option splits"),
        (LEDGER + "#tool_error=show", "has no option 'tool_error'; did you mean 'tool_errors'"),
    ],
)
def test_a_wrong_target_or_option_is_explained(spec: str, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        hosted(spec, "aviary")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    python = python_of("bfcl")
    with pytest.raises(AuthoringError, match=f"needs the package 'fhaviary'.*{python} -m pip install fhaviary"):
        hosted(f"aviary:dummy#python={python}")
