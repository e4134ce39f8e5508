"""A preview shows what a policy gets first, and nothing else; no episode stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from worlds import SECRET_ANSWER, Playground

from ludus.client import Client, connect, text_of
from ludus.protocol.errors import EnvironmentFailed, Forbidden, InvalidParams, SplitNotFound
from ludus.protocol.methods import Scope
from ludus.server import Environment, Task
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file


class Breaking(Environment[Task]):
    """Breaks on the third task."""

    splits = {"train": [Task(id=f"t-{index}") for index in range(5)]}

    def setup(self) -> None:
        if self.task.id == "t-3":
            raise RuntimeError("boom")

    def prompt(self) -> str:
        return f"This is {self.task.id}."

    def grade(self, answer: str) -> float:
        return 0.0


@pytest.fixture
async def client(serve: Any) -> AsyncIterator[Client]:
    server = await serve(Playground, Breaking)
    async with connect(server.url) as client:
        yield client


async def test_a_preview_has_the_prompt_and_the_tools_of_a_task(client: Client) -> None:
    preview = await client.environment("playground").preview(split="train", task="r-2", seed=7)
    assert (preview.task.id, preview.seed) == ("r-2", 7)
    assert text_of(preview.prompt[0].content) == "Say word 2."
    assert "add" in [tool.name for tool in preview.tools]
    assert SECRET_ANSWER not in repr(preview)
    assert not client._session.open_episodes


async def test_previews_come_in_order_and_as_many_as_asked_for(client: Client) -> None:
    environment = client.environment("playground")
    every = [preview.task.id async for preview in environment.previews("train", concurrency=5)]
    assert every == [f"r-{index}" for index in range(12)]
    some = [preview.task.id async for preview in environment.previews("endless", n=3)]
    assert some == ["r-0", "r-1", "r-2"]
    assert not client._session.open_episodes


async def test_an_endless_split_and_an_unknown_one_are_refused(client: Client) -> None:
    environment = client.environment("playground")
    with pytest.raises(InvalidParams, match="endless"):
        await anext(environment.previews("endless"))
    with pytest.raises(SplitNotFound, match="trian"):
        await anext(environment.previews("trian"))


async def test_a_setup_that_breaks_is_one_typed_error_and_leaves_no_episode(client: Client) -> None:
    previews = client.environment("breaking").previews("train", concurrency=2)
    assert [(await anext(previews)).task.id for _ in range(3)] == ["t-0", "t-1", "t-2"]
    with pytest.raises(EnvironmentFailed, match="setup"):
        await anext(previews)
    assert not client._session.open_episodes


async def test_a_preview_of_a_test_split_needs_its_scope(serve: Any, tmp_path: Path) -> None:
    token, record = new_token("reader", [Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ])
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=(record,)))
    server = await serve(Playground, token_file=tmp_path / "tokens.json")
    async with connect(server.url, token=token) as client:
        environment = client.environment("playground")
        assert (await environment.preview(split="train", index=0)).task.id == "r-0"
        with pytest.raises(Forbidden, match="splits:test"):
            await environment.preview(split="test", index=0)
