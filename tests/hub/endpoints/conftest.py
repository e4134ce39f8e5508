"""A hub in this event loop, with packages that are written in the tests and run in real sandboxes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ludus.hub.access.viewers import Viewer
from ludus.hub.app import create_hub, parts_of
from ludus.hub.endpoints.mounting import FOLDER
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.endpoints.servers import ReleaseServer
from ludus.hub.registry.publishing import Upload
from ludus.hub.seed import pack_wheel
from ludus.hub.serve import HubServer
from ludus.hub.settings.endpoints import EndpointLimits, EndpointSettings
from ludus.hub.settings.hub import HubSettings
from ludus.registry.types.packages import EnvironmentEntry, Manifest, Resources, Statement, WantedSecret
from ludus.registry.types.signing import digest_of, sign, text_digest
from ludus.server.auth import TokenStore

COUNTER = '''
"""Adds numbers, and runs what it is given."""

import asyncio, contextlib, io, os

from ludus.server import Environment, Result, Task, tool


class Counter(Environment[Task]):
    """Adds numbers."""

    version = "{version}"
    splits = {{"train": [Task(id="only")]}}

    def setup(self):
        """Begin with nothing."""
        self.sum = 0

    def prompt(self):
        """Say what to do."""
        return "Add, at version {version}."

    @tool
    async def add(self, number: int) -> Result:
        """Add a number."""
        self.sum += number
        return Result(str(self.sum), reward=float(number))

    @tool
    def run(self, code: str) -> str:
        """Run Python code in the process of the environment."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {{}})
        return output.getvalue()

    @tool
    async def block(self, code: str) -> str:
        """Run Python code on the event loop of the process."""
        exec(code, {{}})
        return ""
