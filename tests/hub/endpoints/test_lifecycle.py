"""Endpoints start on demand, keep to their versions, and stop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import hostile_endpoint
import httpx
import pytest
from waiting import wait_until

from ludus.client import connect, text_of
from ludus.protocol.episodes import GetEpisodeParams
from ludus.protocol.errors import CapacityError, EpisodeNotFound, LudusError
from ludus.protocol.methods import GET_EPISODE
from ludus.protocol.workers import worker_of
from ludus.server.auth.tokens import TokenFile, TokenStore, new_token, write_token_file

pytestmark = pytest.mark.timeout(120)


@pytest.mark.suite("hub-endpoints")
async def test_episodes_of_a_version_finish_there_while_new_ones_begin_on_the_next(hub: Any, tools: Any) -> None:
    async with connect(hub.address()) as client, connect(hub.address(version="1.0.0")) as pinned:
        counter = client.environment("counter")
        old = await counter.start(index=0)
        await old.call("add", number=1)
        await hub.publish(version="2.0.0")
        # The channel is open: the hub looks for new versions every second.
        await wait_until(lambda: hub.endpoints.server("ada", "counter", "2.0.0") is not None)
        new = await counter.start(index=0)
        assert worker_of(new.id) != worker_of(old.id)
        assert "version 2.0.0" in str(new.prompt)
        assert text_of((await old.call("add", number=2)).content).split()[0] == "3"
        assert text_of((await new.call("add", number=5)).content).split()[0] == "5"
        kept = await pinned.environment("counter").start(index=0)
        assert "version 1.0.0" in str(kept.prompt)
        assert len(tools.server_processes()) == 2
    async with connect(hub.address(), wire="mcp") as later:
        assert "version 2.0.0" in str((await later.environment("counter").start(index=0)).prompt)
    async with connect(hub.address(version="1.0.0"), wire="ors") as later:
        assert "version 1.0.0" in str((await later.environment("counter").start(index=0)).prompt)


async def test_an_idle_endpoint_stops_and_the_next_request_starts_it(start_hub: Any, tools: Any) -> None:
    hub = await start_hub(idle_seconds=1.0)
    await hub.publish()
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        (first,) = tools.server_processes()
        server, used_at = hub.server(), hub.server().used_at
        await wait_until(lambda: server.used_at > used_at + 2.5)  # the sweeps count a running episode as use
        assert tools.server_processes() == [first]
        await episode.close()
    await wait_until(lambda: not tools.server_processes(), 30)
    async with connect(hub.address()) as client:
        assert "Add" in str((await client.environment("counter").start(index=0)).prompt)
        with pytest.raises(EpisodeNotFound):
            await client._session.wire.request(GET_EPISODE, GetEpisodeParams(episode=episode.id))
    assert tools.server_processes() != [first]


@pytest.mark.suite("hub-endpoints")
async def test_many_first_requests_wait_for_one_start(hub: Any, tools: Any) -> None:
    async with aiohttp.ClientSession() as session:

        async def ask() -> int:
            async with session.get(hub.address() + "/list_environments") as answer:
                return answer.status

        assert await asyncio.gather(*(ask() for _ in range(20))) == [200] * 20
    assert len(tools.server_processes()) == 1


@pytest.mark.suite("hub-endpoints")
async def test_a_client_that_leaves_during_the_start_and_a_hub_that_stops_leave_no_process(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(shared=False)
    await hub.publish()
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.get(hub.address() + "/health"))
        await wait_until(lambda: bool(tools.server_processes()))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await hub.stop()
    assert not tools.server_processes()


async def test_a_hub_that_stops_during_an_episode_leaves_no_process_and_no_file(
    hub: Any, tools: Any, tmp_path: Path
) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"env_name": "counter", "split": "train", "index": 0}
        async with session.post(hub.address() + "/create", json=body, headers={"X-Session-ID": "one"}) as answer:
            assert answer.status == 200
        assert tools.server_processes()
        await hub.stop()
    assert not tools.server_processes()
    assert not list((hub.data / "environments").glob(".ludus-*"))


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("limit", ["running", "running_of_owner"])
async def test_beyond_the_limit_the_unused_endpoint_is_stopped_and_those_in_use_are_not(
    start_hub: Any, tools: Any, limit: str
) -> None:
    hub = await start_hub(limits={limit: 1})
    await hub.publish()
    await hub.publish("other")
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        async with aiohttp.ClientSession() as session:
            async with session.get(hub.address("other") + "/list_environments") as answer:
                assert answer.status == CapacityError.http_status
                error = (await answer.json())["error"]
                assert error["data"]["limit"] == limit
                assert int(answer.headers["retry-after"]) >= 1
            await episode.close()
            await wait_until(lambda: hub.server().unused)
            async with session.get(hub.address("other") + "/list_environments") as answer:
                assert answer.status == 200
    await wait_until(lambda: len(tools.server_processes()) == 1)


@pytest.mark.suite("hub-endpoints")
async def test_a_busy_endpoint_has_a_spare_that_takes_over_at_once(start_hub: Any, tools: Any) -> None:
    hub = await start_hub(spares=True)
    await hub.publish()
    async with connect(hub.address()) as client:
        counter = client.environment("counter")
        await counter.start(index=0)
        (first,) = tools.server_processes()
        server = hub.server()
        await wait_until(lambda: server.has_spare)
        before = set(tools.server_processes())
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: not server.worker.up)
        await wait_until(lambda: server.worker.up)
        assert first in before
        assert set(tools.server_processes()) & before, "the process that serves was there before"
        assert "Add" in str((await counter.start(index=0)).prompt)


async def test_logs_are_streamed_to_the_owner_alone(start_hub: Any, tmp_path: Path) -> None:
    secrets, records = {}, []
    for name in ("ada", "bob"):
        secret, record = new_token(name, ["episodes:run", "tasks:read", "rewards:read"])
        secrets[name] = {"Authorization": f"Bearer {secret}"}
        records.append(record)
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=tuple(records)))
    hub = await start_hub(tokens=TokenStore(tmp_path / "tokens.json"))
    await hub.publish()
    async with aiohttp.ClientSession() as session:
        for headers, status in (({}, 401), (secrets["bob"], 403)):
            async with session.get(hub.address() + "/logs", headers=headers) as answer:
                assert answer.status == status
        async with session.get(hub.address() + "/list_environments") as answer:
            assert answer.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(hub.address() + "/channel")
        assert refused.value.status == 401
        token = secrets["bob"]["Authorization"].split()[1]
        async with connect(hub.address(), token=token) as client:
            episode = await client.environment("counter").start(index=0)
            async with session.get(hub.address() + "/logs?follow=1", headers=secrets["ada"]) as answer:
                assert answer.status == 200
                code = "import sys; print('a line of the log', file=sys.stderr, flush=True)"
                await episode.call("run", code=code)
                async with asyncio.timeout(30):
                    async for line in answer.content:
                        if line == b"a line of the log\n":
                            break


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_one_principal_cannot_reach_the_episodes_of_another(start_hub: Any, tmp_path: Path, wire: Any) -> None:
    made = {name: new_token(name, ["episodes:run", "tasks:read", "rewards:read"]) for name in ("bob", "eve")}
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=tuple(record for _, record in made.values())))
    hub = await start_hub(tokens=TokenStore(tmp_path / "tokens.json"))
    await hub.publish()
    async with (
        connect(hub.address(), token=made["bob"][0], wire=wire) as bob,
        connect(hub.address(), token=made["eve"][0], wire="channel") as eve,
    ):
        episode = await bob.environment("counter").start(index=0)
        with pytest.raises(EpisodeNotFound):
            await eve._session.wire.request(GET_EPISODE, GetEpisodeParams(episode=episode.id))
        assert text_of((await episode.call("add", number=1)).content).split()[0] == "1"


async def test_a_page_of_another_site_cannot_open_a_channel(hub: Any) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(hub.address() + "/channel", headers={"Origin": "https://evil.example"})
        assert refused.value.status == 403


@pytest.mark.suite("hub-endpoints")
async def test_the_processes_of_a_hub_that_is_killed_end_with_it(tmp_path: Path, tools: Any) -> None:
    command = [sys.executable, "-m", "ludus.cli", "hub", "--port", "0", "--data", str(tmp_path / "hub")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60)).decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        async with aiohttp.ClientSession() as session:
            async with session.get(found[0] + "/e/ludus/guess-number/list_environments") as answer:
                assert "guess_number" in json.loads(await answer.text())
        (pid,) = [one for one, line in tools.processes_below(process.pid).items() if "hub.endpoints.child" in line]
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        assert process.stdout is not None
        process.stdout.close()
    await wait_until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_hub_without_a_sandbox_refuses_unless_the_operator_trusts_all_packages(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(sandbox="unsafe-local")
    await hub.publish()
    async with aiohttp.ClientSession() as session:
        async with session.get(hub.address() + "/health") as answer:
            assert answer.status >= 400
            assert "unsafe_own_packages" in (await answer.json())["error"]["message"]
    assert not tools.server_processes()


@pytest.mark.suite("hub-endpoints")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_the_operators_own_packages_run_without_a_sandbox_if_that_is_allowed(start_hub: Any, wire: Any) -> None:
    hub = await start_hub(unsafe_own_packages=True)
    await hub.publish()
    async with connect(hub.address(), wire=wire) as client:
        episode = await client.environment("counter").start(index=0)
        assert text_of((await episode.call("add", number=3)).content).split()[0] == "3"


@pytest.mark.suite("hub-endpoints")
async def test_a_client_that_leaves_during_a_call_frees_what_its_request_held(hub: Any, tools: Any) -> None:
    headers = {"X-Session-ID": "one"}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"env_name": "counter", "split": "train", "index": 0}
        async with session.post(hub.address() + "/create", json=body) as answer:
            assert answer.status == 200
        call = {"name": "run", "input": {"code": "import time; time.sleep(20)"}}
        asking = asyncio.create_task(session.post(hub.address() + "/counter/call", json=call))
        await wait_until(lambda: hub.server().in_use == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await wait_until(lambda: hub.server().in_use == 0, 5)


@pytest.mark.suite("hub-endpoints")
async def test_a_large_answer_passes_whole(hub: Any) -> None:
    async with connect(hub.address()) as client:
        episode = await client.environment("counter").start(index=0)
        large = await episode.call("run", code="print('x' * 900_000)")
        assert len(text_of(large.content)) >= 900_000


@pytest.mark.suite("hub-endpoints")
async def test_metrics_count_endpoints_by_state(start_hub: Any) -> None:
    hub = await start_hub()
    await hub.publish()
    await hub.publish("broken", source="raise SystemExit('no')")
    async with aiohttp.ClientSession() as session:
        for name in ("counter", "broken"):
            async with session.get(hub.address(name) + "/health") as answer:
                await answer.read()
        async with session.get(hub.url + "/metrics") as answer:
            text = await answer.text()
    for state, count in (("ready", 1), ("failed", 1), ("starting", 0), ("stopped", 0)):
        assert f'ludus_hub_endpoints{{state="{state}"}} {count}.0' in text


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_client_shows_why_an_endpoint_does_not_start(start_hub: Any, wire: Any) -> None:
    hub = await start_hub()
    await hub.publish("broken", source="raise SystemExit('the maze has no exit: 100 % of ünlucky agents')")
    with pytest.raises(LudusError, match=r"ada/broken@1\.0\.0 does not run(.|\n)*no exit: 100 % of ünlucky agents"):
        async with connect(hub.address("broken"), wire=wire) as client:
            await client.environment("broken").start(index=0)


@pytest.mark.suite("hub-endpoints")
async def test_a_long_reason_is_cut_in_the_middle(start_hub: Any) -> None:
    hub = await start_hub()
    await hub.publish("broken", source="raise SystemExit('first ' + '\\N{SNOWMAN}' * 3000 + ' last')")
    with pytest.raises(LudusError) as error:
        async with connect(hub.address("broken"), wire="channel") as client:
            await client.environment("broken").start(index=0)
    message = error.value.message
    assert message.startswith("ada/broken@1.0.0 does not run")
    assert message.endswith(" last\n[the process ended: exit code 1]")
    assert " … " in message
    assert len(message) < 3000


@pytest.mark.suite("hub-endpoints")
async def test_a_hub_that_stops_ends_open_requests_with_an_error_and_without_a_traceback(
    start_hub: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ludus.hub.serve.GRACE_SECONDS", 0.1)
    hub = await start_hub()
    await hub.publish("hostile", source=hostile_endpoint.SOURCE, cls="Hostile")
    async with httpx.AsyncClient(base_url=hub.address("hostile"), timeout=60) as client:
        assert (await client.get("/health")).status_code == 200
        server = hub.server("hostile")
        waiting = asyncio.ensure_future(client.get(hostile_endpoint.raw_path(b"H", "wait")))
        await wait_until(lambda: server.in_use > 0, 60)
        await hub.stop()
        got = await waiting
    assert (got.status_code, got.json()["error"]["code"]) == (503, 5030)
    assert [record for record in caplog.records if record.exc_info] == []
