"""`make demo` stops its server when it is interrupted, and records the same demonstrations for the same seed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ludus.client.trajectory_files import read_trajectories
from ludus.trainer.quickstart import serving

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.mark.suite("breadth", first=1)
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_ended_stops_its_server(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-u", str(DEMO), "--folder", str(tmp_path / "demo")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.findall(r"http://\S+", process.stdout.readline())[0]
        process.send_signal(number)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((parts.hostname, parts.port), timeout=10)


@pytest.mark.suite("breadth")
@pytest.mark.timeout(180)
def test_a_seed_gives_the_same_demonstrations_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    import demo

    recorded = []
    with serving("guess_number") as url:
        for number in range(2):
            path = tmp_path / f"{number}.jsonl"
            count = asyncio.run(demo.record(url, path, seed=3))
            games = [one.items for one in read_trajectories(path)]
            assert len(games) == count
            recorded.append(re.sub(r"call_\w+", "call", str(games)))
    assert recorded[0] == recorded[1]


@pytest.mark.parametrize(
    ("trained", "distance", "lesson"),
    [(0.8, 0.8, "Learned: to begin near the middle"), (0.3, 0.8, "did not learn"), (0.8, 1.6, "did not learn")],
)
def test_a_lesson_is_named_only_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, trained: float, distance: float, lesson: str
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    import demo

    assert lesson in demo.Outcome(0.4, 0.5, 0.6, trained, 0.0, 1.0, 1.7, distance).lesson


def test_the_distance_of_the_first_guess_is_measured_from_the_middle_of_each_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    import demo

    def record(step: int, held_out: bool, *guesses: int) -> str:
        calls = [{"type": "function_call", "arguments": f'{{"number": {guess}}}'} for guess in guesses]
        items = [{"type": "message", "text": "a whole number from 110 to 116"}, *calls]
        return json.dumps({"step": step, "held_out": held_out, "trajectory": {"items": items}})

    lines = [record(60, True, 113, 116), record(60, True, 111), record(60, True), record(60, True, 7),
             record(60, False, 110), record(0, True, 110)]  # fmt: skip
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines))
    assert demo.distance_from_middle(tmp_path, 60) == (0 + 2 + 4 + 4) / 4
