"""The reporter of a trainer against real hubs that die, hang, refuse and lose answers: training never waits for it."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_doors import Door
from hub_people import PASSWORD
from hubs import HubProcess
from waiting import block_until

from ludus.protocol.errors import InvalidParams
from ludus.registry import reporting
from ludus.registry.reporting import QUEUED_POINTS, TrainingReporter
from ludus.registry.types.training import METRICS

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are sent soon, and without the user's own token."""
    monkeypatch.setattr(reporting, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(reporting, "saved_token", lambda hub: None)
    monkeypatch.delenv("LUDUS_HUB_TOKEN", raising=False)


def runs(hub: HubProcess) -> list[Any]:
    with hub.client() as client:
        return list(client.get("/api/v1/training?own=true").json()["runs"])


def steps(hub: HubProcess, key: str) -> Counter[int]:
    """How often each step is at a hub."""
    found: Counter[int] = Counter()
    start: int | None = 0
    with hub.client() as client:
        while start is not None:
            page = client.get(f"/api/v1/training/{key}/points", params={"from": start}).json()
            found.update(point["step"] for batch in page["batches"] for point in batch["points"])
            start = page["next"]
    return found


def sends(reporter: TrainingReporter) -> bool:
    """Whether the thread of a reporter goes on."""
    return reporter._sender._thread.is_alive()


@pytest.fixture
def silent() -> Iterator[Door]:
    """A server that takes requests and never answers."""
    door = Door()
    yield door
    door.close()


@pytest.mark.suite("hub")
def test_a_hub_that_is_killed_and_restarted_has_each_point_once(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "data", "--no-seed")
    reporter = TrainingReporter(hub.url, name="survivor")
    for step in range(100):
        reporter.log(step, {"loss": 1.0 / (step + 1)})
    block_until(lambda: bool(runs(hub)) and runs(hub)[0]["points"] > 0)
    port = hub.port
    hub.kill()
    for step in range(100, 200):
        reporter.log(step, {"loss": 1.0})
    hub.start(port)
    for step in range(200, 300):
        reporter.log(step, {"loss": 1.0})
    report = reporter.close(seconds=60.0)
    assert (report.sent, report.dropped) == (300, 0), report
    (found,) = runs(hub)
    assert (found["state"], found["points"], found["dropped"]) == ("finished", 300, 0)
    assert steps(hub, found["key"]) == Counter(range(300))
    assert hub.stop() == 0


def test_answers_that_are_lost_double_nothing(plain_hub: HubProcess) -> None:
    door = Door(plain_hub, lost_answers=2)
    reporter = TrainingReporter(door.address, name="lost answers")
    for step in range(50):
        reporter.log(step, {"loss": 1.0})
    report = reporter.close(seconds=60.0)
    door.close()
    assert door.lost_answers == 0
    assert (report.sent, report.dropped) == (50, 0), report
    (found,) = [one for one in runs(plain_hub) if one["name"] == "lost answers"]
    assert steps(plain_hub, found["key"]) == Counter(range(50))


def test_no_step_waits_for_a_hub_that_never_answers(silent: Door) -> None:
    reporter = TrainingReporter(silent.address, name="patient")
    block_until(lambda: silent.requests == 1)
    for step in range(QUEUED_POINTS + 500):
        reporter.log(step, {"loss": 1.0})
    assert silent.requests == 1, "all steps were taken while the first request had no answer"
    report = reporter.close(seconds=0.0)
    assert (report.url, report.sent, report.dropped) == ("", 0, QUEUED_POINTS + 500)
    reporter.log(1, {"loss": 1.0})
    assert reporter.close() == report, "closing again changes nothing"
    assert not sends(reporter)


def test_a_hub_that_cannot_be_reached_is_a_problem_and_no_error() -> None:
    reporter = TrainingReporter("http://127.0.0.1:9", name="alone")
    for step in range(10):
        reporter.log(step, {"loss": 1.0})
    seen: list[str] = []

    def has_problem() -> bool:
        seen.extend(reporter.problems())
        return bool(seen)

    block_until(has_problem)
    report = reporter.close(seconds=0.0)
    assert "cannot be reached" in seen[0]
    assert (report.sent, report.dropped) == (0, 10)
    assert not sends(reporter), "its pause before the next attempt ends at once"


@pytest.mark.timeout(20)
def test_a_process_without_a_file_to_open_trains_and_says_that_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as changed:
        changed.setattr(asyncio.events, "new_event_loop", full)
        reporter = TrainingReporter("http://127.0.0.1:9", name="full")
        block_until(lambda: not sends(reporter))
    reporter.log(1, {"loss": 1.0})
    report = reporter.close()
    assert (report.sent, report.dropped) == (0, 1)
    assert "too many open files" in report.problems[0]


def test_a_value_or_a_rollout_that_cannot_be_read_is_left_out_and_the_rest_is_sent(plain_hub: HubProcess) -> None:
    class Tensor:
        def __float__(self) -> float:
            raise RuntimeError("a tensor of two numbers")

    with TrainingReporter(plain_hub.url, name="odd values") as reporter:
        reporter.log(1, {"loss": 1.0, "both": Tensor()})  # type: ignore[dict-item]
        reporter.rollout(1, {"items": {1, 2}})
        block_until(lambda: reporter._queue.sent == 1)
        reporter.log(2, {"loss": 2.0})
    report = reporter.close()
    assert (report.sent, report.dropped) == (2, 0), report
    assert "the metric 'both' is no number and is not reported" in report.problems
    assert any("a sample rollout of step 1 is left out" in problem for problem in report.problems)


@pytest.mark.suite("hub")
def test_a_hub_that_refuses_ends_the_report_and_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ludus.cli", "hub", "accounts", "create", "root", "--admin", "--password-stdin"]
    subprocess.run([*command, "--data", tmp_path / "data"], input=PASSWORD, text=True, check=True, timeout=60)
    hub = HubProcess(tmp_path / "data", "--no-seed")
    with TrainingReporter(hub.url, name="stranger") as reporter:
        reporter.log(1, {"loss": 1.0})
    report = reporter.close()
    assert (report.sent, report.dropped) == (0, 1)
    assert "needs a token" in report.problems[0]
    assert hub.stop() == 0


def test_a_run_that_is_deleted_meanwhile_is_not_opened_again(plain_hub: HubProcess) -> None:
    reporter = TrainingReporter(plain_hub.url, name="deleted soon")
    reporter.log(1, {"loss": 1.0})
    block_until(lambda: any(one["name"] == "deleted soon" and one["points"] for one in runs(plain_hub)))
    (found,) = [one for one in runs(plain_hub) if one["name"] == "deleted soon"]
    with plain_hub.client() as client:
        assert client.delete(f"/api/v1/training/{found['key']}").status_code == 204
    reporter.log(2, {"loss": 1.0})
    report = reporter.close(seconds=60.0)
    assert (report.sent, report.dropped) == (1, 1)
    assert "no training run" in report.problems[0]
    assert "deleted soon" not in {one["name"] for one in runs(plain_hub)}


def test_what_is_sent_is_cleaned_and_nothing_stops_the_caller(plain_hub: HubProcess) -> None:
    config = {"lr": 1e-3, "hub_token": "abcdefgh", "note": "hf_" + "a" * 30, "inf": math.inf, "path": Path("/x")}
    with TrainingReporter(plain_hub.url, name="clean\nname", config=config) as reporter:
        reporter.log(1, {"a\nb": 1.0, "x" * 500: 2.0, "text": "no number", "nan": math.nan, "inf": math.inf})  # type: ignore[dict-item]
        reporter.log(-5, {"a\nb": 1.0})
        reporter.log(2, {f"m{n}": float(n) for n in range(METRICS + 10)})
        reporter.log(3, {})
    report = reporter.close()
    assert (report.sent, report.dropped) == (3, 0)
    assert {"the metric 'text' is no number and is not reported"} < set(report.problems)
    assert any("200 metrics at most" in problem for problem in report.problems)
    with plain_hub.client() as client:
        found = client.get(report.url.replace("/training/", "/api/v1/training/")).json()
        curves = client.get(report.url.replace("/training/", "/api/v1/training/") + "/curves").json()["curves"]
    assert found["name"] == "clean name"
    assert found["config"] == {
        "lr": 1e-3, "hub_token": "(removed)", "note": "(removed)", "inf": "inf", "path": "/x",
    }  # fmt: skip
    assert len(curves) == METRICS
    assert {one["name"]: one["latest"] for one in curves if one["name"] in ("a b", "nan", "inf")} == {
        "a b": 1.0, "nan": "NaN", "inf": "Infinity",
    }  # fmt: skip


def test_an_exception_ends_the_run_as_failed_and_goes_on(plain_hub: HubProcess) -> None:
    def train() -> None:
        with TrainingReporter(plain_hub.url, name="breaks") as reporter:
            reporter.log(1, {"loss": 1.0})
            raise ZeroDivisionError("a mistake")

    with pytest.raises(ZeroDivisionError):
        train()
    (found,) = [one for one in runs(plain_hub) if one["name"] == "breaks"]
    assert (found["state"], found["reason"]) == ("failed", "ZeroDivisionError: a mistake")


def test_a_later_process_continues_a_run_under_its_key(plain_hub: HubProcess) -> None:
    for first, last, resumed in ((1, 37, 0), (31, 40, 30)):
        with TrainingReporter(plain_hub.url, name="twice", sender_key="the-same-run", resumed_from=resumed) as reporter:
            for step in range(first, last + 1):
                reporter.log(step, {"reward": float(resumed)})
    (found,) = [one for one in runs(plain_hub) if one["name"] == "twice"]
    with plain_hub.client() as client:
        (curve,) = client.get(f"/api/v1/training/{found['key']}/curves").json()["curves"]
    assert curve["steps"] == list(range(1, 41))
    assert curve["mean"] == [0.0] * 30 + [30.0] * 10


def test_an_address_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(InvalidParams, match="not the address of a hub"):
        TrainingReporter("hub.example.org", name="x")


def test_the_snippet_reports_a_loop(plain_hub: HubProcess, tmp_path: Path) -> None:
    snippet = Path(__file__).parents[3] / "docs" / "snippets" / "report_training.py"
    program = tmp_path / "report_training.py"
    program.write_text(snippet.read_text(encoding="utf-8").replace("http://127.0.0.1:8400", plain_hub.url))
    done = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    assert re.match(rf"100 points at {plain_hub.url}/training/\S+, 0 dropped", done.stdout)
