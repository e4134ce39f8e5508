"""Verified runs of two hub processes on one database: one plays a run, the other one ends it or goes on with it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from hubs import HubProcess
from postgres_server import PostgresServer
from verified_hub import VerifiedHub, right_turn
from waiting import block_until

from ludus.registry.types.receipts import Receipt, verify_receipt

pytestmark = [pytest.mark.timeout(240), pytest.mark.suite("hub")]
SETTINGS = "[results]\nlease_seconds = 10.0\nsweep_seconds = 0.5\n"


@pytest.fixture
def pair(postgres: PostgresServer, tmp_path: Path) -> Iterator[tuple[VerifiedHub, HubProcess]]:
    """Two hubs that reach each other; the first one has been asked for everything so far."""
    url, ports = postgres.new_url(), free_ports(2)
    (tmp_path / "settings.toml").write_text(SETTINGS)

    def options(port: int) -> tuple[str, ...]:
        more = ("--settings", str(tmp_path / "settings.toml"))
        return ("--port", str(port), "--peer-url", f"http://127.0.0.1:{port}", *more)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hub = VerifiedHub(tmp_path / "a", url, options(ports[0]), episodes=1)
    for name in ("blobs", "hub-key.pem", "verified.key"):
        source, target = hub.process.data / name, tmp_path / "b" / "hub" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    other = HubProcess(tmp_path / "b" / "hub", *hub.options, *options(ports[1]), database=url)
    yield hub, other
    if other is not hub.process:
        other.stop()
    hub.close()
    assert "Traceback" not in other.log()


def holding(seen: list[str], at: int) -> Any:
    """Return the answers of a model that opens each lock, and never answers one of the calls."""
    held = asyncio.Event()

    def answer(asked: dict[str, Any]) -> Any:
        text = json.dumps(asked["messages"])
        if "lock-" not in text:
            return {"content": "Hi."}
        seen.append(text)
        return held.wait() if len(seen) == at else right_turn(asked)

    return answer


def test_a_run_whose_process_is_killed_is_finished_by_another_one(pair: tuple[VerifiedHub, HubProcess]) -> None:
    hub, other = pair
    seen: list[str] = []
    hub.model.answer = holding(seen, 2)
    key = hub.begin(tasks=3)
    block_until(lambda: len(seen) == 2, 120)
    hub.process.kill()
    hub.process = other
    receipt = hub.receipt(key)
    assert [(row["reward"], row["attempts"]) for row in receipt["episodes"]] == [(1.0, 1), (1.0, 2), (1.0, 1)]
    shown = [(call["place"], call["attempt"], call["status"]) for call in receipt["calls"]]
    assert shown == [(0, 1, 200), (1, 1, 0), (1, 2, 200), (2, 1, 200)]
    found = Receipt.model_validate(receipt)
    verify_receipt(found, found.episodes, None, found.calls)


def test_a_run_is_ended_through_any_process_and_played_by_one(pair: tuple[VerifiedHub, HubProcess]) -> None:
    hub, other = pair
    seen: list[str] = []
    hub.model.answer = holding(seen, 2)
    key = hub.begin(tasks=3)
    block_until(lambda: len(seen) == 2, 120)
    with other.client(hub.tokens["alice"]) as client:
        ended = client.post(f"/api/v1/runs/{key}/end")
        assert (ended.status_code, ended.json()["state"]) == (200, "ended")
    receipt = hub.receipt(key)
    assert [row["end"] for row in receipt["episodes"]] == ["completed", "closed", "not_begun"]
    assert [call["place"] for call in receipt["calls"]] == [0, 1], "no process made further calls"
    assert len(seen) == 2
