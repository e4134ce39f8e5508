"""Trajectory files: JSON lines, with one `ludus.protocol.trajectory.Trajectory` per line."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import ValidationError
from pydantic_core import to_json

from ludus.protocol.errors import ParseError
from ludus.protocol.text import replace_surrogates
from ludus.protocol.trajectory import Trajectory, describe_invalid_line


class TrajectoryWriter:
    """Appends trajectories to a file, and writes each line completely before `write` returns. Thread-safe.

    With `resume`, the existing trajectories are kept and the keys of the scored ones are in `done`. An incomplete last
    line, left by a crash, is removed. Failed episodes may be played again (`latest` takes the last line of a key).

    Raises:
        FileExistsError: the file is not empty, and neither `resume` nor `overwrite` is set.
    """

    def __init__(self, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.done: set[tuple[str, str, str, int]] = set()
        has_content = self.path.exists() and self.path.stat().st_size > 0
        if has_content and not (resume or overwrite):
            raise FileExistsError(f"{self.path} exists: resume it, overwrite it, or name another file")
        if has_content and resume:
            # A rollout is written after its branches, so it is done when its trunk is.
            self.done = {
                read_trajectory.key
                for read_trajectory in read_trajectories(self.path)
                if read_trajectory.scored and read_trajectory.branch is None
            }
            _cut_torn_line(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if resume else os.O_TRUNC)
        self._file = os.open(self.path, mode, 0o644)
        self._lock = threading.Lock()

    def write(self, trajectory: Trajectory) -> None:
        """Append one trajectory as a line."""
        try:
            line = trajectory.model_dump_json().encode() + b"\n"
        except ValueError:  # the text of a policy or of a third-party server holds lone surrogates
            line = to_json(replace_surrogates(trajectory.model_dump())) + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file, in its order. An incomplete last line, left by a crash, is skipped.

    Raises:
        ParseError: a complete line is not a trajectory; the message names the line.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Trajectory.model_validate_json(line)
            except ValidationError as error:
                raise ParseError(f"{path}, line {number}: {describe_invalid_line(error)}") from None


def _cut_torn_line(path: Path) -> None:
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        keep, block = size, 1 << 16
        while keep > 0:
            start = max(0, keep - block)
            file.seek(start)
            newline = file.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        file.truncate(keep)
