"""TRL, verifiers and Inspect AI play each environment of the entry points `ludus.environments` once.

The list is that of the entry points: a new one is played, or refused with a typed error, or the test fails. Games are
played from their first seat, and tasks of environments with worlds alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import running_episodes, serving

from ludus.client.sync import connect

pytestmark = [pytest.mark.suite("integrations"), pytest.mark.timeout(900)]

NAMES = sorted(one.name for one in entry_points(group="ludus.environments"))
PLUGINS = ROOT / "docs" / "snippets"

RunPeer = Callable[..., Any]


@pytest.fixture(scope="module")
def library() -> Iterator[str]:
    """The address of a server with all environments, without open episodes afterwards."""
    with serving(*NAMES) as url:
        yield url
        assert running_episodes(url) == 0, "episodes are still open"


def playable(url: str) -> dict[str, str | None]:
    """Return for each environment why its first task cannot be started on this machine; None if it can."""
    found: dict[str, str | None] = {}
    with connect(url) as client:
        for name in NAMES:
            try:
                client.environment(name).preview(index=0)
            except Exception as error:
                found[name] = str(error)
            else:
                found[name] = None
    return found


def check(url: str, plays: dict[str, tuple[Any, str]]) -> None:
    """Check the value and the error of each environment's play: a reward within its range, unless it cannot start."""
    assert sorted(plays) == NAMES, "an environment was not played"
    assert {"company", "connect_four"} <= plays.keys(), "there is no environment with worlds, or none with seats"
    with connect(url) as client:
        ranges = {info.name: info.reward_range for info in client.environments()}
    for name, why in playable(url).items():
        value, error = plays[name]
        if why is not None:
            assert value is None, (name, value)
            assert error, f"{name} cannot be started here ({why}), and the adapter does not say so"
            continue
        assert not error, (name, error)
        low, high = ranges[name] or (float("-inf"), float("inf"))
        assert value is not None, f"{name} was not scored"
        assert low <= value <= high, (name, value)


def test_the_list_of_environments_is_that_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split('[project.entry-points."ludus.environments"]')[1].split("\n[")[0]
    declared = {line.split("=")[0].strip() for line in section.splitlines() if "=" in line}
    assert set(NAMES) >= declared, "install the project again: pip install -e . --no-deps"


def test_trl_plays_every_environment(library: str, run_peer: RunPeer) -> None:
    given = {"url": library, "environments": NAMES}
    report = run_peer("trl", "trl_every.py", given, timeout=800)
    check(library, {name: (one.get("value"), one.get("message", "")) for name, one in report.items()})
    refused = {name: one["refused"] for name, one in report.items() if "refused" in one}
    assert all("has tools of its own" in why and "use LudusRollout" in why for why in refused.values()), refused
    assert len(refused) < len(NAMES) / 4, "the factory refuses more than the few whose tasks have tools of their own"
    assert any(one.get("output") for one in report.values())


def test_inspect_plays_every_environment(library: str, endpoint: str, run_peer: RunPeer) -> None:
    runs = [{"environment": name, "n": 1, "model": "explorer"} for name in NAMES]
    reports = run_peer("agents", "inspect_eval.py", {"url": library, "base_url": endpoint, "runs": runs}, timeout=800)
    plays: dict[str, tuple[Any, str]] = {}
    for name, report in zip(NAMES, reports, strict=True):
        (sample,) = report["samples"]
        score = sample["score"] or {}
        reason = str(score.get("reason") or "") if sample["value"] is None else ""
        plays[name] = (sample["value"], sample["error"] or reason)
        assert sample["model_events"] >= 1, name
    check(library, plays)


def test_verifiers_plays_every_environment(library: str, endpoint: str, run_peer: RunPeer) -> None:
    cases = {
        name: {
            "environment": name,
            "model": "explorer",
            "n": 1,
            "env": {"taskset": {"id": "ludus_sums", "url": library, "environment": name, "n": 1}},
        }
        for name in NAMES
    }
    folders = {"plugins": str(PLUGINS), "path": str(ROOT / ".venv" / "bin")}
    given = {**folders, "url": library, "endpoint": endpoint, "cases": cases}
    reports = run_peer("verifiers", "verifiers_runs.py", given, timeout=800)
    plays: dict[str, tuple[Any, str]] = {}
    for name, report in reports.items():
        traces = report["traces"]
        errors = [error for trace in traces for error in trace["errors"]]
        errors += [error for episode in report["episodes"] for error in episode["errors"]]
        plays[name] = (traces[0]["reward"] if traces else None, "; ".join(errors))
    check(library, plays)