'''

KEY = Ed25519PrivateKey.generate()
MODEST = Resources()
"""A manifest that asks for nothing."""


def wheel_of(
    name: str, version: str, source: str, cls: str = "Counter", requires: tuple[str, ...] = ()
) -> tuple[str, bytes]:
    """Return the file name and the bytes of a wheel with one module."""
    stem = f"ada_{name}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: ada-{name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in ("ludus-rl[server]", *requires))
    files = {
        f"ada_{name}.py": source,
        f"{stem}.dist-info/METADATA": metadata,
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": f"[ludus.environments]\n{name} = ada_{name}:{cls}\n",
    }
    return f"{stem}-py3-none-any.whl", pack_wheel(stem, files)


class EndpointHub:
    """A hub that serves; packages of the owner `ada` are published directly into its registry."""

    def __init__(
        self, folder: Path, settings: EndpointSettings, tokens: TokenStore | None, blobs: str | None = None
    ) -> None:
        self.data = folder / "hub"
        self.app = create_hub(HubSettings(data=self.data, port=0, seed=False, endpoints=settings, blobs=blobs), tokens)
        self.url = ""
        self._serving: asyncio.Task[None] | None = None
        self._server: HubServer | None = None

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        found: Endpoints = parts_of(self.app).endpoints.pool
        return found

    async def start(self) -> None:
        """Serve from now on."""
        up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server = HubServer(self.app, parts_of(self.app).hub.settings, up.set_result)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve())
        self.url = await asyncio.wait_for(up, 60)

    async def stop(self) -> None:
        """Stop the hub, and wait for its end."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server = None

    async def publish(
        self, name: str = "counter", version: str = "1.0.0", source: str = COUNTER, cls: str = "Counter", *,
        signed: bool = True, requires: tuple[str, ...] = (), secrets: tuple[str, ...] = (),
        network: tuple[str, ...] = (), resources: Resources = MODEST,
    ) -> str:  # fmt: skip
        """Publish a version, and return the address of its endpoint without the version."""
        await asyncio.to_thread(
            self._publish, name, version, source, cls, signed, requires, secrets, network, resources
        )
        return self.address(name)

    def _publish(
        self, name: str, version: str, source: str, cls: str, signed: bool, requires: tuple[str, ...],
        secrets: tuple[str, ...], network: tuple[str, ...], resources: Resources,
    ) -> None:  # fmt: skip
        hub = parts_of(self.app).hub
        source = source.format(version=version) if source is COUNTER else source
        filename, wheel = wheel_of(name, version, source, cls, requires)
        manifest = Manifest(
            id=f"ada/{name}", version=version, environments=(EnvironmentEntry(name=name, source=f"ada_{name}:{cls}"),),
            secrets=tuple(WantedSecret(name=one) for one in secrets), network=network, resources=resources,
        )  # fmt: skip
        with hub.blobs.receiving(len(wheel)) as incoming:
            incoming.write(wheel)
            statement = Statement(
                id=manifest.id, version=version, filename=filename, sha256=incoming.sha256, size=len(wheel),
                manifest_sha256=digest_of(manifest), card_sha256=text_digest(""),
            )  # fmt: skip
            signature = sign(statement, KEY) if signed else None
            who = Viewer.of_administrator("ada")
            hub.publisher.publish(who, Upload(incoming, filename, manifest, "", signature))

    def address(self, name: str = "counter", version: str | None = None) -> str:
        """Return the address of an endpoint."""
        return f"{self.url}/e/ada/{name}" + (f"@{version}" if version is not None else "")

    def server(self, name: str = "counter", version: str = "1.0.0") -> ReleaseServer:
        """Return the server of a release that something has asked for."""
        found = self.endpoints.server("ada", name, version)
        assert found is not None
        return found


def processes_below(pid: int) -> dict[int, str]:
    """Return the command lines of all processes that descend from one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: dict[int, str] = {}
    wanted = {pid}
    while more := {one for one, parent in parents.items() if parent in wanted and one not in found}:
        for one in more:
            try:
                found[one] = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                found[one] = ""
        wanted = more
    return found


def server_processes() -> list[int]:
    """Return the processes of endpoints of the hubs in this process."""
    return [pid for pid, line in _own_processes().items() if "hub.endpoints.child" in line]


def sandbox_processes() -> dict[int, str]:
    """Return the processes of brokers and of sandboxes of the hubs in this process, those of endpoints included."""
    marks = ("hub.endpoints.broker", "ludus.sandbox.inside", "hub.endpoints.child")
    return {pid: line for pid, line in _own_processes().items() if any(mark in line for mark in marks)}


def _own_processes() -> dict[int, str]:
    """Return the processes below this one, without those of hubs in processes of their own, which other tests share."""
    found = processes_below(os.getpid())
    for pid, line in list(found.items()):
        if "ludus.cli hub" in line:
            for other in processes_below(pid):
                found.pop(other, None)
    return found


StartHub = Callable[..., Awaitable[EndpointHub]]


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environments of all hubs, whose folders are named by digests: each is made once."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
async def start_hub(tmp_path: Path, environments: Path) -> AsyncIterator[StartHub]:
    """`hub = await start_hub(idle_seconds=1.0, limits={...})`: a hub, which is gone when the test ends.

    With `shared=False`, it makes all of its virtual environments itself.
    """
    async with AsyncExitStack() as stack:

        async def start(
            *, limits: dict[str, Any] | None = None, tokens: TokenStore | None = None, blobs: str | None = None,
            shared: bool = True, **settings: Any,
        ) -> EndpointHub:  # fmt: skip
            values: dict[str, Any] = {"spares": False, **settings}
            given = EndpointSettings(limits=EndpointLimits(**(limits or {})), **values)
            hub = EndpointHub(tmp_path, given, tokens, blobs)
            if shared and not (hub.data / FOLDER).exists():
                (hub.data / FOLDER).symlink_to(environments)
            stack.push_async_callback(hub.stop)
            await hub.start()
            return hub

        yield start
    assert not sandbox_processes(), "no process of an endpoint outlives its hub"


@pytest.fixture
async def hub(start_hub: StartHub) -> EndpointHub:
    """A hub with the counter."""
    hub = await start_hub()
    await hub.publish()
    return hub


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """The host and port of a site on loopback, whose page says `reached`."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="reached")

    pages = web.Application()
    pages.router.add_get("/", answer)
    runner = web.AppRunner(pages)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def tools() -> Any:
    """The functions of this module that tests use."""
    return Tools


class Tools:
    """What tests use of this module, which they cannot import."""

    server_processes = staticmethod(server_processes)
    processes_below = staticmethod(processes_below)
    counter = COUNTER
    wheel_of = staticmethod(wheel_of)
