"""The peers' own clients, which have no key for a call, behind a proxy that breaks a call: no tool runs twice for it.

Three processes: `ludus serve`, the proxy (here), the client. The environment counts its runs in a file.

*Delivered* is judged at the proxy, which is the server's peer: it had read the whole reply and ended its connections in
order. Then the server cannot know that the client behind it went without, and only then a second run is allowed. The
other way round, a client may have its result when the connection is reset; the equal call that it makes next runs when
it comes within 200 ms, and is answered with the earlier result when a busy machine lets it come later.

`make test` plays a sample of the cells; the suite `peers`, all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulting import Cut, FaultProxy
from peer_clients import peer_variables, python_of
from suite_selection import selected_suites

HERE = Path(__file__).parent
WORLD = HERE.parent / "support" / "counting.py"
AT_ONCE = 8

CUTS: dict[str, Cut] = {
    "within the request": Cut("request"),
    "at once": Cut("before"),
    "at once, closed": Cut("before", how="close"),
    "2 ms later": Cut("before", 0.002),
    "12 ms later": Cut("before", 0.012),
    "12 ms later, closed": Cut("before", 0.012, how="close"),
    "22 ms later": Cut("before", 0.022),
    "60 ms later": Cut("before", 0.060),
    "120 ms later, closed": Cut("before", 0.120, how="close"),
    "after 1 byte": Cut("during", reply_bytes=1),
    "after 1 byte, closed": Cut("during", reply_bytes=1, how="close"),
    "in the head": Cut("during", reply_bytes=90),
    "in the head, closed": Cut("during", reply_bytes=90, how="close"),
    "in the task id": Cut("during", reply_bytes=-190),
    "in the task id, closed": Cut("during", reply_bytes=-190, how="close"),
    "in the result": Cut("during", reply_bytes=-60),
    "in the result, closed": Cut("during", reply_bytes=-60, how="close"),
    "before the last byte": Cut("during", reply_bytes=-1),
    "before the last byte, closed": Cut("during", reply_bytes=-1, how="close"),
    "after the reply": Cut("after"),
    "after the reply, closed": Cut("after", how="close"),
}
TIMES = (0, 2, 10, 19, 25, 60, 300)
SAMPLE = {
    (0, "within the request"),
    (0, "at once"),
    (0, "at once, closed"),
    (0, "12 ms later"),
    (0, "in the head"),
    (0, "in the result"),
    (0, "after the reply"),
    (0, "after the reply, closed"),
    (10, "at once"),
    (10, "at once, closed"),
    (10, "2 ms later"),
    (10, "in the head"),
    (10, "in the result, closed"),
    (25, "12 ms later, closed"),
    (60, "after 1 byte"),
    (60, "in the head, closed"),
    (60, "after the reply, closed"),
    (300, "22 ms later"),
    (300, "after 1 byte, closed"),
}
"""Of each kind one or two."""


@dataclass(frozen=True)
class Cell:
    """A tool of so many milliseconds, and a cut by name."""

    milliseconds: int
    cut: str

    @property
    def tag(self) -> str:
        """What the tool writes down."""
        return f"{self.cut} / {self.milliseconds} ms"


def cells() -> Iterator[Cell]:
    for milliseconds in TIMES:
        for cut in CUTS:
            if "peers" in selected_suites() or (milliseconds, cut) in SAMPLE:
                yield Cell(milliseconds, cut)


@asynccontextmanager
async def serving(ledger: Path) -> AsyncIterator[str]:
    """`ludus serve` in a process of its own; its URL."""
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{WORLD}:Counting", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "COUNTING_FILE": str(ledger)}
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("Serving counting at "), line
        yield line.split()[3]
    finally:
        process.terminate()
        await process.wait()


class Repeater:
    """A peer's client process, asked for one episode at a time or several."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[str, asyncio.Future[list[str]]] = {}
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def play(self, url: str, tag: str, calls: list[Any]) -> list[str]:
        """Play an episode; the answer of each call."""
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting[tag] = answer
        job = {"id": tag, "url": url, "environment": "counting", "split": "train", "index": 0, "calls": calls}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        async with asyncio.timeout(200):
            return await answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            self._waiting.pop(told["id"]).set_result(told["answers"])
        for answer in self._waiting.values():
            answer.set_exception(AssertionError("the peer's client ended"))


@asynccontextmanager
async def repeating(peer: str) -> AsyncIterator[Repeater]:
    """The process of a peer's client."""
    kind = "ors" if peer == "ors-sdk" else peer
    process = await asyncio.create_subprocess_exec(
        python_of(peer), str(HERE / "peers" / "repeater.py"), kind, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, env=peer_variables(),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(200):
            assert b"ready" in await process.stdout.readline()
        repeater = Repeater(process)
        yield repeater
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
        await repeater.reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def play(cell: Cell, server: str, repeater: Repeater) -> FaultProxy:
    """One cell: a call that is cut, and an equal one after it."""
    calls = [["work", {"tag": cell.tag, "milliseconds": cell.milliseconds}]] * 2
    async with FaultProxy(server, CUTS[cell.cut]).running() as proxy:
        answers = await repeater.play(proxy.url, cell.tag, calls)
        assert answers == [f"{cell.tag} done"] * 2
        assert proxy.report is not None, f"{cell.tag}: nothing was cut"
        return proxy


@pytest.mark.timeout(900)
@pytest.mark.suite("peers", first=1)
@pytest.mark.requirement("ORS-16")
@pytest.mark.parametrize("peer", ["ors-sdk", "openreward"])
async def test_a_call_that_breaks_runs_once_and_an_equal_one_after_it_runs_too(peer: str, tmp_path: Path) -> None:
    ledger = tmp_path / "runs"
    ledger.touch()
    places = asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(ledger))
        repeater = await stack.enter_async_context(repeating(peer))

        async def one(cell: Cell) -> tuple[Cell, FaultProxy]:
            async with places:
                return cell, await play(cell, server, repeater)

        played = await asyncio.gather(*(one(cell) for cell in cells()))
    lines = ledger.read_text().splitlines()
    again: list[str] = []
    late: list[str] = []
    wrong: dict[str, Any] = {}
    for cell, proxy in played:
        runs, report = lines.count(cell.tag), proxy.report
        assert report is not None
        if runs == 3 and report.whole and CUTS[cell.cut].how == "close":
            again.append(cell.tag)
        elif runs == 1 and CUTS[cell.cut].how == "reset" and b"event: end" in report.passed:
            late.append(cell.tag)
        elif runs != 2:
            wrong[cell.tag] = (runs, report)
    sys.stdout.write(f"{peer}: {len(played)} cells; run again after a delivery: {again}; late: {late}\n")
    assert not wrong
