"""The supervisor's own faults."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from ludus.server.serving.serve import listen
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers import supervisor, tending
from ludus.server.workers.orders import Load
from ludus.server.workers.parent import Answers
from ludus.server.workers.pool import Pool, Worker
from ludus.server.workers.processes import Lines
from ludus.server.workers.tending import Tender


async def test_a_server_whose_worker_is_no_longer_looked_after_stops_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(tender: Tender) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Tender, "run", fail)
    settings = ServerSettings(port=0, workers=1)
    world = Path(__file__).with_name("moving_world.py")
    with listen("127.0.0.1", 0) as listener, caplog.at_level(logging.CRITICAL, "ludus.supervisor"):
        server = supervisor.Supervisor([f"{world}:Waiting"], [], settings, has_tokens=False)
        async with asyncio.timeout(30):
            assert await server.run(listener) == 1
    assert "what keeps worker w0 running has failed, so the server stops" in caplog.text
    assert "planted" in caplog.text


class Answering:
    """A worker's process as a tender sees it: it answers questions, or only gives signs of life, or neither."""

    def __init__(self, answers: str, signs: str) -> None:
        self.answers = list(answers)
        self.signs = list(signs)
        self.count = 0

    async def load(self) -> Load:
        if self.answers.pop(0) == "-":
            raise TimeoutError
        return Load(running=0, starting=0, queued=0, kept=0)

    async def turns(self) -> int:
        self.count += self.signs.pop(0) == "+"
        return self.count


@pytest.mark.parametrize(
    ("answers", "signs", "left"),
    [
        ("--+", "...", 1),  # stopped, or its loop is blocked
        ("+--+", "...", 1),
        ("----------", "++++++++..", 0),  # busy for long, and blocked then
        ("-+-+--", "....", 0),
        ("---", "+..", 0),
    ],
)
async def test_a_worker_is_stuck_only_if_its_loop_gives_no_sign_of_life_either(
    answers: str, signs: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending, "SIGN_SECONDS", 0)
    monkeypatch.setattr(tending, "LOOK_SECONDS", 0)
    worker, process = Worker("w0"), Answering(answers, "." + signs)
    pool = Pool(["w0"], durable=False)
    tender = Tender(worker, pool, None, None, ServerSettings(port=0), b"")  # type: ignore[arg-type]
    monkeypatch.setattr(tender, "load", process.load)
    monkeypatch.setattr(tender, "_turns", process.turns)
    await tender._until_deaf()
    assert len(process.answers) == left


async def test_signs_of_life_of_a_process_are_no_answers() -> None:
    read, write = os.pipe()
    try:
        lines, said = await Lines.of(read), Answers(write)
        said.write({"loaded": True})
        for number in range(1, 6):
            said.beat(number)
        said.write({"released": True})
        assert [json.loads(await lines.read()) for _ in range(2)] == [{"loaded": True}, {"released": True}]
        assert lines.turns == 5
    finally:
        os.close(read)
        os.close(write)
    assert await lines.read() == await lines.read() == b""


async def test_signs_of_life_never_block_a_process_whose_parent_does_not_read() -> None:
    read, write = os.pipe()
    try:
        answers = Answers(write)
        for number in range(100_000):
            answers.beat(number)
        waiting = os.read(read, 2**20)
        assert waiting.endswith(b"\n")
        assert 0 < waiting.count(b"\n") < 100_000
    finally:
        os.close(read)
        os.close(write)
