"""The configurations of docs/deployment.md, started with the real nginx and the real Caddy and played through."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from durable_server import Process
from free_ports import free_port
from proxy_processes import program_of, running_proxy
from waiting import wait_until
from yarl import URL

from ludus.client import connect, text_of
from ludus.server import Environment, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "docs" / "snippets"
VISITOR = Path(__file__).with_name("visitor.py")
TOKEN, RECORD = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
VARIABLES = {"LUDUS_TOKENS": TokenFile(tokens=(RECORD,)).model_dump_json(), "LUDUS_CAPABILITY_KEY": "ab" * 32}
PATIENCE = 200
pytestmark = pytest.mark.timeout(300)
PROXIES = ("nginx", "nginx with HTTP/1.0", "caddy")
Proxy = Callable[..., Awaitable[str]]


class Echo(Environment[Task]):
    """Repeats."""

    splits = {"train": [Task(id="only")]}
    seedable = False
    gate = asyncio.Event()

    def prompt(self) -> str:
        return "Say something."

    @tool
    async def say(self, text: str) -> str:
        """Say it."""
        return text

    @tool
    async def measure(self, text: str) -> str:
        """Say how long a text is."""
        return str(len(text))

    @tool
    async def wait(self) -> str:
        """Wait until the test lets go."""
        await self.gate.wait()
        return "done"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `localhost` that is its own authority, and its key."""
    import subprocess

    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return certificate, key


def written_for(name: str, port: int, upstreams: dict[str, int], tls: tuple[Path, Path], folder: Path) -> str:
    """The file of the documentation, changed only in its addresses, its certificate and where it keeps files."""
    text = (SNIPPETS / ("Caddyfile" if name == "caddy" else "nginx.conf")).read_text(encoding="utf-8")
    for old, new in (
        ("/etc/ssl/lab.example.org.pem", str(tls[0])),
        ("/etc/ssl/private/lab.example.org.key", str(tls[1])),
    ):
        assert old in text
        text = text.replace(old, new)
    if name == "caddy":
        text = re.sub(r"^lab\.example\.org \{", f"localhost:{port} {{", text, flags=re.MULTILINE)
        block = re.compile(r"\tredir /rl /rl/\n.*\n\t\}\n(?=\}\n)", re.DOTALL)
        text = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text
    else:
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;").replace("lab.example.org", "localhost")
        kept = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        text = text.replace("http {\n", f"http {{\naccess_log {folder}/access.log; {kept}\n", 1)
        block = re.compile(r"        location /rl/ \{.*?\n        \}\n", re.DOTALL)
    if name == "nginx with HTTP/1.0":
        text, count = re.subn(r"proxy_http_version 1\.1;", "proxy_http_version 1.0;", text)
        assert count == 1
    (part,) = block.findall(text)
    parts = [
        part.replace("/rl", prefix).replace("127.0.0.1:8000", f"127.0.0.1:{upstream}")
        for prefix, upstream in upstreams.items()
    ]
    return text.replace(part, "".join(parts))


@asynccontextmanager
async def _proxied(
    name: str, port: int, upstreams: dict[str, int], tls: tuple[Path, Path], folder: Path
) -> AsyncIterator[str]:
    program = name.split()[0]
    program_of(program)
    async with running_proxy(program, written_for(name, port, upstreams, tls, folder), port, folder):
        yield f"https://localhost:{port}"


@pytest.fixture(params=PROXIES)
async def proxy(request: pytest.FixtureRequest, certificate: tuple[Path, Path], tmp_path: Path) -> AsyncIterator[Proxy]:
    """`await proxy(port, {"/rl": server})`: each proxy in turn, in front of servers by prefix; gives its address."""
    async with AsyncExitStack() as stack:

        async def start(port: int, servers: dict[str, Any]) -> str:
            upstreams = {prefix: int(server.url.rpartition(":")[2]) for prefix, server in servers.items()}
            folder = tmp_path / f"proxy-{port}"
            folder.mkdir()
            return await stack.enter_async_context(_proxied(request.param, port, upstreams, certificate, folder))

        start.__name__ = request.param
        yield start


