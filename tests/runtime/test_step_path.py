"""A step takes a short path: `benchmarks/step_path.py` counts the functions and files that it visits by transport."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "step_path.py"

LIMITS = {"channel": (66, 13), "mcp_play": (90, 22), "mcp_control": (91, 27), "ors": (112, 24)}
"""The most calls, and the most files, by transport.

About 20 calls of each share the event loop fairly and count events, so that one client cannot stop the others
(`ludus.server.web.turns`); of HTTP, one for each header field is among them.
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The figures and the visits of one step, by transport."""
    path = tmp_path_factory.mktemp("path") / "figures.json"
    subprocess.run([sys.executable, PROGRAM, "--json", path], check=True, capture_output=True, timeout=60)
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize("transport", LIMITS)
def test_a_step_stays_within_its_calls_and_files(traced: dict[str, Any], transport: str) -> None:
    calls, files = LIMITS[transport]
    visits = "\n".join(f"{file} {function}" for file, function, _ in traced[transport]["visits"])
    assert traced[transport]["calls"] <= calls, visits
    assert traced[transport]["files"] <= files, visits


@pytest.mark.parametrize("transport", LIMITS)
def test_the_trace_covers_the_step(traced: dict[str, Any], transport: str) -> None:
    functions = [function for _, function, _ in traced[transport]["visits"]]
    stages = ["StepRunner.accept", "StepRunner.settle", "StepRecord.settle"]
    assert [name for name in functions if name in stages] == stages


@pytest.mark.parametrize("transport", LIMITS)
def test_a_step_without_noise_and_rubric_passes_through_neither(traced: dict[str, Any], transport: str) -> None:
    files = {file for file, _, _ in traced[transport]["visits"]}
    assert not files & {f"server/runtime/{name}.py" for name in ("noise", "scoring", "turns", "clock", "threads")}


@pytest.mark.parametrize("transport", LIMITS)
def test_a_step_without_tracing_visits_nothing_of_it(traced: dict[str, Any], transport: str) -> None:
    files = {file for file, _, _ in traced[transport]["visits"]}
    assert not [file for file in files if "trac" in file or "telemetry" in file]
