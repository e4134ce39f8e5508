"""Runs the checks one after the other, each in its own process with a limit, and writes the report."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ludus.common.distribution import installed_version
from ludus.trainer.core.errors import ConfigError, TrainerError
from ludus.trainer.doctor.checks import CHECKS, Check
from ludus.trainer.doctor.context import FIGURES, PROGRAM, RESULT, Setting, read_json
from ludus.trainer.doctor.guard import KILL_SECONDS, TIMED_OUT
from ludus.trainer.doctor.report import Machine, Memory, Model, Report, Result, Scrubber, write_report

GUARD: Final = Path(__file__).with_name("guard.py")
PREPARE_SECONDS: Final = 60.0
"""The time to make the model, and then to find out the facts about the machine."""
LOG_LINES: Final = 12
"""The number of lines from the end of a log that the report has of a check that was killed or crashed."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one run."""

    checks: tuple[str, ...]
    out: Path
    model: Path | None
    """A folder in Hugging Face format; None makes one with random weights."""
    device: Literal["cuda", "cpu"]
    small: bool
    dtype: Literal["float32", "bfloat16"]
    vllm: str
    scale: float
    """A factor for all limits."""


class NoMachineFacts(TrainerError):
    """The model or the facts about the machine are not available, so no check can run."""


def run(options: Options, done: Callable[[Result], None], announce: Callable[[str], None]) -> Report:
    """Run the checks and return the report, which is written to `options.out` after each check.

    Args:
        options: see there.
        done: called with each result.
        announce: called before each part of the work, with a text that says which one and how long it may take.

    Raises:
        ConfigError: there is no GPU, the model's folder does not exist, or the report's path is a folder.
        NoMachineFacts: torch does not work, or the model cannot be made or read.
        OSError: the report cannot be written.
    """
    if options.model is not None and not (options.model / "config.json").is_file():
        raise ConfigError(f"--model: {options.model} has no config.json; give a folder in Hugging Face format")
    if options.out.is_dir():
        raise ConfigError(f"--out: {options.out} is a folder; give the name of a file for the report")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ludus-doctor-") as name:
        scratch = Path(name)
        model = options.model or scratch / "model"
        setting = Setting(str(model.absolute()), options.device, options.small, options.dtype, _program(options.vllm))
        scrubber = Scrubber({"scratch": scratch, "model": model.absolute(), "python": sys.prefix, "here": Path.cwd()})
        announce(f"model and machine, at most {2 * PREPARE_SECONDS * options.scale:g} s")
        machine, shape = _prepare(setting, options, scratch, scrubber)
        if options.device == "cuda" and not machine.gpus:
            raise ConfigError("torch finds no GPU here; try the checks' logic with --device cpu --small")
        results: list[Result] = []

        def write(complete: bool) -> Report:
            passed = any(r.status == "passed" for r in results) and all(r.status != "failed" for r in results)
            report = Report(
                ludus=installed_version(),
                device=setting.device,
                dtype=setting.dtype,
                small=options.small,
                complete=complete,
                passed=passed,
                seconds=round(time.monotonic() - began, 3),
                machine=machine,
                model=shape,
                checks=tuple(results),
            )
            write_report(report, options.out)
            return report

        report = write(False)
        for number, check_name in enumerate(options.checks, 1):
            check = CHECKS[check_name]
            lacking = missing(check, setting, len(machine.gpus))
            if lacking:
                result = _skipped(check, options, lacking)
            else:
                announce(f"{check_name}, at most {check.seconds * options.scale:g} s")
                result = _run(check, setting, options, scratch, scrubber)
            results.append(result)
            report = write(number == len(options.checks))
            done(result)
        return report


def missing(check: Check, setting: Setting, gpus: int) -> str | None:
    """Return what a check needs and does not have here; None if it can run."""
    if setting.device == "cpu" and not check.cpu:
        return "it needs a GPU"
    if setting.device == "cuda" and gpus < check.gpus:
        return f"it needs {check.gpus} GPUs and there {'is' if gpus == 1 else 'are'} {gpus}"
    if check.vllm is not None and shutil.which(setting.vllm) is None:
        return "vLLM's program is not installed; `pip install vllm`, or name the program with --vllm"
    if check.vllm == "here" and importlib.util.find_spec("vllm") is None:
        return "vLLM is not in this environment, which has to send over NCCL; `pip install vllm`"
    return None


