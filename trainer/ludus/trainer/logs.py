"""The logs of a run: two files of JSON lines, the terminal, and the trackers named in the configuration.

`metrics.jsonl` holds one object per call, `{"step": 3, "time": 1700000000.0, "reward/mean": 0.4, …}`, or a note;
a number that is not finite is null. `rollouts.jsonl` holds some rollouts of each step with every token as the engine
saw it. Both are only appended to, so they can be followed during the run.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ludus.protocol.text import printable
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, TrainerError
from ludus.trainer.core.samples import RolloutGroup, Sample
from ludus.trainer.core.settings import config_toml, write_config
from ludus.trainer.report import write_report

SHOWN: Final = {
    "reward/mean": "reward",
    "rollout/turns": "turns",
    "rollout/tokens": "tokens",
    "rollout/failed": "failed",
    "rollout/staleness_mean": "staleness",
    "loss/mismatch_k3": "k3(μ‖π)",
    "loss/entropy": "entropy",
    "loss/gradient_norm": "gradient",
    "loss/zero_gradient": "no gradient",
    "throughput/trained_tokens": "tokens/s",
    "time/step": "seconds",
}
"""The metrics that the terminal shows in addition to those of evaluations, with their display names."""


class Sink(NamedTuple):
    """An external tracker that receives metrics."""

    name: str
    write: Callable[[int, Mapping[str, float]], object]
    """Write a step's finite metrics; called several times for one step if its metrics come in parts."""
    close: Callable[[], object]
    """Flush and close the tracker."""


class RunLog:
    """The log of a run, open in one process only. It creates the run's folder and writes `config.toml` there.

    Args:
        config: the run's configuration.
        tokenizer: any object with `decode(ids) -> str`; if given, `rollouts.jsonl` also holds the tokens as text.
        resumed: the step of the checkpoint from which the run resumes; lines of later steps, written by an earlier
            attempt, are removed. None for a new run; files of an earlier run are renamed to `….old`.

    Raises:
        ConfigError: a tracker's package is not installed.
        TrainerError: the folder cannot be written to.
    """

    def __init__(self, config: TrainConfig, tokenizer: Any = None, *, resumed: int | None = None) -> None:
        self._config, self._tokenizer, self._step = config, tokenizer, resumed or 0
        write_config(config)
        self._sinks = _open_sinks(config, _run_name(config, resumed), resumed)
        self._metrics = JsonLines(config.output / "metrics.jsonl", resumed)
        self.evaluated = -1 if resumed is None else _last_evaluation(self._metrics.path)
        """The step of the last recorded evaluation, which a resumed run does not repeat; -1 for none."""
        self._rollouts = JsonLines(config.output / "rollouts.jsonl", resumed)
        self._terminal = Terminal(config.output, config.steps) if config.logging.console else None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record metrics of a step. Also write the report if they include an evaluation.

        Raises:
            TrainerError: the disk is full or cannot be written to.
        """
        self._step = step
        numbers = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        record = {name: finite.get(name) for name in numbers}
        self._metrics.write({"step": step, "time": round(time.time(), 3), **record})
        if self._terminal:
            self._terminal.write(step, finite)
        for sink in tuple(self._sinks):
            try:
                sink.write(step, {plain_name(name): value for name, value in finite.items()})
            except Exception as error:
                self._sinks.remove(sink)
                self.note(f"{sink.name} gets no more metrics: {error}")
        if any(name.startswith("evaluation/") for name in values):
            self._report()

    def rollouts(self, step: int, groups: Sequence[RolloutGroup], *, held_out: bool = False) -> None:
        """Record `logging.rollouts` of a step's rollouts, evenly spread and in other positions at each step.

        Args:
            step: the step that was trained on them, or after which an evaluation ran them.
            groups: all groups of the step.
            held_out: whether they are the episodes of an evaluation.

        Raises:
            TrainerError: as for `metrics`.
        """
        everything = [(group, index) for group in groups for index in range(len(group.rollouts))]
        count = min(self._config.logging.rollouts, len(everything))
        for n in range(count):
            group, index = everything[(n * len(everything) // count + step) % len(everything)]
            record = rollout_record(step, group, index, self._tokenizer)
            self._rollouts.write(record | {"held_out": True} if held_out else record)

    def note(self, text: str) -> None:
        """Record a note and show it.

        Raises:
            TrainerError: as for `metrics`.
        """
        self._metrics.write({"step": self._step, "time": round(time.time(), 3), "note": text})
        if self._terminal:
            self._terminal.note(text)

    def close(self) -> None:
        """Write the report and close everything.

        Raises:
            TrainerError: as for `metrics`; everything is closed in that case too.
        """
        try:
            self._report()
            for sink in self._sinks:
                try:
                    sink.close()
                except Exception as error:
                    self.note(f"{sink.name} may lack the last metrics: {error}")
        finally:
            if self._terminal:
                self._terminal.close()
            self._metrics.close()
            self._rollouts.close()

    def _report(self) -> None:
        if self._config.logging.report:
            try:
                write_report(self._config.output)
            except Exception as error:
                self.note(f"the report could not be written: {error}")


class JsonLines:
    """A file of JSON objects, one per line, whose first key is the step.

    Raises:
        TrainerError: the file cannot be written to.
    """

    def __init__(self, path: Path, resumed: int | None) -> None:
        self.path = path
        try:
            if path.exists():
                path.replace(old := path.with_name(f"{path.name}.old"))
                if resumed is not None:
                    _copy_until(old, path, resumed)
                    old.unlink()
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise TrainerError(f"cannot write {path}: {error.strerror}") from None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one object."""
        try:
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise TrainerError(f"cannot write {self.path}: {error.strerror}; the run can be resumed") from None

    def close(self) -> None:
        """Close the file. Closing twice has no effect."""
        with suppress(OSError):  # `write` has already raised for data that is not on the disk
            self._file.close()


