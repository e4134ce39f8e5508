"""Trackers keep what they get, also over a resumed run. Those whose package is not installed are skipped."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.logs import RunLog

MakeConfig = Callable[..., TrainConfig]

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # what the packages say to each other is not ours to fix
]
EXPECTED = [(1, 1.0), (2, 2.0), (3, -3.0), (4, -4.0)]


def train_twice(config: TrainConfig) -> None:
    """Three steps, then a crash, and two further steps after the checkpoint of step 2."""
    log = RunLog(config)
    for step in (1, 2, 3):
        log.metrics(step, {"reward/mean": step, "evaluation/x/pass@4": 0.5, "loss/total": float("nan")})
    log.close()
    log = RunLog(config, resumed=2)
    for step in (3, 4):
        log.metrics(step, {"reward/mean": -step})
    log.close()


def test_tensorboard_reads_back_what_was_written(make_config: MakeConfig) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = make_config("--logging.tensorboard=true")
    train_twice(config)
    events = EventAccumulator(str(config.output / "tensorboard"))
    events.Reload()
    tags: dict[str, Any] = events.Tags()
    assert sorted(tags["scalars"]) == ["evaluation/x/pass_at_4", "reward/mean"]
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == EXPECTED


def test_mlflow_goes_on_with_the_same_run(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    train_twice(make_config("--logging.mlflow=probe"))
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("probe").experiment_id])
    assert run.info.status == "FINISHED"
    history = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "reward/mean")}
    assert sorted(history.items()) == EXPECTED
    assert run.data.metrics["evaluation/x/pass_at_4"] == 0.5
    assert [artifact.path for artifact in client.list_artifacts(run.info.run_id)] == ["config.toml"]


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of a log file as LevelDB writes it, which is what W&B keeps offline: a header of 7 bytes, then pieces
    of (checksum, length, kind) in blocks of 32 KiB; kind 1 is whole, 4 is the last piece of one."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def test_wandb_goes_on_with_the_same_run(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = make_config("--logging.wandb=probe")
    train_twice(config)
    wandb.teardown()  # W&B's own process may write the last records after a run is finished, and ends here
    values: dict[int, float] = {}
    runs = set()
    for file in sorted((config.output / "wandb").glob("offline-run-*/*.wandb")):
        for data in leveldb_records(file.read_bytes()):
            record = messages.Record.FromString(data)
            runs |= {record.run.run_id} - {""}
            row = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            if "reward/mean" in row:
                values[int(row["trained_steps"])] = float(row["reward/mean"])
    assert sorted(values.items()) == EXPECTED
    assert len(runs) == 1


def test_trackio_goes_on_with_the_same_run(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    train_twice(make_config("--logging.trackio=probe"))
    with closing(sqlite3.connect(tmp_path / "trackio" / "probe.db")) as database:
        rows = database.execute(
            "select step, json_extract(metrics, '$.\"reward/mean\"'), run_name from metrics"
        ).fetchall()
    assert sorted({step: value for step, value, _ in rows}.items()) == EXPECTED
    assert len({name for _, _, name in rows}) == 1
