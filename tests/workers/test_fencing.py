"""A process that its gateway cannot reach any more ends itself, so that its successor can open the journal."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from worker_servers import PATIENCE, WORLD

from ludus.server.serving.serve import ServeError
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.child import FENCED
from ludus.server.workers.orders import END_PATH, LOAD_PATH, Order, mark_of
from ludus.server.workers.processes import LocalLauncher, LocalProcess
from ludus.server.workers.ray_processes import RayLauncher

pytestmark = pytest.mark.timeout(120)


async def started(folder: Path, lease_seconds: float | None) -> tuple[LocalProcess, str]:
    """A process that serves, and its address."""
    settings = ServerSettings(worker="w0", journal=folder / "journal.db.w0")
    order = Order(
        specs=[f"{WORLD}:Ledger"], noise=[], settings=settings, secret="secret", lease_seconds=lease_seconds
    )  # fmt: skip
    process = await LocalLauncher(folder=str(folder)).start(order, PATIENCE)
    host, port = await process.serve(PATIENCE)
    return process, f"http://{host}:{port}"


async def ask(url: str, method: str, path: str, introduction: str = "secret ") -> int:
    """The status of a request that the gateway sends."""
    headers = {"ludus-gateway": introduction}
    async with aiohttp.ClientSession() as session, session.request(method, url + path, headers=headers) as reply:
        await reply.read()
        return reply.status


@pytest.mark.suite("workers")
async def test_a_process_lives_as_long_as_its_gateway_asks_for_its_load(tmp_path: Path) -> None:
    process, url = await started(tmp_path, 1.0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < 2.5:
        assert await ask(url, "GET", LOAD_PATH) == 200
        await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=0.2)
    assert process.status is None
    async with asyncio.timeout(PATIENCE):
        await process.wait()
    assert process.status == FENCED


async def test_a_process_ends_when_its_gateway_says_so_and_not_for_others(tmp_path: Path) -> None:
    process, url = await started(tmp_path, None)
    assert await ask(url, "POST", END_PATH, "wrong ") >= 400
    assert await ask(url, "POST", END_PATH, "secret 10.0.0.1") >= 400, "a request that the gateway passes on"
    assert process.status is None
    assert await ask(url, "POST", END_PATH) == 200
    async with asyncio.timeout(PATIENCE):
        await process.wait()
    assert process.status == FENCED


def test_without_ray_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_no_ray(name: str, *arguments: Any) -> Any:
        return None if name == "ray" else find(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", find_no_ray)
    with pytest.raises(ServeError, match=r"pip install 'ludus-rl\[ray\]'"):
        RayLauncher(ServerSettings(workers=1, ray="auto"))


def test_what_a_node_does_not_share_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from ludus.server.workers.ray_node import place

    settings = ServerSettings(journal=tmp_path / "journal.db.w0", usage_file=tmp_path / "elsewhere" / "usage")
    order = Order(specs=[str(WORLD)], noise=[], settings=settings, secret="s", mark="1234")
    refused = place(order, "10.0.0.7")
    assert isinstance(refused, str)
    assert "10.0.0.7 does not share the folder of the journals" in refused
    mark_of(tmp_path / "journal.db.w0").write_text("another server's")
    assert isinstance(place(order, "10.0.0.7"), str)
    mark_of(tmp_path / "journal.db.w0").write_text("1234")
    placed = place(order, "10.0.0.7")
    assert isinstance(placed, Order)
    assert (placed.host, placed.settings.usage_file) == ("10.0.0.7", None)
