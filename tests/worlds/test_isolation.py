"""Worlds of one token are nothing to others, and agents do not learn which world they play in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_world import Shop
from mcp import Client as McpClient

from ludus.client import WorldChoice, connect
from ludus.protocol import text_of
from ludus.protocol.errors import Forbidden, LudusError, WorldBusy
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

NEW = WorldChoice()


@pytest.fixture
async def guarded(serve: Any, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A server with tokens: its URL, and the tokens by name."""
    scopes = {
        "ann": ["tasks:read", "episodes:run", "rewards:read"], "bob": ["tasks:read", "episodes:run", "rewards:read"],
        "reader": ["tasks:read"], "boss": ["admin"],
    }  # fmt: skip
    secrets, records = {}, []
    for name, allowed in scopes.items():
        secrets[name], record = new_token(name, allowed)
        records.append(record)
    file = tmp_path / "tokens.json"
    write_token_file(file, TokenFile(tokens=tuple(records)))
    return (await serve(Shop, token_file=file)).url, secrets


async def answer(work: Any) -> tuple[str, str, dict[str, Any]]:
    """Return what a request is refused with."""
    with pytest.raises(LudusError) as refused:
        await work
    return type(refused.value).__name__, refused.value.message, refused.value.data


@pytest.mark.requirement("WORLD-11")
async def test_a_world_of_another_token_is_like_one_that_does_not_exist(guarded: Any) -> None:
    url, tokens = guarded
    async with connect(url, token=tokens["ann"]) as ann, connect(url, token=tokens["bob"]) as bob:
        shop: Any = ann.environment("shop")
        episode = await shop.start(index=0, seed=1, world=NEW)
        hers, none = episode.world.id, "w_" + "A" * (len(episode.world.id) - 2)
        theirs: Any = bob.environment("shop")
        for attempt in (
            lambda world: bob.world(world).info(),
            lambda world: bob.world(world).branch(),
            lambda world: bob.world(world).reset(0),
            lambda world: theirs.start(index=0, seed=1, world=world),
            lambda world: theirs.start(index=0, seed=1, world=WorldChoice(id=world, branch=True)),
            lambda world: theirs.start(index=6, seed=1, world=world),
        ):
            kind, message, data = await answer(attempt(hers))
            missing = await answer(attempt(none))
            assert (kind, message.replace(hers, none), data | {"world": none}) == missing
            assert kind == "WorldNotFound"
        assert not await bob.world(hers).delete()
        assert not await bob.world(none).delete()
        assert await bob.worlds() == ()
        await episode.grade("")
        assert [one.world for one in await ann.worlds()] == [hers]


@pytest.mark.requirement("WORLD-11")
async def test_an_admin_sees_all_worlds_and_may_delete_them(guarded: Any) -> None:
    url, tokens = guarded
    async with connect(url, token=tokens["ann"]) as ann, connect(url, token=tokens["boss"]) as boss:
        shop: Any = ann.environment("shop")
        async with shop.episode(index=0, seed=1, world=NEW) as episode:
            assert [one.world for one in await boss.worlds()] == [episode.world.id]
            with pytest.raises(WorldBusy):
                await boss.world(episode.world.id).delete()
        assert await boss.world(episode.world.id).delete()


async def test_a_token_without_the_scope_has_no_worlds(guarded: Any) -> None:
    url, tokens = guarded
    async with connect(url, token=tokens["reader"]) as reader:
        for work in (reader.worlds(), reader.world("w_x").info(), reader.world("w_x").delete()):
            with pytest.raises(Forbidden):
                await work


@pytest.mark.requirement("WORLD-15")
async def test_an_agent_does_not_learn_which_world_it_plays_in(serve: Any) -> None:
    server = await serve(Shop)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        async with shop.episode(index=0, seed=1, world=NEW) as episode:
            async with McpClient(episode.play_url) as agent:
                said = [
                    (await agent.list_tools()).model_dump_json(), (await agent.list_prompts()).model_dump_json(),
                    (await agent.get_prompt((await agent.list_prompts()).prompts[0].name)).model_dump_json(),
                    (await agent.call_tool("sell", {"goods": "fig"})).model_dump_json(),
                    (await agent.call_tool("submit_answer", {"answer": "fig"})).model_dump_json(),
                ]  # fmt: skip
            assert (await episode.info()).world.committed == 1
            assert [one for one in said if episode.world.id in one or "world" in one.lower()] == []
            assert "fig" in said[3]
        async with shop.episode(index=1, seed=1, world=episode.world.id) as after:
            assert "fig" in text_of(after.prompt[-1].content)
