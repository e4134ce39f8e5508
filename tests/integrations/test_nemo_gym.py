"""NeMo Gym's own agent, unchanged, plays the rows that `ludus export` wrote with the resources server of Ludus."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from peer_clients import ROOT, peer_variables, python_of
from terminal import LUDUS, clean_variables, run_ludus

from ludus.protocol.errors import PeerNotUsable

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


def exported(url: str, environment: str, folder: Path) -> list[dict[str, Any]]:
    """Return the rows that the command writes."""
    out = folder / f"{environment}-{len(list(folder.iterdir()))}.jsonl"
    done = run_ludus("export", url, environment, "--form", "nemo-gym", "--out", out, "-n", 8, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.mark.timeout(120)
def test_sessions_are_episodes_and_unscored_ones_are_masked_with_the_mean_of_their_group(
    server: str,
    doomed: tuple[str, int],
    tmp_path: Path,
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    sums = exported(server, "sums", tmp_path)
    wrong = [{**sums[0], "ludus": {**sums[0]["ludus"], "key": 1}}]
    runs = {
        "sums": {"rows": sums, "tasks": 4, "samples": 2},
        "talk": {"rows": sums, "tasks": 4, "samples": 1, "talk": True},
        "breaking": {"rows": exported(server, "every_third_breaks", tmp_path), "tasks": 3, "samples": 4},
        "wrong": {"rows": wrong, "tasks": 1, "samples": 1},
        "killed": {"rows": exported(doomed[0], "sums", tmp_path), "tasks": 3, "samples": 4, "kill": doomed[1]},
    }
    report = run_peer("nemo-gym", "nemo_gym_sessions.py", {"runs": runs}, timeout=100)

    rows = report["sums"]["rows"]
    values = {row["task"]: row["reward"] for row in rows}
    assert set(values.values()) == {0.0, 1.0}
    for row in rows:
        assert row["outputs"][0].isdigit()
        assert row["outputs"][1] == ("right" if row["reward"] else "wrong")
        assert (row["mask_sample"], row["ludus_outcome"]["components"]) == (False, {"right": row["reward"]})
        assert row["reward"] == values[row["task"]]
    for row in report["talk"]["rows"]:  # the final message is graded
        assert (len(row["outputs"]), row["reward"]) == (1, values[row["task"]])

    rows = report["breaking"]["rows"]
    assert report["breaking"]["counted"] == sum(row["mask_sample"] for row in rows) == 4
    check_groups(rows)

    (row,) = report["wrong"]["rows"]
    assert row["status"] == 500  # of the agent: the resources server refused its row
    assert "not the address of a task: key" in row["text"]

    killed = report["killed"]
    rows = [row for row in killed["rows"] if row["status"] == 200]
    assert killed["counted"] == len(killed["rows"]) - sum(not row["mask_sample"] for row in rows) > 0
    for row in rows:
        assert row["mask_sample"] == (row["ludus_outcome"]["value"] is None)
        assert not row["mask_sample"] or "infrastructure failure" in row["ludus_outcome"]["reason"]

    assert {report[name]["sessions"] for name in runs} == {0}
    assert report["stray"]["status"] == 404
    assert "call /seed_session first" in report["stray"]["text"]
    record(
        "nemo-gym",
        "NeMo Gym, NeMo RL",
        version="0.4.0",
        ran="37 episodes through its `SimpleAgent` and its HTTP servers, in a spawned process",
        unscored="`mask_sample`, with the value of its scored siblings",
        traps="the reward of a masked sample still counts in NeMo RL's baseline; a failed `/run` ends the collection",
    )


def test_nemo_gyms_own_command_accepts_every_exported_row(server: str, tmp_path: Path) -> None:
    rows = [exported(server, name, tmp_path) for name in ("sums", "every_third_breaks")]
    texts = ["".join(f"{json.dumps(row)}\n" for row in found) for found in rows]
    (tmp_path / "train.jsonl").write_text(texts[0], encoding="utf-8")
    (tmp_path / "validation.jsonl").write_text(
        '{"responses_create_params": {"input": 3}}\n' + texts[1], encoding="utf-8"
    )
    shutil.copy(ROOT / "docs" / "snippets" / "nemo_gym.yaml", tmp_path / "ludus.yaml")
    configs = "ludus.yaml,responses_api_models/openai_model/configs/openai_model.yaml"
    model = [f"+policy_{name}=none" for name in ("base_url", "api_key", "model_name")]
    done = subprocess.run(
        [Path(python_of("nemo-gym")).with_name("ng_prepare_data"), f"+config_paths=[{configs}]", *model,
         "+output_dirpath=data", "+mode=train_preparation"],
        cwd=tmp_path, env=peer_variables(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for split, found in zip(("train", "validation"), rows, strict=True):
        metrics = json.loads((tmp_path / "data" / f"{split}_metrics.json").read_text(encoding="utf-8"))
        assert metrics["Number of examples"] == len(found)  # a row that is not valid is not counted
        assert metrics["Number of tools"]["Total # non-null values"] == len(found)
    prepared = [json.loads(line) for line in (tmp_path / "data" / "train.jsonl").read_text("utf-8").splitlines()]
    agent = {"agent_ref": {"type": "responses_api_agents", "name": "ludus_simple_agent"}}
    assert prepared == [row | agent for row in rows[0]]


def check_groups(rows: list[dict[str, Any]]) -> None:
    """Check that the mean of each group is that of its scored episodes."""
    for task in {row["task"] for row in rows}:
        group = [row for row in rows if row["task"] == task]
        healthy = [row["reward"] for row in group if not row["mask_sample"]]
        assert fmean(row["reward"] for row in group) == pytest.approx(fmean(healthy))
        assert set(healthy) <= {0.0, 1.0}


def test_a_missing_nemo_gym_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(PeerNotUsable, match=r"pip install 'nemo-gym==0\.4\.\*'"):
        importlib.import_module("ludus.integrations.nemo_gym")
