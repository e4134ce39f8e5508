"""An address that leads nowhere is answered in one sentence that names the place and what to do, on every wire."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from ludus.client import connect
from ludus.client.transports._reasons import doing
from ludus.protocol.errors import ConnectionFailed, LudusError
from ludus.protocol.methods import METHODS
from ludus.server import Environment, Task, tool
from ludus.server.serving.serve import serving

WIRES = ("channel", "mcp", "ors")
NOWHERE = "http://127.0.0.1:9"


class Echo(Environment[Task]):
    """Say it."""

    splits = {"train": [Task(id="a")]}

    def prompt(self) -> str:
        return "Say it."

    @tool
    def say(self, text: str) -> str:
        """Say it."""
        return text


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with serving([Echo]) as running:
        yield running.url


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """A web site that answers everything with a page."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<!DOCTYPE html><html><title>Shop</title></html>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def refused(url: str, wire: Any) -> LudusError:
    async with connect(url, wire=wire, reconnect_seconds=0.1, timeout=20) as client:
        with pytest.raises(LudusError) as caught:
            await client.environments()
    return caught.value


@pytest.mark.parametrize("wire", WIRES)
async def test_no_server_is_said_once_and_without_the_library_underneath(wire: str) -> None:
    error = await refused(NOWHERE, wire)
    assert isinstance(error, ConnectionFailed)
    assert error.message.count("127.0.0.1") == 1
    assert "connection refused; is the server running?" in error.message
    shown = "".join(traceback.format_exception(error))
    assert "direct cause" not in shown
    assert "During handling" not in shown
    assert len(shown.splitlines()) < 30


@pytest.mark.parametrize("wire", WIRES)
async def test_a_wrong_path_names_the_address_that_is_right(server: str, wire: str) -> None:
    error = await refused(f"{server}/wrong", wire)
    assert f"there is no Ludus server at {server}/wrong" in error.message
    assert f"did you mean {server}?" in error.message


@pytest.mark.parametrize("wire", WIRES)
async def test_a_web_site_is_no_server(site: str, wire: str) -> None:
    error = await refused(site, wire)
    assert site in error.message
    assert "<" not in error.message
    assert "Ludus server" in error.message or "does not speak" in error.message or "JSON" in error.message


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "localhost:8000"])
def test_an_address_without_a_scheme_is_answered_with_one(address: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean http://{address}?"):
        connect(address)


async def test_a_host_name_that_is_none_is_called_so() -> None:
    error = await refused("http://no-such-host.invalid:8000", "channel")
    assert "no such host name" in error.message


def test_every_method_has_words_for_people() -> None:
    assert [name for name in METHODS if doing(name) == name] == []


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_missing_answer_is_reported_without_the_wires_words(wire: Any) -> None:
    held: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with connect(url, wire=wire, reconnect_seconds=30, timeout=0.2) as client:
        with pytest.raises(LudusError) as caught:
            await client.environments()
    assert "listing the environments: no answer in time" in caught.value.message
    for writer in held:
        writer.close()
    listener.close()