def _program(name: str) -> str:
    """Return the path of a program, which may be next to the Python of this process; the name if there is none."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent)) or name


def _skipped(check: Check, options: Options, reason: str) -> Result:
    return Result(
        name=check.name, about=check.about, status="skipped", reason=reason, seconds=0.0,
        limit_seconds=check.seconds * options.scale, memory=None, figures={},
    )  # fmt: skip


def _prepare(setting: Setting, options: Options, scratch: Path, scrubber: Scrubber) -> tuple[Machine, Model]:
    """Make the model if none was given, and find out the facts, each in its own process."""
    folder = scratch / "prepare"
    folder.mkdir()
    setting.save(folder)
    parts = ["ludus.trainer.doctor.machine:machine_part"]
    if options.model is None:
        parts.insert(0, "ludus.trainer.doctor.model:build_part")
    for part in parts:
        with _guarded(["part", part, str(folder)], PREPARE_SECONDS * options.scale, folder / "log") as status:
            if status:
                late = f"did not end within {PREPARE_SECONDS * options.scale:g} s"
                problem = late if status == TIMED_OUT else "failed"
                raise NoMachineFacts(
                    f"no check can run, because {part.partition(':')[2]} {problem}:\n"
                    f"{_log_tail(folder / 'log', scrubber)}"
                )
    prepared = read_json(folder / "machine.json")
    source = "local" if options.model is not None else "built-in"
    return Machine.model_validate(prepared["machine"]), Model.model_validate({"source": source, **prepared["model"]})


def _run(check: Check, setting: Setting, options: Options, scratch: Path, scrubber: Scrubber) -> Result:
    folder = scratch / check.name
    folder.mkdir()
    setting.save(folder)
    began, limit = time.monotonic(), check.seconds * options.scale
    with _guarded(["check", check.name, str(folder)], limit, folder / "log") as status:
        result = read_json(folder / RESULT)
        if result is None:
            reason = (
                f"it did not end within {limit:g} s and was killed"
                if status == TIMED_OUT
                else f"its process ended with status {status} before it had a result"
            )
            figures = read_json(folder / FIGURES) or {}
            result = {"status": "failed", "reason": reason, "figures": figures, "memory": None, "log": True}
        if result["log"]:
            result["reason"] += f"; the end of its log:\n{_log_tail(folder / 'log', scrubber)}"
    seconds = time.monotonic() - began
    shutil.rmtree(folder, ignore_errors=True)
    return Result(
        name=check.name,
        about=check.about,
        status=result["status"],
        reason=result["reason"] and scrubber.text(result["reason"]),
        seconds=round(seconds, 3),
        limit_seconds=limit,
        memory=result["memory"] and Memory.model_validate(result["memory"]),
        figures=scrubber.value(result["figures"]),
    )


@contextmanager
def _guarded(arguments: Sequence[str], seconds: float, log: Path) -> Iterator[int]:
    """Run the checks' program under the guard, and yield its exit status. The guard ends it if this process ends."""
    command = [sys.executable, "-I", str(GUARD), str(seconds), sys.executable, "-m", PROGRAM, *arguments]
    with log.open("ab") as output:
        guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield guard.wait(seconds + 2 * KILL_SECONDS)
        finally:
            assert guard.stdin is not None
            guard.stdin.close()  # after an interruption, the guard kills the check
            try:
                guard.wait(2 * KILL_SECONDS)
            except subprocess.TimeoutExpired:
                guard.kill()
                guard.wait()


def _log_tail(log: Path, scrubber: Scrubber) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return scrubber.text("\n".join(f"  {line[:300]}" for line in lines[-LOG_LINES:]))


def chosen(names: str | None) -> tuple[str, ...]:
    """Return the names of checks in a list separated by commas, in the order in which they run; all of them for None.

    Raises:
        ConfigError: there is no check of that name.
    """
    if names is None:
        return tuple(CHECKS)
    requested = [name.strip() for name in names.split(",") if name.strip()]
    unknown: list[Any] = [name for name in requested if name not in CHECKS]
    if unknown or not requested:
        raise ConfigError(
            f"--checks: there is no check {', '.join(unknown) or names!r}; there are: {', '.join(CHECKS)}"
        )
    return tuple(name for name in CHECKS if name in requested)