async def visit(url: str, certificate: tuple[Path, Path], *wires: str) -> Any:
    """What a trainer and an agent made of a server that they know by `url` only."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(VISITOR), url, TOKEN, *wires),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SSL_CERT_FILE": str(certificate[0]), "NO_PROXY": "*"},
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()[-3000:]
    return json.loads(output)


def wires_of(proxy: Any) -> tuple[str, ...]:
    """The wires that pass a proxy: the channel is a WebSocket, which HTTP/1.0 does not have."""
    return ("auto", "mcp", "ors") if "1.0" in proxy.__name__ else ("auto", "channel", "mcp", "ors")


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("known_by", ["its public URL", "forwarded headers"])
async def test_every_wire_and_every_play_url_works_through_the_documented_proxy(
    known_by: str, proxy: Any, serve: Any, certificate: Any, tmp_path: Path
) -> None:
    port = free_port()
    public = f"https://localhost:{port}/rl"
    settings = {"public_url": public} if known_by == "its public URL" else {}
    server = await serve(Echo, variables=VARIABLES, trusted_proxies=("127.0.0.1",), **settings)
    assert await proxy(port, {"/rl": server}) + "/rl" == public
    report = await visit(public, certificate, *wires_of(proxy))
    episode = [["say", "measure", "wait"], "x" * 10]
    for wire in wires_of(proxy):
        assert report[wire]["length"] == "2000000"
        if wire != "ors":
            assert report[wire]["play_url"].startswith(public + "/play/play_")
            assert report[wire]["played"] == [episode, episode]
    assert report["host"]["play_url"].startswith(public + "/play/play_")
    assert report["host"]["played"] == episode
    if proxy.__name__.startswith("nginx"):
        folder = tmp_path / f"proxy-{port}"
        requests = (folder / "access.log").read_text()
        assert "POST /rl/mcp" in requests
        assert "play" not in requests
        assert "play_" not in (folder / "log").read_text()
    assert report["pages"] == {"document": "/rl/openapi.json", "servers": [{"url": "/rl"}]}


@pytest.mark.parametrize(
    "path", ["/play/play_secret/mcp", "/pl%61y/play_secret/mcp", "/./play//play_secret/x?a=play_secret"]
)
async def test_no_log_of_nginx_holds_a_play_url_when_the_server_is_away(
    path: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(_proxied("nginx", port, {"/rl": free_port()}, certificate, tmp_path))
        context = ssl.create_default_context(cafile=str(certificate[0]))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)))
        for where in (path, "/health"):
            async with session.post(URL(f"{base}/rl{where}", encoded=True)) as answer:
                assert answer.status == 502
    requests, problems = ((tmp_path / name).read_text() for name in ("access.log", "log"))
    assert "/rl/health" in requests
    assert "/rl/health" in problems, "the error log still has what is no credential"
    assert "secret" not in requests + problems


async def test_events_pass_the_proxy_before_the_tool_has_ended(proxy: Any, serve: Any, certificate: Any) -> None:
    Echo.gate = asyncio.Event()
    port = free_port()
    server = await serve(Echo, variables=VARIABLES, public_url=f"https://localhost:{port}/rl")
    base = await proxy(port, {"/rl": server}) + "/rl"
    context = ssl.create_default_context(cafile=str(certificate[0]))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session, asyncio.timeout(PATIENCE):
        async with session.post(f"{base}/create_session") as opened:
            found = re.search(r"[0-9a-f-]{36}", await opened.text())
            assert found is not None
        mine = {"X-Session-ID": found[0]}
        body = {"env_name": "echo", "split": "train", "index": 0}
        async with session.post(f"{base}/create", json=body, headers=mine) as created:
            assert created.status == 200, await created.text()
        async with session.post(f"{base}/echo/call", json={"name": "wait", "input": {}}, headers=mine) as call:
            first = await call.content.readline()
            assert first.startswith(b"event: task_id")
            assert not Echo.gate.is_set()
            Echo.gate.set()
            assert b"done" in await call.read()


@pytest.mark.suite("breadth")
async def test_two_servers_behind_one_proxy_have_an_address_each(proxy: Any, serve: Any, certificate: Any) -> None:
    port = free_port()
    servers = {
        prefix: await serve(Echo, variables=VARIABLES, public_url=f"https://localhost:{port}{prefix}")
        for prefix in ("/rl/a", "/rl/b")
    }
    base = await proxy(port, servers)
    reports = {prefix: await visit(base + prefix, certificate, "mcp") for prefix in servers}
    for prefix, report in reports.items():
        assert report["mcp"]["play_url"].startswith(base + prefix + "/play/")
        assert report["mcp"]["played"] == [[["say", "measure", "wait"], "x" * 10]] * 2


async def test_what_a_stranger_forwards_does_not_pass_the_documented_proxy(
    proxy: Any, serve: Any, certificate: Any
) -> None:
    port = free_port()
    server = await serve(Echo, variables=VARIABLES, trusted_proxies=("127.0.0.1",), allow_hosts=("*",))
    base = await proxy(port, {"/rl": server}) + "/rl"
    lies = {
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Port": "1",
        "X-Forwarded-Prefix": "/evil",
        "Forwarded": "host=evil.example",
    }
    context = ssl.create_default_context(cafile=str(certificate[0]))
    own = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    start = {"environment": "echo", "split": "train", "key": "k"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/start", "params": start}
    own["MCP-Protocol-Version"] = "2025-11-25"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with session.post(f"{base}/mcp", json=body, headers={**own, **lies}) as answer:
            play = (await answer.json())["result"]["episodes"][0]["play"]
    assert play["url"] == base + play["path"]


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("wire", ["ors", "mcp"])
async def test_a_step_is_made_once_though_nginx_has_answered_that_the_server_is_away(tmp_path: Path, wire: Any) -> None:
    server, port, folder = Process(tmp_path), free_port(), tmp_path / "nginx"
    folder.mkdir()
    kept = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    place = f"location / {{ proxy_pass {server.url}; proxy_set_header Host 127.0.0.1:{server.port}; }}"
    text = f"""events {{}} http {{ {kept} log_format short "$status"; access_log {folder}/access short;
        server {{ listen 127.0.0.1:{port}; {place} }} }}"""
    await server.start()
    try:
        async with running_proxy("nginx", text, port, folder), connect(f"http://127.0.0.1:{port}", wire=wire) as client:
            episode = await client.environment("ledger").start(index=0)
            await server.end()
            step = asyncio.create_task(episode.call("add", number=3))
            await wait_until(lambda: "502" in (folder / "access").read_text())
            await server.start()
            assert text_of((await step).content).startswith("3 ")
            assert len((tmp_path / "runs.txt").read_text().splitlines()) == 1
    finally:
        await server.end()
