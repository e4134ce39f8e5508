"""Difficulty files (see `ludus.protocol.difficulty`): made from a calibration, written and read."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from ludus.evaluation.calibration.measure import Calibration, TaskFigures
from ludus.protocol.difficulty import DIFFICULTY_FORMAT, DifficultyFile, TaskDifficulty, parse_difficulty
from ludus.protocol.errors import NotFound


def difficulty_of(calibration: Calibration, measured_at: datetime | None = None) -> DifficultyFile:
    """Return the difficulty file of a calibration.

    Args:
        calibration: the measured figures.
        measured_at: the time of the measurement, with a time zone; the current time when None.

    Raises:
        ValueError: no episode of the calibration was scored, so its band is unknown.
    """
    if calibration.band is None:
        raise ValueError("no episode was scored, so nothing is known of any task")
    return DifficultyFile(
        format=DIFFICULTY_FORMAT,
        environment=calibration.environment,
        environment_version=calibration.environment_version,
        split=calibration.split,
        policy=calibration.policy,
        seed=calibration.seed,
        success_at=calibration.success_at,
        band=(calibration.band.low, calibration.band.high),
        noise=calibration.summary.noise,
        measured_at=measured_at or datetime.now(UTC).replace(microsecond=0),
        tasks={figures.task: _task(figures) for figures in calibration.tasks},
    )


def write_difficulty(path: str | Path, file: DifficultyFile) -> None:
    """Write the file atomically, and replace an earlier one.

    Raises:
        OSError: the file cannot be written; an earlier file is then unchanged.
    """
    path = Path(path)
    text = file.model_dump_json(indent=1) + "\n"
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), 0o644)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def read_difficulty(path: str | Path) -> DifficultyFile:
    """Read a difficulty file.

    Raises:
        NotFound: there is no such file, or it cannot be read.
        ParseError: the content is not a difficulty file; the message names the field.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NotFound(f"the difficulty file {path} cannot be read: {error.strerror}") from None
    return parse_difficulty(data, str(path))


def _task(figures: TaskFigures) -> TaskDifficulty:
    return TaskDifficulty(
        passes=figures.passes,
        attempts=figures.attempts,
        unscored=figures.unscored + sum(figures.failed.values()),
        pass_rate=figures.pass_rate,
        interval=figures.interval,
        mean_reward=figures.mean_reward,
        steps=figures.steps,
        tokens=figures.tokens,
        level=figures.level,
    )
