"""Server processes whose file system is full for a while, over each wire, with one process and with workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conformance_peer import ChannelPeer, McpPeer, Peer, RpcError
from durable_server import WORLD, Process
from full_disks import SmallDisk, allow_files, can_mount, limit_files
from waiting import wait_until
from worker_servers import WorkersServer

pytestmark = pytest.mark.timeout(300)
MOUNTS = pytest.mark.skipif(not can_mount(), reason="only root may mount a file system")


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    """A small file system."""
    made = SmallDisk(tmp_path / "disk")
    yield made
    made.close()


class OrsPlayer:
    """A client of ORS that sends each call under a key."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def post(self, path: str, body: Any, key: str) -> tuple[int, str]:
        headers = {"X-Session-ID": "a session of mine", "Idempotency-Key": key}
        async with self._http.post(path, json=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def start(self) -> None:
        status, _ = await self.post("/create", {"env_name": "ledger", "split": "train", "index": 0, "seed": 1}, "k0")
        assert status == 200

    async def add(self, number: int) -> str | None:
        """The sum after a call; None if it was refused."""
        body = {"name": "add", "input": {"number": number}}
        status, text = await self.post("/ledger/call", body, f"k{number}")
        found = re.search(r'"text":"(\d+) ', text)
        assert found or status == 503 or "cannot write its journal" in text, text
        return found[1] if found else None


class LudusPlayer:
    """A client of the channel or of MCP."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.episode = ""

    async def start(self) -> None:
        self.episode = (await self._peer.start("ledger", seed=1))["episode"]

    async def add(self, number: int) -> str | None:
        """The sum after a step; None if it was refused."""
        arguments = {"number": number}
        try:
            result = await self._peer.step(self.episode, number, "add", arguments=arguments, key=f"k{number}")
        except RpcError as error:
            if error.code != 5030 or "retryAfter" not in error.data:
                raise
            return None
        return str(result["content"][0]["text"]).split()[0]


async def readiness(http: aiohttp.ClientSession) -> tuple[int, str, str]:
    """The status code, the status and the reason of `/ready`."""
    async with http.get("/ready") as answer:
        found = await answer.json()
        return answer.status, found["status"], found.get("reason", "")


async def play_through(
    url: str, fail: Callable[[], object], recover: Callable[[], object], reason: str
) -> tuple[list[list[str]], int]:
    """Play over each wire while the disk fails and recovers; return what each player saw, and how many were refused."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        peers = [ChannelPeer(url), McpPeer(url)]
        for peer in peers:
            stack.push_async_callback(peer.close)
        players: list[OrsPlayer | LudusPlayer] = [OrsPlayer(http), *map(LudusPlayer, peers)]
        seen: list[list[str]] = []
        for player in players:
            await player.start()
            seen.append([sum_ for number in (1, 2) if (sum_ := await player.add(number)) is not None])
        assert await readiness(http) == (200, "ready", "")
        fail()
        due, refused = [3] * len(players), 0
        while refused < len(players):
            for place, player in enumerate(players):
                if due[place] > 0 and (sum_ := await player.add(due[place])) is not None:
                    seen[place].append(sum_)
                    due[place] += 1
                elif due[place] > 0:
                    due[place], refused = -due[place], refused + 1
        status, state, why = await readiness(http)
        assert (status, state) == (503, "unwritable")
        assert "the journal cannot be written" in why
        assert re.search(reason, why), why
        for player, number in zip(players, due, strict=True):
            assert await player.add(-number) is None, "it is refused again, and at once"
        recover()

        async def is_ready() -> bool:
            return (await readiness(http))[0] == 200

        await wait_until(is_ready)
        for place, player in enumerate(players):
            for number in range(-due[place], -due[place] + 3):
                sum_ = await player.add(number)
                assert sum_ is not None
                seen[place].append(sum_)
        return seen, refused


def sums(seen: list[str]) -> list[str]:
    """The sums of an episode of as many calls."""
    return [str(sum(range(1, number + 1))) for number in range(1, len(seen) + 1)]


async def _one_process(folder: Path, journal: Path, stack: AsyncExitStack) -> Process:
    process = Process(folder, world=WORLD, journal=str(journal))
    stack.push_async_callback(process.end)
    await process.start()
    return process


@pytest.mark.suite("histories")
@MOUNTS
async def test_a_server_whose_file_system_was_full_goes_on_by_itself(tmp_path: Path, disk: SmallDisk) -> None:
    async with AsyncExitStack() as stack:
        process = await _one_process(tmp_path, disk.folder / "journal.db", stack)
        seen, _ = await play_through(process.url, disk.fill, disk.free, "database or disk is full")
        assert [sums(one) for one in seen] == seen
        await process.restart()
        async with aiohttp.ClientSession(process.url) as http:
            player = OrsPlayer(http)
            assert [await player.add(number + 1) for number in range(len(seen[0]))] == seen[0]


@pytest.mark.suite("histories")
async def test_a_server_whose_disk_had_errors_goes_on_by_itself(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        process = await _one_process(tmp_path, tmp_path / "journal.db", stack)
        assert process.process is not None
        pid = process.process.pid
        seen, _ = await play_through(
            process.url, lambda: limit_files(pid, 8192), lambda: allow_files(pid), "disk I/O error"
        )
        assert [sums(one) for one in seen] == seen


@pytest.mark.suite("histories")
@MOUNTS
async def test_workers_whose_file_system_was_full_go_on_by_themselves(tmp_path: Path, disk: SmallDisk) -> None:
    server = WorkersServer(tmp_path, journal=str(disk.folder / "journal.db"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.end)
        await server.start()
        seen, _ = await play_through(server.url, disk.fill, disk.free, r"worker w\d: .*database or disk is full")
        assert [sums(one) for one in seen] == seen


@MOUNTS
async def test_starts_that_cannot_be_noted_are_refused_and_the_gateway_is_not_ready_meanwhile(
    tmp_path: Path, disk: SmallDisk
) -> None:
    """The journals are elsewhere full, too; but only starts ask for a note, so nothing else has failed before."""
    server = WorkersServer(tmp_path, journal=str(disk.folder / "journal.db"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.end)
        await server.start()
        peer = ChannelPeer(server.url)
        stack.push_async_callback(peer.close)
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        disk.fill()
        refused: list[RpcError] = []

        async def is_refused() -> bool:
            try:
                await peer.start("ledger", key=f"k{len(refused)}")
            except RpcError as error:
                refused.append(error)
            return bool(refused)

        await wait_until(is_refused)
        assert refused[0].code == 5030
        assert (await readiness(http))[:2] == (503, "unwritable")
        disk.free()

        async def is_ready() -> bool:
            return (await readiness(http))[0] == 200

        await wait_until(is_ready)
        assert (await peer.start("ledger", key="k0"))["episode"]
