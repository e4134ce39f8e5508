"""The configurations of docs/workers.md route every wire by its ids, in the real nginx and the real Caddy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from free_ports import free_port
from proxy_processes import program_of, running_proxy

from ludus.client import connect, text_of
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.workers import EPISODE_HEADER, worker_of
from ludus.server import Environment, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"
WORKERS = ("w0", "w1")
TOKEN, RECORD = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
VARIABLES = {"LUDUS_TOKENS": TokenFile(tokens=(RECORD,)).model_dump_json()}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("workers")]


class Sums(Environment[Task]):
    """Adds."""

    splits = {"train": [Task(id="only")]}
    seedable = False

    def setup(self) -> None:
        self.sum = 0

    def prompt(self) -> str:
        return "Add."

    @tool
    def add(self, number: int) -> str:
        """Add a number."""
        self.sum += number
        return str(self.sum)


def configuration(name: str, port: int, servers: dict[str, Any], folder: Path) -> str:
    """The file of the documentation, changed only in its addresses and in where it keeps files."""
    if name == "caddy":
        text = (
            (SNIPPETS / "Caddyfile-workers").read_text(encoding="utf-8").replace(":80 {", f"http://127.0.0.1:{port} {{")
        )
        text = "{\n\tadmin off\n\tauto_https off\n}\n" + text
    else:
        text = (SNIPPETS / "nginx-workers.conf").read_text(encoding="utf-8")
        text = text.replace("listen 80;", f"listen 127.0.0.1:{port};")
        kept = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", f"http {{\naccess_log {folder}/access.log; {kept}\n", 1)
    for place, worker in enumerate(WORKERS):
        text = text.replace(f"127.0.0.1:{8000 + place}", servers[worker].url.removeprefix("http://"))
    return text


@pytest.fixture
async def servers(serve: Any) -> dict[str, Any]:
    """Two servers with worker ids."""
    settings = {"variables": VARIABLES, "trusted_proxies": ("127.0.0.1",)}
    return {name: await serve(Sums, worker=name, **settings) for name in WORKERS}


@pytest.fixture(params=["nginx", "caddy"])
async def proxy(request: pytest.FixtureRequest, servers: dict[str, Any], tmp_path: Path) -> AsyncIterator[str]:
    """The address of a proxy in front of both."""
    program_of(request.param)
    port = free_port()
    text = configuration(request.param, port, servers, tmp_path)
    async with running_proxy(request.param, text, port, tmp_path):
        yield f"http://127.0.0.1:{port}"


async def test_requests_reach_the_server_that_their_ids_name_on_every_wire(
    proxy: str, servers: dict[str, Any], tmp_path: Path
) -> None:
    headers = {"Accept": "application/json, text/event-stream", **BEARER}
    async with aiohttp.ClientSession(headers=headers) as session:
        for name, server in servers.items():
            async with connect(server.url, token=TOKEN) as direct:  # so that the episode is on this server
                started = await direct.environment("sums").start()
                assert worker_of(started.id) == name
                step = {"episode": started.id, "tool": "add", "arguments": {"number": 1}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/step"}
                path = f"/workers/{name}/channel"
                async with session.ws_connect(proxy + path, protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
                    await socket.send_str(json.dumps({**body, "params": {**step, "step": 1, "key": "1"}}))
                    reply = json.loads((await socket.receive()).data)
                    assert reply["result"]["content"][0]["text"] == "1"
                second = {**body, "params": {**step, "step": 2, "key": "2"}}
                async with session.post(f"{proxy}/mcp", json=second, headers={EPISODE_HEADER: started.id}) as answer:
                    assert (await answer.json())["result"]["content"][0]["text"] == "2"
                assert started.play_url is not None
                call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
                call |= {"params": {"name": "add", "arguments": {"number": 1}}}
                async with session.post(started.play_url.replace(server.url, proxy), json=call) as answer:
                    assert (await answer.json())["result"]["content"][0]["text"] == "3"
            async with session.post(f"{server.url}/create_session", headers={"Accept": "application/json"}) as opened:
                sid = {"X-Session-ID": (await opened.json())["sid"]}
            async with session.post(f"{proxy}/create", json={"split": "train", "index": 0}, headers=sid) as created:
                assert created.status == 200
            async with session.post(f"{server.url}/ping", headers=sid) as pinged:
                assert pinged.status == 200, "the session is on the server that its id names"
    if (tmp_path / "access.log").exists():  # that of nginx; Caddy writes none
        requests = (tmp_path / "access.log").read_text()
        assert "POST /mcp" in requests
        assert "play_" not in requests + (tmp_path / "log").read_text()


async def test_our_client_plays_through_the_proxy(proxy: str) -> None:
    for wire in ("channel", "mcp", "ors"):
        async with connect(proxy, token=TOKEN, wire=wire) as client:
            episodes = [await client.environment("sums").start() for _ in range(4)]
            for number in (1, 2):
                for one in episodes:
                    assert text_of((await one.call("add", number=number)).content) == str(number if number == 1 else 3)
            if wire != "ors":
                assert all((one.play_url or "").startswith(f"{proxy}/play/play_w") for one in episodes)
