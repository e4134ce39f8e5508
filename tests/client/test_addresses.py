"""Addresses cross processes and event loops; clients do not, and say so."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from threaded import server_in_thread
from worlds import SECRET_ANSWER, Playground

from ludus.client import ServerAddress, TaskAddress, connect
from ludus.client.connecting import WireName
from ludus.protocol.errors import InvalidParams, LudusError, WrongEventLoop

ANSWER = f"{SECRET_ANSWER}-1"
"""The right answer to the task `r-1`."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Playground) as server:
        yield server.url


async def play(address: TaskAddress) -> float | None:
    async with address.drive() as driver:
        await driver.act(ANSWER)
        return (await driver.finish()).value


def play_in_process(address: TaskAddress) -> float | None:
    return asyncio.run(play(address))


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_another_process_plays_the_task_of_an_address(url: str, method: str) -> None:
    address = ServerAddress(url).task("playground", "train", "r-1")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert pool.submit(play_in_process, address).result(timeout=60) == 1.0


def test_a_process_that_is_forked_while_its_parent_plays_connects_on_its_own(url: str) -> None:
    address = ServerAddress(url).task("playground", "train", "r-1")

    async def parent() -> tuple[float | None, float | None]:
        async with address.drive() as driver:
            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                child = await asyncio.wrap_future(pool.submit(play_in_process, address))
            await driver.act(ANSWER)
            return child, (await driver.finish()).value

    assert asyncio.run(parent()) == (1.0, 1.0)


async def test_blocks_of_one_loop_share_a_client_and_the_last_one_closes_it(url: str) -> None:
    address = ServerAddress(url)
    async with address.client() as first:
        async with address.client() as second, ServerAddress(url).client() as equal:
            assert first is second is equal
        assert await first.environments()
    with pytest.raises(LudusError, match="closed"):
        await first.environments()
    async with address.client() as later:
        assert later is not first


def test_an_address_holds_no_token(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "hush")
    address = ServerAddress(url).task("playground", "train", "r-1", seed=4)
    assert b"hush" not in pickle.dumps(address)
    assert "hush" not in json.dumps(address.to_json()) + repr(address)
    assert pickle.loads(pickle.dumps(address)) == address
    assert TaskAddress.from_json(json.loads(json.dumps(address.to_json()))) == address


@pytest.mark.parametrize(
    ("change", "name"),
    [({"url": None}, "url"), ({"seed": "4"}, "seed"), ({"seed": True}, "seed"), ({"extra": 1}, "extra")],
)
def test_something_else_than_an_address_is_refused_with_the_field(change: dict[str, Any], name: str) -> None:
    good = ServerAddress("http://h").task("e", "train", "t").to_json()
    with pytest.raises(InvalidParams, match=name):
        TaskAddress.from_json({**good, **change})


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_client_in_a_second_event_loop_is_refused_with_the_cure(url: str, wire: WireName) -> None:
    async with connect(url, wire=wire) as client:
        assert await client.environments()
        refused: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(client.environments())
            except LudusError as error:
                refused.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert isinstance(refused[0], WrongEventLoop)
        assert "ServerAddress" in refused[0].message
        assert await client.environments()
