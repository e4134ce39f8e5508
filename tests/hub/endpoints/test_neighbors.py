"""Two hub processes behind nginx, which sends each request to the next one: each answers for the other's endpoints."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from free_ports import free_ports
from hub_sites import Page, as_page
from hubs import HubProcess, WheelParts, published, release
from mcp import Client as McpClient
from postgres_server import PostgresServer
from proxy_processes import running_proxy

from ludus.client import Client, connect, text_of
from ludus.client.episode import Episode
from ludus.hub.core.peers import FORWARDED
from ludus.hub.endpoints.releases import process_of
from ludus.protocol.episodes import Outcome, ReportOutcomesParams, SplitInfo, StartParams
from ludus.protocol.errors import InfrastructureFailed
from ludus.protocol.methods import REPORT_OUTCOMES, START
from ludus.protocol.workers import worker_of, worker_of_session
from ludus.registry.types.packages import EnvironmentEntry

pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("hub-endpoints")]

SETTINGS = """
[results]
lease_seconds = 6.0
sweep_seconds = 0.5
[endpoints]
spares = false
replicas = 1
"""
NGINX = """
events {{}}
http {{
    access_log off;
    upstream hub {{ server 127.0.0.1:{0}; server 127.0.0.1:{1}; }}
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    server {{
        listen 127.0.0.1:{2};
        client_body_temp_path {3};
        proxy_temp_path {3};
        location / {{
            proxy_pass http://hub;
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_read_timeout 300s;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }}
    }}
}}
"""
COUNTER = '''
"""Adds numbers."""

import sys

from ludus.server import Environment, Result, Task, tool


class Toss(Environment[Task]):
    """Add numbers."""

    splits = {"train": [Task(id="only")]}
    reward_range = (0.0, 100.0)

    def setup(self):
        """Begin with nothing."""
        self.sum = 0

    def prompt(self):
        """Say what to do."""
        return "Add."

    @tool
    def add(self, number: int) -> Result:
        """Add a number."""
        self.sum += number
        return Result(str(self.sum), reward=float(number), finished=self.sum >= 100)

    @tool
    def write(self, text: str) -> str:
        """Write a line into the log."""
        print(text, file=sys.stderr, flush=True)
        return ""
'''
PACKAGE = "local/counter"
WIRES: tuple[Any, ...] = ("channel", "mcp", "ors")


@dataclass
class Pair:
    """Two hub processes, and the address of nginx."""

    hubs: list[HubProcess]
    url: str

    @property
    def endpoint(self) -> str:
        return f"{self.url}/e/{PACKAGE}"

    def of(self, number: int) -> str:
        return f"{self.hubs[number].url}/e/{PACKAGE}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)


@pytest.fixture
async def pair(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Pair]:
    url, ports, hubs = postgres.new_url(), free_ports(3), list[HubProcess]()
    (tmp_path / "settings.toml").write_text(SETTINGS)
    parts = WheelParts(PACKAGE.replace("/", "-"), module=COUNTER)
    entry = EnvironmentEntry(
        name="toss", source=f"{parts.package}:Toss", splits=(SplitInfo(name="train", type="train", count=1),)
    )
    try:
        for name, port in zip("ab", ports, strict=False):
            (tmp_path / name).mkdir()
            if hubs:
                shutil.copytree(hubs[0].data / "blobs", tmp_path / name / "hub" / "blobs")
            more = (
                "--settings",
                str(tmp_path / "settings.toml"),
                "--no-seed",
                "--peer-url",
                f"http://127.0.0.1:{port}",
            )
            hubs.append(HubProcess(tmp_path / name / "hub", "--port", str(port), *more, database=url))
            if len(hubs) == 1:
                with hubs[0].client() as client:
                    published(client, release(PACKAGE, parts=parts, environments=(entry,)))
        (tmp_path / "nginx").mkdir()
        (tmp_path / "temporary").mkdir()
        text = NGINX.format(*ports, tmp_path / "temporary")
        async with running_proxy("nginx", text, ports[2], tmp_path / "nginx"):
            for address in (hubs[0].url, hubs[1].url):  # the first request installs the package
                where = f"{address}/e/{PACKAGE}/list_environments"
                assert (await asyncio.to_thread(httpx.get, where, timeout=120)).status_code == 200
            yield Pair(hubs, f"http://127.0.0.1:{ports[2]}")
    finally:
        for hub in hubs:
            if hub.process.poll() is None:
                hub.stop()
    for hub in hubs:
        assert "Traceback" not in hub.log(), hub.log()


def process(episode: Episode) -> str:
    found = process_of(worker_of(episode.id) or worker_of_session(episode.id))
    assert found is not None
    return found


async def add(episode: Episode, number: int) -> str:
    said = await episode.call("add", number=number)
    assert said.reward is not None
    assert said.reward.value == number
    return text_of(said.content).split()[0]


@pytest.mark.parametrize("wire", WIRES)
async def test_episodes_of_both_processes_are_played_through_either(pair: Pair, wire: Any) -> None:
    async with connect(pair.endpoint, wire=wire) as client:
        environment = client.environment("toss")
        episodes = await asyncio.gather(*(environment.start(index=0) for _ in range(12)))
        for number in (1, 2, 3):
            said = await asyncio.gather(*(add(one, number) for one in episodes))
            assert said == [str(sum(range(number + 1)))] * 12
        counts = Counter(process(one) for one in episodes)
        assert len(counts) == 2, counts
        for one in episodes:
            reward = (await one.close()).reward
            assert reward is not None
            assert reward.value == 6.0
    async with connect(pair.endpoint, wire=wire) as client:
        group = await client.environment("toss").start_group(3, index=0)
        assert [await add(one, 5) for one in group.episodes] == ["5"] * 3
        if wire != "ors":  # whose groups are episodes that the client starts one by one
            assert len({process(one) for one in group.episodes}) == 1


async def test_stock_clients_play_through_whichever_process_they_reach(pair: Pair) -> None:
    seen = set()
    for number in (0, 1):
        async with McpClient(f"{pair.of(number)}/mcp") as stock:
            started = await stock.call_tool("start_episode", {"environment": "toss"})
        url = re.findall(rf"(/e/{PACKAGE}@1.0.0/play/[^\"\\ ]+)", json.dumps(started.model_dump(mode="json")))[0]
        seen.add(url.partition("play_")[2].partition(".")[0])
        for base in (pair.url, pair.hubs[0].url, pair.hubs[1].url):
            async with McpClient(base + url) as agent:
                assert {tool.name for tool in (await agent.list_tools()).tools} == {"add", "write"}
                assert (await agent.call_tool("add", {"number": 1})).is_error is not True
    assert len(seen) == 2
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        for sid in ("made up", None):
            headers = {"X-Session-ID": sid} if sid is not None else {}
            if sid is None:
                async with session.post(
                    f"{pair.endpoint}/create_session", headers={"Accept": "application/json"}
                ) as one:
                    headers["X-Session-ID"] = (await one.json())["sid"]
            body: dict[str, Any] = {"env_name": "toss", "split": "train", "index": 0}
            async with session.post(f"{pair.endpoint}/create", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
            for number in range(1, 5):
                call = {"name": "add", "input": {"number": 2}}
                async with session.post(f"{pair.endpoint}/toss/call", json=call, headers=headers) as answer:
                    text = (await answer.text()).replace("\\", "").replace(" ", "")
                    assert answer.status == 200, text
                    assert f'"text":"{2 * number}' in text


async def test_a_start_that_is_sent_again_to_the_other_process_is_the_same_episode(pair: Pair) -> None:
    async with connect(pair.of(0), wire="mcp") as first, connect(pair.of(1), wire="channel") as second:
        found = set()
        for number in range(6):
            key = f"a key of the client {number}"
            params = StartParams(environment="toss", split="train", index=0, key=key)
            one, again = [await client._session.wire.request(START, params) for client in (first, second)]
            assert one.episodes[0].episode == again.episodes[0].episode
            found.add(process_of(worker_of(one.episodes[0].episode)))
    assert len(found) == 2


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_report_of_outcomes_reaches_both_processes_and_counts_once(pair: Pair, wire: Any) -> None:
    passed = Outcome(task="only", reward=1.0, passed=True)
    async with connect(pair.of(0), wire=wire) as first, connect(pair.of(1), wire=wire) as second:
        sent = [
            ReportOutcomesParams(environment="toss", split="train", outcomes=(passed,), key=f"key {number}")
            for number in (1, 2, 3, 4)
        ]
        for number, client in enumerate((first, second, first, second), start=1):
            assert await until_recorded(client, sent[number - 1], number) == number
        for client in (first, second):
            for params in sent:
                assert await until_recorded(client, params, 4) == 4, "one that is sent again counts once"


async def test_both_processes_show_the_log_of_both(pair: Pair) -> None:
    names = [await only_process(hub) for hub in pair.hubs]
    async with connect(pair.endpoint, wire="mcp") as client:
        for number, name in enumerate(names):
            await (await started_at(client, name)).call("write", text=f"a line of {number}")
            async with asyncio.timeout(60):
                while f"a line of {number}" not in await log_of(pair, number):
                    pass
    written = [f"[{name}] a line of {number}" for number, name in enumerate(names)]
    first, second = [await log_of(pair, number) for number in (0, 1)]
    assert first == second
    assert [line for line in first.splitlines() if "a line of" in line] == sorted(written)
    alone = await log_of(pair, 1, {FORWARDED: "1"})
    assert "a line of 1" in alone.splitlines()
    assert "a line of 0" not in alone
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{pair.of(0)}/logs?follow=1") as following,
        connect(pair.of(1), wire="mcp") as client,
    ):
        await (await started_at(client, names[1])).call("write", text="a later line")
        async with asyncio.timeout(60):
            while await following.content.readline() != f"[{names[1]}] a later line\n".encode():
                pass
    pair.hubs[1].kill()
    async with asyncio.timeout(60):
        while "a line of 0" not in (left := await log_of(pair, 0)) or names[1] in left:
            assert f"[{names[1]}] (this process of the hub does not answer)" in left or names[1] not in left


async def started_at(client: Client, name: str) -> Episode:
    """Start episodes until one is at a process, and return it."""
    while process(found := await client.environment("toss").start(index=0)) != name:
        await found.close()
    return found


async def log_of(pair: Pair, number: int, headers: dict[str, str] | None = None) -> str:
    """Return the log that a process of the hub shows."""
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{pair.of(number)}/logs", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


async def until_recorded(client: Any, params: ReportOutcomesParams, wanted: int) -> int:
    """Send a report until a process has as many outcomes; over the channel, an answer does not wait for the others."""
    async with asyncio.timeout(60):
        while True:
            found: int = (await client._session.wire.request(REPORT_OUTCOMES, params)).recorded
            if found >= wanted:
                return found


async def test_a_request_is_passed_on_once_and_wrong_ids_are_refused_alike(pair: Pair) -> None:
    async with connect(pair.of(0), wire="mcp") as client:
        started = [await client.environment("toss").start(index=0) for _ in range(6)]
        urls = {process(one): str(one.play_url) for one in started}
        paths = [url[url.index("/e/") :] for url in urls.values()]
    with httpx.Client(timeout=60) as client:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        looped = [
            client.post(hub.url + path, json=ping, headers={FORWARDED: "1"}) for hub in pair.hubs for path in paths
        ]
        assert sorted(one.status_code < 300 for one in looped).count(False) == 2, "each keeps to its own episodes"
        for path in paths:
            wrong = path[:-3] + "xxx"
            answers = [client.post(hub.url + wrong, json=ping) for hub in pair.hubs]
            assert {one.status_code for one in answers} == {404}
            assert answers[0].text == answers[1].text
        evil = [
            client.post(hub.url + paths[0], json=ping, headers={"origin": "https://evil.example"}) for hub in pair.hubs
        ]
        assert {one.status_code for one in evil} == {403}


def play(browser: httpx.Client) -> tuple[str, Page]:
    """Start an episode by hand; return its address and its page."""
    first = as_page(browser.get(f"/{PACKAGE}/play"))
    fields = {name: first.hidden(name) for name in ("form_key", "version")}
    answer = browser.post(f"/{PACKAGE}/play", data={**fields, "what": "toss/train", "index": ""})
    return answer.url.path, as_page(answer)


def act(browser: httpx.Client, address: str, shown: Page, number: int) -> httpx.Response:
    fields = {name: shown.hidden(name) for name in ("form_key", "turn", "tool")}
    return browser.post(address, data={**fields, "a.number": str(number)})


async def test_a_person_plays_in_the_browser_through_both_until_one_is_killed(pair: Pair) -> None:
    with pair.client() as browser:
        browser.headers["accept"] = "text/html"
        browser.follow_redirects = True
        plays = [await asyncio.to_thread(play, browser) for _ in range(3)]
        processes = {address.rpartition("/")[2][:8] for address, _ in plays}
        for _ in range(2):
            plays = [
                (address, as_page(await asyncio.to_thread(act, browser, address, shown, 10)))
                for address, shown in plays
            ]
        assert all("Your turn" in shown.text for _, shown in plays)
        address, shown = plays[0]
        ended = as_page(await asyncio.to_thread(act, browser, address, shown, 90))
        assert "The episode has ended" in ended.text
        assert "110" in ended.text
        saved = await asyncio.to_thread(browser.get, f"{address}/demonstration")
        assert json.loads(saved.text)["policy"] == "person"
        assert len(processes) == 2, "the proxy started plays at both"
        pair.hubs[1].kill()
        lost = [await settled(browser, address) for address, _ in plays]
        assert sorted({one.status_code for one in lost}) == [200, 500]
        for one in lost:
            shown = as_page(one, one.status_code)
            assert one.status_code == 200 or "has ended, and the episode with it" in shown.text


async def settled(browser: httpx.Client, address: str) -> httpx.Response:
    """Return the page of a play once it is known whether its process lives; until then it says to try again."""
    while (answer := await asyncio.to_thread(browser.get, address)).status_code == 503:
        assert float(answer.headers["retry-after"]) > 0
    return answer


async def test_when_a_process_is_killed_its_episodes_end_with_a_typed_error_and_the_others_go_on(pair: Pair) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(pair.endpoint, wire=wire)) for wire in WIRES]
        episodes = []
        for client in clients:
            episodes += await asyncio.gather(*(client.environment("toss").start(index=0) for _ in range(8)))
        assert set(await asyncio.gather(*(add(one, 1) for one in episodes))) == {"1"}
        kept = await only_process(pair.hubs[0])
        assert {process(one) for one in episodes} > {kept}
        pair.hubs[1].kill()
        said = await asyncio.gather(*(add(one, 2) for one in episodes), return_exceptions=True)
        for one, answer in zip(episodes, said, strict=True):
            if process(one) == kept:
                assert answer == "3", (one.id, answer)
            else:
                assert isinstance(answer, InfrastructureFailed), (one.id, answer)
        for client in clients:
            later = await asyncio.gather(*(client.environment("toss").start(index=0) for _ in range(4)))
            assert {process(one) for one in later} == {kept}
            assert [await add(one, 7) for one in later] == ["7"] * 4
    lost = next(one for one in episodes if process(one) != kept and one.play_url)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with pair.client() as browser:
        refused = browser.post(str(lost.play_url)[str(lost.play_url).index("/e/") :], json=ping)
        assert (refused.status_code, refused.json()["id"]) == (200, 1)
        error = refused.json()["error"]
        assert (error["code"], error["data"]["endReason"]) == (InfrastructureFailed.code, "infrastructure_error")


async def only_process(hub: HubProcess) -> str:
    """Return the name of a process."""
    async with aiohttp.ClientSession() as session:
        headers = {"Accept": "application/json"}
        async with session.post(f"{hub.url}/e/{PACKAGE}/create_session", headers=headers) as answer:
            found = process_of(worker_of_session((await answer.json())["sid"]))
    assert found is not None
    return found
