"""The supervisor's own faults."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ludus.server.web.serve import listen
from ludus.server.web.settings import ServerSettings
from ludus.server.workers import supervisor
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
