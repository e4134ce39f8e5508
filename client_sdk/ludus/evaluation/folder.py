"""The folder of an evaluation: `results.json`, and one file of trajectories per cell and check.

How a run survives a kill:

* Each episode is one line, written completely when the episode ends. An incomplete last line is removed on resume.
* `results.json` is always computed from the files of trajectories, and replaced as a whole.
* A lock on the folder, which ends with the process, keeps two runs apart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic_core import to_json

from ludus.client.trajectory_files import TrajectoryWriter, read_trajectories
from ludus.evaluation.playing import without_conversation
from ludus.protocol.errors import InvalidParams, NotFound
from ludus.protocol.evaluation import EvaluationResults, Probe, parse_evaluation
from ludus.protocol.text import replace_surrogates
from ludus.protocol.trajectory import Trajectory, latest

__all__ = ["read_results"]


RESULTS: Final = "results.json"
LARGEST_RESULTS: Final = 1024**3
"""The maximum size of a results file, in bytes."""


def read_results(path: str | Path) -> EvaluationResults:
    """Read the results of an evaluation: the folder, or its `results.json`.

    Raises:
        NotFound: there is no such file.
        ParseError: it is not a results file of this version.
    """
    path = Path(path)
    file = path / RESULTS if path.is_dir() else path
    try:
        if file.stat().st_size > LARGEST_RESULTS:
            raise InvalidParams(f"{file} is larger than {LARGEST_RESULTS >> 20} MiB, so it is not read")
        data = file.read_bytes()
    except OSError as error:
        raise NotFound(f"there are no results of `ludus eval` in {path}: {error.strerror}") from None
    return parse_evaluation(data, str(file))


def write_results(folder: Path, results: EvaluationResults) -> None:
    """Replace `results.json` as a whole.

    Raises:
        OSError: it cannot be written.
    """
    try:
        data = results.model_dump_json().encode()
    except ValueError:  # a name or a message of a third-party server holds lone surrogates
        data = to_json(replace_surrogates(results.model_dump()))
    temporary = folder / f"{RESULTS}.new"
    with temporary.open("wb") as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / RESULTS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of the folder until the block is left.

    Raises:
        InvalidParams: another process plays into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidParams(f"another `ludus eval` plays into {folder}; name another --out") from None
        yield
    finally:
        os.close(descriptor)


def cell_file(model: str, environment: str, split: str, probe: Probe | None = None) -> str:
    """Return the name of a cell's file of trajectories, which differs for different cells."""
    parts = (model, environment, split)
    plain = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:60].strip("-") or "x" for part in parts]
    suffix = "" if tuple(plain) == parts else f".{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"
    return f"{'.'.join(plain)}{suffix}{f'.{probe}' if probe else ''}.jsonl"


def open_file(path: Path) -> tuple[TrajectoryWriter, list[Trajectory]]:
    """Open a file for more episodes; return what it holds, each (task, sample) once and without conversations.

    Raises:
        ParseError: a line other than an incomplete last one is not a trajectory.
        OSError: it cannot be read or written.
    """
    writer = TrajectoryWriter(path, resume=True)
    try:
        return writer, latest(map(without_conversation, read_trajectories(path)))
    except BaseException:
        writer.close()
        raise
