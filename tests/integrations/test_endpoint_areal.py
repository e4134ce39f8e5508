"""AReaL's own proxy and workflow for agents, unchanged, run the example in the docs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import LUDUS, clean_variables

pytestmark = pytest.mark.suite("integrations")

WORLD = ROOT / "tests" / "support" / "adapter_world.py"


@pytest.fixture
def doomed() -> Iterator[tuple[str, int]]:
    """The address and the process id of a server that the test may kill."""
    command = [str(LUDUS), "serve", f"{WORLD}:Sums", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_variables()) as server:
        assert server.stdout is not None
        try:
            found = next(found for line in server.stdout if (found := re.search(rb"http://[\d.]+:\d+", line)))
            yield found[0].decode(), server.pid
        finally:
            server.kill()


@pytest.mark.timeout(150)
def test_areal_sees_one_conversation_of_exact_tokens_and_rejects_unscored_episodes(
    server: str, doomed: tuple[str, int], run_peer: Callable[..., dict[str, Any]], record: Callable[..., None]
) -> None:
    runs = {
        "sums": {"url": server, "environment": "sums", "n": 8},
        "breaking": {"url": server, "environment": "every_third_breaks", "n": 9, "serial": True},
        "killed": {"url": doomed[0], "environment": "sums", "n": 4, "kill": doomed[1]},
    }
    given = {"snippets": str(ROOT / "docs" / "snippets"), "runs": runs}
    report = run_peer("areal", "areal_rollouts.py", given, timeout=130)

    rows = report["sums"]["rows"]
    values = {row["task"]: row["reward"] for row in rows}
    assert set(values.values()) == {0.0, 1.0}
    for row in rows:
        assert row["same_length"], row
        assert row["learned"] > row["last"] > 0  # the tokens of both turns, in one sample

    rows = report["breaking"]["rows"]
    assert ["rejected" in row for row in rows] == [False, False, True] * 3
    assert {row["rejected"] for row in rows if "rejected" in row} == {"EnvironmentFailed"}
    assert report["breaking"]["counted"] == 3
    accepted = [row for row in rows if "reward" in row]
    known = [row for row in accepted if row["task"] in values]
    assert fmean(row["reward"] for row in known) == fmean(values[row["task"]] for row in known)

    killed = report["killed"]
    assert killed["counted"] == sum("rejected" in row for row in killed["rows"]) > 0
    assert {row["rejected"] for row in killed["rows"] if "rejected" in row} == {"InfrastructureFailed"}
    record(
        "areal",
        "AReaL",
        version="1.0.4",
        ran="21 episodes through its `OpenAIProxyWorkflow` and its proxy, scripted tokens, in a spawned process",
        unscored="an exception: the trajectory is rejected",
        traps="it refuses `None`; without `max_completion_tokens`, a reply ends after 512 tokens",
    )
