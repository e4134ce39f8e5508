"""Endpoints of private packages: absent for strangers on all wires, and what tokens of accounts open."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from ludus.client import connect
from ludus.hub.access.viewers import ALL_SCOPES, Viewer
from ludus.hub.app import parts_of
from ludus.hub.endpoints import upgrades
from ludus.protocol.errors import ConnectionFailed, InfrastructureFailed, LudusError, NotFound, PayloadTooLarge
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.registry.types.organizations import Role
from ludus.registry.types.people import HubScope, NewToken

PASSWORD = "correct horse battery"
PATHS = ("", "/health", "/ready", "/mcp", "/list_environments", "/logs", "/play/play_AAAA/mcp", "/channel")

pytestmark = pytest.mark.timeout(180)


def tokens_of(hub: Any, **scopes: list[HubScope]) -> dict[str, str]:
    """Create accounts, and return a token of each."""
    people, found = parts_of(hub.app).hub.people, {}
    for name, granted in scopes.items():
        person = people.accounts.create(name, PASSWORD, of_existing_owner=True)
        wanted = NewToken(name="test", scopes=tuple(granted), days=1)
        found[name] = people.tokens.create(person.id, wanted, is_admin=False).token
    return found


@pytest.fixture
async def private(start_hub: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, str]]:
    """A hub with the private package `ada/counter`, and the tokens of its owner, a reader and a stranger."""
    monkeypatch.setattr(upgrades, "CHECK_SECONDS", 0.05)
    hub = await start_hub()
    await hub.publish()
    parts = parts_of(hub.app).hub
    operator = Viewer.of_administrator("root")
    await asyncio.to_thread(parts.ownership.set_private, operator, "ada", "counter", private=True)
    await asyncio.to_thread(parts.ownership.add_reader, operator, "ada", "counter", "bob")
    run = [HubScope.RUN]
    tokens = await asyncio.to_thread(tokens_of, hub, ada=run, bob=run, eve=run, max=[HubScope.READ])
    await asyncio.to_thread(parts.people.accounts.create, "root", PASSWORD, admin=True)
    return hub, tokens


async def answers(url: str, headers: dict[str, str], package: str) -> list[tuple[int, str]]:
    """The answers of all paths of an endpoint, without the package's name."""
    found = []
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in PATHS:
            async with session.get(f"{url}/e/ada/{package}{path}") as answer:
                found.append((answer.status, (await answer.text()).replace(package.partition("@")[0], "")))
        try:
            await session.ws_connect(f"{url}/e/ada/{package}/channel")
        except aiohttp.WSServerHandshakeError as refused:
            found.append((refused.status, refused.message))
    return found


async def test_a_stranger_finds_nothing_and_a_reader_plays(private: tuple[Any, dict[str, str]]) -> None:
    hub, tokens = private
    async with connect(hub.address(), token=tokens["bob"]) as client:
        episode = await client.environment("counter").start(index=0)
        await episode.call("add", number=1)
        play = episode.play_url or ""
        for headers in ({}, {"Authorization": f"Bearer {tokens['eve']}"}):
            for package in ("counter", "counter@1.0.0"):
                absent = package.replace("counter", "kounter")
                found = await answers(hub.url, headers, package)
                assert found == await answers(hub.url, headers, absent)
                assert {status for status, _ in found} <= {401, 404}
        async with aiohttp.ClientSession() as session:
            assert "/play/play_" in play
            async with session.get(play) as answer:
                assert "there is no environment" not in await answer.text(), "the agent's URL is a credential"
    with pytest.raises(LudusError):
        async with connect(hub.address(), token=tokens["max"]) as client:
            await client.environment("counter").start(index=0)


@pytest.mark.suite("hub-endpoints")
async def test_a_channel_ends_with_the_token_and_with_the_right_to_read(private: tuple[Any, dict[str, str]]) -> None:
    hub, tokens = private
    parts = parts_of(hub.app).hub
    root = Viewer.of_administrator("root")
    ends: dict[str, Callable[[], object]] = {
        "bob": lambda: parts.ownership.remove_reader(root, "ada", "counter", "bob"),
        "ada": lambda: parts.people.accounts.set_disabled("ada", disabled=True),
    }
    for name, end in ends.items():
        token = tokens[name]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            async with session.ws_connect(hub.address() + "/channel", protocols=[CHANNEL_SUBPROTOCOL]) as channel:
                await asyncio.to_thread(end)
                async with asyncio.timeout(30):
                    while not (await channel.receive()).type.name.startswith(("CLOS", "ERROR")):
                        pass
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(hub.address() + "/channel")
            assert refused.value.status in (401, 404)


