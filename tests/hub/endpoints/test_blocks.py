"""A blocked version ends at once: its processes, its episodes, and every request that would start it again."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from free_ports import free_ports
from hubs import HubProcess, WheelParts, published, release
from postgres_server import PostgresServer
from waiting import wait_until

from ludus.client import connect, text_of
from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.hub.app import parts_of
from ludus.protocol.errors import Forbidden, InfrastructureFailed, LudusError
from ludus.registry.types.packages import EnvironmentEntry

pytestmark = pytest.mark.timeout(180)
REASON = "it sends prompts to a stranger"


async def blocked(hub: Any, sha256: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"{hub.url}/api/v1/blocks/{sha256}", json={"reason": REASON}) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def unblocked(hub: Any, sha256: str) -> None:
    async with aiohttp.ClientSession() as session, session.delete(f"{hub.url}/api/v1/blocks/{sha256}") as answer:
        assert answer.status == 200, await answer.text()


async def test_a_block_ends_processes_and_episodes_and_the_next_version_serves_the_newest_address(
    hub: Any, tools: Any
) -> None:
    await hub.publish(version="2.0.0")
    async with connect(hub.address()) as client, connect(hub.address(version="2.0.0")) as pinned:
        old, other = [await one.environment("counter").start(index=0) for one in (client, pinned)]
        async with open_agent_endpoint(old.require_play_url()) as agent:
            await agent.call("add", number=1)
            assert len(tools.server_processes()) == 1
            await blocked(hub, hub.server(version="2.0.0").release.sha256)
            assert tools.server_processes() == []  # the answer to the block comes after the last process
            with pytest.raises(InfrastructureFailed, match=REASON):
                await agent.call("add", number=1)
        for episode in (old, other):
            with pytest.raises(InfrastructureFailed, match=REASON):
                await episode.call("add", number=1)
        fresh = await client.environment("counter").start(index=0)
        assert "version 1.0.0" in str(fresh.prompt)
        assert text_of((await fresh.call("add", number=2)).content).split()[0] == "2"
        with pytest.raises(Forbidden, match=REASON):
            await pinned.environment("counter").start(index=0)


async def test_a_call_that_runs_when_its_version_is_blocked_ends_unscored_with_the_reason(hub: Any, tools: Any) -> None:
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        async with open_agent_endpoint(episode.require_play_url()) as agent:
            calling = asyncio.create_task(agent.call("block", code="import time; time.sleep(3600)"))
            await wait_until(lambda: hub.server().in_use > 0)
            await blocked(hub, hub.server().release.sha256)
            with pytest.raises(InfrastructureFailed, match=REASON):
                await calling
    assert tools.server_processes() == []


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("path", ["/health", "/list_environments", "/mcp", "/create", "/channel", "/logs"])
async def test_nothing_of_a_blocked_version_starts_again_until_the_block_is_undone(
    hub: Any, tools: Any, path: str
) -> None:
    release_sha256 = await asyncio.to_thread(parts_of(hub.app).hub.blocks.digest_of_version, "ada/counter", "1.0.0")
    await blocked(hub, release_sha256)
    async with aiohttp.ClientSession() as session:
        for address in (hub.address(), hub.address(version="1.0.0")):
            headers = {"upgrade": "websocket", "connection": "upgrade"} if path == "/channel" else {}
            method = "POST" if path in ("/mcp", "/create") else "GET"
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"} if method == "POST" else None
            async with session.request(method, address + path, json=body, headers=headers) as answer:
                text = await answer.text()
                assert (answer.status, REASON in text) == (403, True), text
        assert tools.server_processes() == []
        await unblocked(hub, release_sha256)
        async with session.get(hub.address() + "/health") as answer:
            assert answer.status == 200


@pytest.mark.suite("hub-endpoints")
async def test_a_block_at_one_process_of_a_hub_ends_the_endpoint_at_another(
    postgres: PostgresServer, tmp_path: Any
) -> None:
    url, ports = postgres.new_url(), free_ports(2)
    (tmp_path / "settings.toml").write_text("[endpoints]\nspares = false\n")
    hubs = []
    try:
        for name, port in zip("ab", ports, strict=True):
            (tmp_path / name).mkdir()
            more = ("--settings", str(tmp_path / "settings.toml"), "--no-seed", "--port", str(port))
            hubs.append(HubProcess(tmp_path / name / "hub", *more, database=url))
        parts = WheelParts("local-coins")
        one = release(
            "local/coins", parts=parts, environments=(EnvironmentEntry(name="toss", source=f"{parts.package}:Toss"),)
        )
        with hubs[0].client() as client, hubs[1].client() as other:
            published(client, one)
            async with connect(f"{hubs[0].url}/e/local/coins@1.0.0") as channel:
                episode = await channel.environment("toss").start(index=0)
                assert other.put(f"/api/v1/blocks/{one.sha256}", json={"reason": REASON}).status_code == 200

                async def has_ended() -> bool:
                    try:
                        await episode.call("look")
                    except InfrastructureFailed as error:
                        return REASON in error.message
                    except LudusError:
                        return False
                    return False

                await wait_until(has_ended, 30)
            refused = client.get("/e/local/coins/health")
            assert (refused.status_code, REASON in refused.text) == (403, True)
    finally:
        for hub in hubs:
            hub.stop()