def _copy_until(source: Path, target: Path, step: int) -> None:
    """Copy the complete lines of steps up to `step`."""
    temporary = target.with_name(f"{target.name}.new")
    with source.open("rb") as lines, temporary.open("wb") as copy:
        for line in lines:
            number = re.match(rb'\{"step": (\d+),', line)
            if number and int(number[1]) <= step and line.endswith(b"\n"):
                copy.write(line)
    temporary.replace(target)


def _last_evaluation(path: Path) -> int:
    with path.open("rb") as lines:
        steps = (json.loads(line)["step"] for line in lines if b'"evaluation/' in line)
        return max(steps, default=-1)


def plain_name(name: str) -> str:
    """Return a metric's name in characters that all trackers accept: `pass_at_4` for `pass@4`, `pass_hat_4` for
    `pass^4`."""
    return re.sub(r"[^\w\-./]", "_", name.replace("@", "_at_").replace("^", "_hat_"))


def rollout_record(step: int, group: RolloutGroup, index: int, tokenizer: Any) -> dict[str, Any]:
    """Return a rollout as an object of `rollouts.jsonl`."""
    rollout = group.rollouts[index]
    record: dict[str, Any] = {"step": step, "group": group.number, "index": index, "environment": group.environment}
    record |= {"task": group.task, "version": group.version, "status": str(rollout.status), "reward": rollout.reward}
    if group.plan is not None:
        record |= {"seat": rollout.seat, "opponent": group.plan.opponent}
    if rollout.chain is not None:
        record |= {"task": rollout.trajectory.task.id, "chain": asdict(rollout.chain)}
    record |= {"turn_rewards": rollout.turn_rewards, "parse_errors": rollout.parse_errors}
    record["samples"] = [_sample_record(sample, tokenizer) for sample in rollout.samples]
    return record | {"trajectory": rollout.trajectory.model_dump(mode="json")}


def _sample_record(sample: Sample, tokenizer: Any) -> dict[str, Any]:
    record: dict[str, Any] = asdict(sample) | {"mask": [int(sampled) for sampled in sample.mask]}
    if tokenizer is not None:
        runs = groupby(zip(sample.mask, sample.ids, strict=True), key=lambda pair: pair[0])
        record["text"] = [[int(sampled), tokenizer.decode([token for _, token in pairs])] for sampled, pairs in runs]
    return record


