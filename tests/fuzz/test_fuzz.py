"""Whatever is sent, over whatever wire: one typed answer, nothing lost, and the server as it was before.

`LUDUS_FUZZ=1000000` fires as many requests, `LUDUS_FUZZ_SEED=2` others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from suite_selection import selected_suites

COUNT = int(os.environ.get("LUDUS_FUZZ", "100000" if "fuzz" in selected_suites() else "700"))
SEED = int(os.environ.get("LUDUS_FUZZ_SEED", "1"))
GROWTH_BLOCKS = 50_000 + 3 * COUNT
"""How many blocks of memory more than after the warm-up Python may hold: replies kept for repeats, interned rows."""

pytestmark = [pytest.mark.timeout(120 + COUNT // 50), pytest.mark.suite("fuzz", sample=True)]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    program = Path(__file__).with_name("fuzz.py")
    command = [sys.executable, str(program), "--count", str(COUNT), "--seed", str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.startswith("{"), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.requirement("SEC-7")
def test_every_request_gets_an_answer_that_is_no_fault_of_the_server(report: dict[str, Any]) -> None:
    assert report["wrong"] == []
    assert report["requests"] >= COUNT


@pytest.mark.requirement("SEC-7")
def test_the_server_is_healthy_afterwards(report: dict[str, Any]) -> None:
    assert report["alive"]


def test_no_episode_is_left(report: dict[str, Any]) -> None:
    assert report["after"]["instances"] == 0


def test_no_task_is_left(report: dict[str, Any]) -> None:
    assert report["after"]["tasks"] <= report["before"]["tasks"] + 2
    assert report["after"]["threads"] <= max(report["before"]["threads"], 70)


def test_no_memory_is_left(report: dict[str, Any]) -> None:
    assert report["after"]["blocks"] <= report["before"]["blocks"] + GROWTH_BLOCKS
