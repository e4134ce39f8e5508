"""What a run writes down: whole lines, exact tokens, nothing of a later attempt, and no tracker that ends the run."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ludus.protocol.trajectory import Trajectory
from ludus.trainer import logs
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, TrainerError
from ludus.trainer.core.samples import RolloutGroup, Sample
from ludus.trainer.core.settings import read_config
from ludus.trainer.logs import RunLog, Sink, plain_name, sparkline

MakeConfig = Callable[..., TrainConfig]
MakeGroup = Callable[..., RolloutGroup]


class Characters:
    """A tokenizer whose ids are characters."""

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(path: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["reward/mean"]) for line in lines(path)]


def test_metrics_are_json_lines_and_what_is_not_finite_is_null(make_config: MakeConfig) -> None:
    config = make_config()
    log = RunLog(config)
    log.metrics(1, {"reward/mean": 0.5, "loss/total": math.nan, "loss/ratio_max": math.inf})
    log.note("a remark")
    log.close()
    first, note = lines(config.output / "metrics.jsonl")
    assert {"step": 1, "reward/mean": 0.5, "loss/total": None, "loss/ratio_max": None}.items() <= first.items()
    assert (note["step"], note["note"]) == (1, "a remark")
    assert 0 < first["time"] <= note["time"]


def test_the_effective_configuration_is_next_to_the_metrics(make_config: MakeConfig) -> None:
    config = make_config("--steps=3")
    RunLog(config).close()
    assert read_config(config.output / "config.toml") == config


def test_rollouts_are_written_token_by_token(make_config: MakeConfig, make_group: MakeGroup) -> None:
    config, group = make_config(), make_group(4, 1.0)
    log = RunLog(config, Characters())
    log.rollouts(3, [group])
    log.close()
    (line,) = lines(config.output / "rollouts.jsonl")
    rollout = group.rollouts[0]
    (written,) = line["samples"]
    text = written.pop("text")
    assert Sample(**{name: tuple(values) for name, values in written.items()}) == rollout.samples[0]
    assert text == [[0, "prompt"], [1, "FIRST"], [0, "answer"], [1, "SEC"]]
    assert Trajectory.model_validate(line["trajectory"]) == rollout.trajectory
    expected = {"step": 3, "group": 4, "index": 0, "environment": "guess", "task": "task-7", "version": 2}
    assert expected.items() <= line.items()
    assert (line["status"], line["reward"], line["turn_rewards"], line["parse_errors"]) == ("completed", 1, [1, 0], 1)


@pytest.mark.parametrize("kept", [0, 1, 3, 100])
def test_as_many_rollouts_of_a_step_are_kept_as_are_wished(
    make_config: MakeConfig, make_group: MakeGroup, kept: int
) -> None:
    config = make_config(f"--logging.rollouts={kept}")
    log = RunLog(config)
    groups = [make_group(number, 1.0, 0.0, None) for number in range(3)]
    log.rollouts(1, groups)
    log.rollouts(2, groups, held_out=True)
    log.rollouts(3, [])
    log.close()
    written = lines(config.output / "rollouts.jsonl")
    for step in (1, 2):
        own = [(line["group"], line["index"]) for line in written if line["step"] == step]
        assert len(set(own)) == len(own) == min(kept, 9)
    assert all(line.get("held_out", False) == (line["step"] == 2) for line in written)


def test_a_resumed_run_cuts_off_what_came_after_its_checkpoint(make_config: MakeConfig, make_group: MakeGroup) -> None:
    config = make_config()
    log = RunLog(config)
    for step in range(1, 13):
        log.metrics(step, {"reward/mean": step})
        log.rollouts(step, [make_group(step, 1.0)])
    log.close()
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        with (config.output / name).open("a") as file:
            file.write('{"step": 2, "torn": "by a cra')
    log = RunLog(config, resumed=10)
    log.metrics(11, {"reward/mean": -1.0})
    log.close()
    kept = [(step, float(step)) for step in range(1, 11)]
    assert numbers(config.output / "metrics.jsonl") == [*kept, (11, -1.0)]
    assert [line["step"] for line in lines(config.output / "rollouts.jsonl")] == list(range(1, 11))
    assert sorted(path.name for path in config.output.glob("*.jsonl*")) == ["metrics.jsonl", "rollouts.jsonl"]


def test_a_cut_that_was_interrupted_loses_nothing(make_config: MakeConfig) -> None:
    config = make_config()
    log = RunLog(config)
    log.metrics(1, {"reward/mean": 1.0})
    log.close()
    (config.output / "metrics.jsonl.new").write_text('{"step": 1, "rew')
    log = RunLog(config, resumed=1)
    log.close()
    assert numbers(config.output / "metrics.jsonl") == [(1, 1.0)]


def test_a_new_run_in_the_same_folder_keeps_the_files_of_the_old_one(make_config: MakeConfig) -> None:
    config = make_config()
    for value in (1.0, 2.0):
        log = RunLog(config)
        log.metrics(1, {"reward/mean": value})
        log.close()
    assert numbers(config.output / "metrics.jsonl") == [(1, 2.0)]
    assert numbers(config.output / "metrics.jsonl.old") == [(1, 1.0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file on a full disk")
def test_a_full_disk_ends_the_run_with_its_name(make_config: MakeConfig) -> None:
    config = make_config()
    config.output.mkdir()
    log = RunLog(config)
    log.metrics(1, {"reward/mean": 1.0})
    log._metrics.close()
    log._metrics._file = Path("/dev/full").open("a", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(
            TrainerError, match=r"cannot write .*metrics\.jsonl: No space left on device; the run can be"
        ):
            log.metrics(2, {"reward/mean": 1.0})
    log.close()


def test_a_tracker_that_breaks_is_left_out_and_the_run_goes_on(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def fail(step: int, metrics: Mapping[str, float]) -> None:
        told.append(step)
        raise ConnectionError("no server")

    def time_out() -> None:
        raise TimeoutError("still uploading")

    broken = Sink("broken", fail, lambda: pytest.fail("a tracker that broke is not closed again"))
    slow = Sink("slow", lambda step, metrics: told.append(-step), time_out)
    monkeypatch.setattr(logs, "_open_sinks", lambda *_: [broken, slow])
    config = make_config()
    log = RunLog(config)
    log.metrics(1, {"reward/mean": 1.0})
    log.metrics(2, {"reward/mean": 1.0})
    log.close()
    assert told == [1, -1, -2]
    notes = [line["note"] for line in lines(config.output / "metrics.jsonl") if "note" in line]
    assert notes == [
        "broken gets no more metrics: no server",
        "slow may lack the last metrics: still uploading",
    ]


@pytest.mark.parametrize(
    ("setting", "module", "package"),
    [
        ("wandb=w", "wandb", "wandb"),
        ("mlflow=m", "mlflow", "mlflow"),
        ("trackio=t", "trackio", "trackio"),
        ("tensorboard=true", "torch.utils.tensorboard", "tensorboard"),
    ],
)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, setting: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"logging.{package}: .*install it with: pip install {package}$"):
        RunLog(make_config(f"--logging.{setting}"))


def test_names_of_metrics_fit_every_tracker_and_stay_apart() -> None:
    assert plain_name("evaluation/my env/pass@4") == "evaluation/my_env/pass_at_4"
    assert plain_name("evaluation/my env/pass^4") == "evaluation/my_env/pass_hat_4"


def test_without_a_terminal_there_is_a_line_per_step(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    log = RunLog(make_config("--logging.console=true", "--steps=9"))
    log.metrics(3, {"reward/mean": 0.25, "evaluation/gu\x1bess/mean": 0.5, "evaluation/gu\x1bess/mean_low": 0.4})
    log.metrics(3, {"loss/unlisted": 1.0})
    log.note("odd \x1b[31m[bold]")
    log.close()
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["run  step 3 of 9  0:00:00  reward 0.25  held-out gu�ess 0.5", "odd �[31m[bold]"]


def test_in_a_terminal_there_is_one_table(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = io.StringIO()
    monkeypatch.setattr(logs, "Console", lambda **_: Console(file=screen, force_terminal=True, width=90))
    log = RunLog(make_config("--logging.console=true", "--steps=9"))
    for step in range(1, 5):
        log.metrics(step, {"reward/mean": step / 4, "evaluation/[red]/mean": 0.5})
    log.note("a remark")
    log.close()
    shown = screen.getvalue()
    assert "step 4 of 9" in shown
    assert "▁▃▆█" in shown
    assert "held-out [red]" in shown
    assert "a remark" in shown
    assert shown.endswith("\x1b[?25h"), "the cursor is shown again"


def test_a_sparkline_takes_the_mean_of_neighbors() -> None:
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert sparkline([2.0, 2.0]) == "▄▄"
    assert len(sparkline(list(map(float, range(100))))) <= 32