class Terminal:
    """The display on standard error: a live table of metrics in a terminal, otherwise one line per step."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._title, self._started = f"{folder.name}  step {{}} of {steps}", time.monotonic()
        self._history: dict[str, list[float]] = {}
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        if self._live:
            self._live.start()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a step."""
        names = {name: SHOWN.get(name) or "held-out " + name.split("/")[1] for name in metrics
                 if name in SHOWN or re.fullmatch("evaluation/[^/]+/mean", name)}  # fmt: skip
        for name, short in names.items():
            self._history.setdefault(printable(short), []).append(metrics[name])
        title = f"{self._title.format(step)}  {timedelta(seconds=round(time.monotonic() - self._started))}"
        if self._live:
            table = Table("", "now", "so far", box=None, header_style="dim", title=Text(title), title_justify="left")
            for short, values in self._history.items():
                table.add_row(Text(short), f"{values[-1]:.4g}", sparkline(values))
            self._live.update(table, refresh=True)
        elif names:
            self.note("  ".join([title, *(f"{short} {metrics[name]:.4g}" for name, short in names.items())]))

    def note(self, text: str) -> None:
        """Show a note."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def close(self) -> None:
        """Stop the live table."""
        if self._live:
            self._live.stop()


def sparkline(values: Sequence[float]) -> str:
    """Return the values as at most 32 block characters, each of which shows the mean of neighboring values."""
    size = math.ceil(len(values) / 32)
    means = [sum(part) / len(part) for i in range(0, len(values), size) if (part := values[i : i + size])]
    low, spread = min(means), max(means) - min(means)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (mean - low) / spread)] if spread else "▄" for mean in means)


# ---- trackers: each function opens the tracker's run of the given name, which a resumed run continues


def _run_name(config: TrainConfig, resumed: int | None) -> str:
    """Return the name of the run at trackers, which a resumed run keeps; of at most 89 characters."""
    file = config.output / "run_name"
    if resumed is None or not file.exists():
        file.write_text(f"{plain_name(config.output.resolve().name)[:80]}-{secrets.token_hex(4)}", encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _open_sinks(config: TrainConfig, name: str, resumed: int | None) -> list[Sink]:
    trackers: dict[str, Callable[..., Sink]] = {
        "tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio
    }  # fmt: skip
    projects = {tracker: getattr(config.logging, tracker) for tracker in trackers}
    return [trackers[tracker](config, project, name, resumed) for tracker, project in projects.items() if project]


def _package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"logging.{package}: {error}; install it with: pip install {package}") from None


def _tensorboard(config: TrainConfig, _: bool, name: str, resumed: int | None) -> Sink:
    """Open TensorBoard (https://pytorch.org/docs/stable/tensorboard.html)."""
    package = _package("torch.utils.tensorboard", "tensorboard")
    purge = None if resumed is None else resumed + 1
    writer = package.SummaryWriter(str(config.output / "tensorboard"), purge_step=purge)

    def write(step: int, metrics: Mapping[str, float]) -> None:
        for metric, value in metrics.items():
            writer.add_scalar(metric, value, step)
        writer.flush()

    return Sink("tensorboard", write, writer.close)


def _wandb(config: TrainConfig, project: str, name: str, _: int | None) -> Sink:
    """Open W&B (https://docs.wandb.ai/ref/python). `WANDB_MODE=offline` keeps everything on this machine."""
    settings = config.model_dump(mode="json")
    run = _package("wandb", "wandb").init(
        project=project, id=name, name=name, resume="allow", dir=str(config.output), config=settings
    )
    # W&B's own step count cannot decrease, but the step of a resumed run does.
    run.define_metric("*", step_metric="trained_steps")
    return Sink("wandb", lambda step, metrics: run.log({**metrics, "trained_steps": step}), run.finish)


def _mlflow(config: TrainConfig, experiment: str, name: str, _: int | None) -> Sink:
    """Open MLflow (https://mlflow.org/docs/latest/ml/tracking) at `MLFLOW_TRACKING_URI`."""
    mlflow = _package("mlflow", "mlflow")
    client = mlflow.MlflowClient()
    found_experiment = client.get_experiment_by_name(experiment)
    experiment_id = found_experiment.experiment_id if found_experiment else client.create_experiment(experiment)
    runs = client.search_runs([experiment_id], f"attributes.run_name = '{name}'")
    run = (runs[0] if runs else client.create_run(experiment_id, run_name=name)).info.run_id
    client.update_run(run, status="RUNNING")
    client.log_text(run, config_toml(config), "config.toml")

    def write(step: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        values = [mlflow.entities.Metric(metric, value, now, step) for metric, value in metrics.items()]
        client.log_batch(run, metrics=values, synchronous=False)

    def close() -> None:
        mlflow.flush_async_logging()
        client.set_terminated(run)

    return Sink("mlflow", write, close)


def _trackio(config: TrainConfig, project: str, name: str, _: int | None) -> Sink:
    """Open trackio (https://huggingface.co/docs/trackio). `trackio show` displays it."""
    settings = config.model_dump(mode="json")
    package = _package("trackio", "trackio")
    run = package.init(project=project, name=name, resume="allow", embed=False, config=settings)
    return Sink("trackio", lambda step, metrics: run.log(dict(metrics), step=step), run.finish)