@pytest.mark.suite("hub-endpoints")
async def test_test_splits_open_for_those_who_may_publish_the_package_alone(start_hub: Any) -> None:
    hub = await start_hub()
    source = """
from ludus.server import Environment, Private, Result, Split, Task, tool


class Secret(Task):
    answer: Private[str]


class Guess(Environment[Secret]):
    splits = {"train": [Secret(id="a", answer="x")], "test": Split([Secret(id="b", answer="y")], type="test")}

    def prompt(self):
        return "guess"

    @tool(ends=True)
    def say(self, text: str) -> Result:
        return Result("done", reward=float(text == self.task.answer))
"""
    await hub.publish("guess", source=source, cls="Guess")
    tokens = await asyncio.to_thread(tokens_of, hub, ada=[HubScope.RUN], bob=[HubScope.RUN])
    async with connect(hub.address("guess"), token=tokens["ada"]) as client:
        await client.environment("guess").start(split="test", index=0)
    async with connect(hub.address("guess"), token=tokens["bob"]) as client:
        await client.environment("guess").start(split="train", index=0)
        with pytest.raises(LudusError) as refused:
            await client.environment("guess").start(split="test", index=0)
        assert not isinstance(refused.value, NotFound | ConnectionFailed)


@pytest.mark.suite("hub-endpoints")
async def test_a_removed_member_loses_open_channels_and_a_demoted_one_its_test_splits(
    start_hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "CHECK_SECONDS", 0.05)
    hub = await start_hub()
    parts = parts_of(hub.app).hub
    organizations = parts.people.organizations
    run = [HubScope.RUN]
    tokens = await asyncio.to_thread(tokens_of, hub, eve=run, bob=run, carol=run)
    eve, bob, carol = (
        replace(parts.people.tokens.viewer(tokens[name]), grants=ALL_SCOPES) for name in ("eve", "bob", "carol")
    )
    await asyncio.to_thread(organizations.create, eve, "ada")
    for viewer, role in ((bob, Role.PUBLISHER), (carol, Role.READER)):
        await asyncio.to_thread(organizations.invite, eve, "ada", viewer.name, role)
        await asyncio.to_thread(organizations.accept, viewer, "ada")
    await hub.publish()
    ends: dict[str, Callable[[], object]] = {
        "bob": lambda: organizations.set_role(eve, "ada", "bob", Role.READER),
        "carol": lambda: organizations.remove(eve, "ada", "carol"),
    }
    for name, end in ends.items():
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {tokens[name]}"}) as session:
            if name == "carol":
                root = Viewer.of_administrator("root")
                await asyncio.to_thread(parts.ownership.set_private, root, "ada", "counter", private=True)
            async with session.ws_connect(hub.address() + "/channel", protocols=[CHANNEL_SUBPROTOCOL]) as channel:
                await asyncio.to_thread(end)
                async with asyncio.timeout(30):
                    while not (await channel.receive()).type.name.startswith(("CLOS", "ERROR")):
                        pass
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {tokens['carol']}"}) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(hub.address() + "/channel")
        assert refused.value.status == 404
    async with connect(hub.address(), token=tokens["bob"]) as client:
        await client.environment("counter").start(index=0)


async def test_an_agent_whose_process_of_the_hub_was_killed_gets_a_reply_to_its_request(
    private: tuple[Any, dict[str, str]],
) -> None:
    """The answer has the id of the request, and is the same for public, private and absent packages."""
    hub, _ = private
    await hub.publish("open")
    worker = hub.endpoints._find("ada", "counter", None).worker("0123abcd")
    asked = {"jsonrpc": "2.0", "id": "the client's", "method": "tools/call", "params": {"name": "add", "arguments": {}}}
    found = []
    async with aiohttp.ClientSession() as session:
        for package in ("counter@1.0.0", "open@1.0.0", "absent@1.0.0"):
            where = f"{hub.url}/e/ada/{package}/play/play_{worker}.AAAA/mcp"
            async with session.post(where, json=asked) as answer:
                assert answer.status == 200, await answer.text()
                found.append(await answer.json())
        async with session.post(where, data=b"not JSON") as answer:
            assert (answer.status, (await answer.json())["id"]) == (500, None)
        limit = hub.endpoints.settings.limits.server.body_bytes
        async with session.post(where, data=io.BytesIO(b" " * (limit + 1))) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (413, PayloadTooLarge.code)
    assert found == [found[0]] * 3
    assert found[0]["id"] == "the client's"
    error = found[0]["error"]
    assert (error["code"], error["data"]["endReason"]) == (InfrastructureFailed.code, "infrastructure_error")
