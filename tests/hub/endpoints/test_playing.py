"""Clients play published versions over each transport."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import pytest
from mcp import Client as McpClient

from ludus.client import connect, text_of
from ludus.protocol.workers import worker_of, worker_of_session

pytestmark = pytest.mark.timeout(120)


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
@pytest.mark.parametrize("version", [None, "1.0.0"], ids=["newest", "pinned"])
async def test_our_client_plays_an_episode_with_rewards(hub: Any, wire: Any, version: str | None) -> None:
    async with connect(hub.address(version=version), wire=wire) as client:
        episode = await client.environment("counter").start(index=0)
        assert "Add, at version 1.0.0." in str(episode.prompt)
        assert (worker_of(episode.id) or worker_of_session(episode.id)) == hub.server().worker.name
        first = await episode.call("add", number=3)
        assert text_of(first.content).split()[0] == "3"
        assert first.reward is not None
        assert first.reward.value == 3.0
        assert text_of((await episode.call("add", number=4)).content).split()[0] == "7"
        await episode.close()


async def test_a_stock_client_plays_at_the_play_url_without_seeing_rewards(hub: Any) -> None:
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        assert episode.play_url is not None
        assert episode.play_url.startswith(hub.address() + "/play/")
        async with McpClient(episode.play_url) as stock:
            assert {tool.name for tool in (await stock.list_tools()).tools} == {"add", "run", "block"}
            said = (await stock.call_tool("add", {"number": 5})).model_dump(mode="json")
            assert said["content"][0]["text"].startswith("5")
            assert "reward" not in json.dumps(said)


@pytest.mark.suite("hub-endpoints")
async def test_a_stock_host_starts_an_episode_over_the_control_endpoint(hub: Any) -> None:
    async with McpClient(hub.address() + "/mcp") as stock:
        started = await stock.call_tool("start_episode", {"environment": "counter"})
        text = json.dumps(started.model_dump(mode="json"))
    assert "Add, at version 1.0.0." in text
    urls = re.findall(rf"{hub.url}(/e/ada/counter@1.0.0/play/[^\"\\ ]+)", text)
    assert urls, "the play URL pins the version of its episode"
    async with McpClient(hub.url + urls[0]) as stock:
        said = (await stock.call_tool("add", {"number": 5})).model_dump(mode="json")
        assert said["content"][0]["text"].startswith("5")


async def test_ors_clients_play_with_the_rewards_in_line(hub: Any) -> None:
    headers: dict[str, str] = {}
    async with aiohttp.ClientSession() as session:
        address = hub.address()
        async with session.post(address + "/create_session", headers={"Accept": "application/json"}) as answer:
            assert answer.status == 200
            headers["X-Session-ID"] = (await answer.json())["sid"]
        body = {"env_name": "counter", "split": "train", "index": 0}
        async with session.post(address + "/create", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        async with session.post(
            address + "/counter/call", json={"name": "add", "input": {"number": 2}}, headers=headers
        ) as answer:
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            text = await answer.text()
        assert '"reward":2.0' in text.replace(" ", "").replace("\\", "")
        async with session.post(address + "/delete", headers=headers) as answer:
            assert answer.status == 200


@pytest.mark.suite("hub-endpoints")
async def test_a_session_id_that_its_client_made_up_stays_with_the_version_that_it_found(hub: Any) -> None:
    headers = {"X-Session-ID": "made-up-by-a-client"}
    async with aiohttp.ClientSession() as session:
        body = {"env_name": "counter", "split": "train", "index": 0}
        async with session.post(hub.address() + "/create", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        await hub.publish(version="2.0.0")
        async with session.get(hub.address() + "/counter/prompt", headers=headers) as answer:
            assert "1.0.0" in await answer.text()


async def test_a_package_or_version_that_does_not_exist_is_a_typed_404_over_each_transport(hub: Any) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/e/ada/nothing/list_environments", "/e/ada/counter@9.9.9/health", "/e/ada", "/e/ada/UPPER/mcp"):
            async with session.get(hub.url + path) as answer:
                assert answer.status == 404, path
                assert (await answer.json())["error"]["code"] == 4040
        async with session.post(hub.url + "/e/ada/nothing/mcp", json={}) as answer:
            assert answer.status == 404
            assert (await answer.json())["jsonrpc"] == "2.0"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(hub.url + "/e/ada/nothing/channel")
        assert refused.value.status == 404


async def test_an_upload_without_a_signature_never_runs(hub: Any, tools: Any) -> None:
    await hub.publish("loose", signed=False)
    async with aiohttp.ClientSession() as session:
        async with session.get(hub.address("loose") + "/health") as answer:
            assert answer.status == 403
            assert "without a signature" in (await answer.json())["error"]["message"]
    assert not tools.server_processes()
