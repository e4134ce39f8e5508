"""Reading files of trajectories line by line, and choosing episodes from them.

Two kinds of lines are read: trajectories (`ludus run --out`), and the trainer's `rollouts.jsonl`, whose lines hold a
trajectory under `trajectory`. One line at a time is in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import ValidationError

from ludus.protocol.trajectory import Trajectory, describe_invalid_line

__all__ = ["BrokenLine", "ViewedEpisode", "read_line"]


LONGEST_LINE: Final = 64 * 1024 * 1024
"""Longer lines, in bytes, are reported as broken."""


@dataclass(frozen=True, slots=True)
class ViewedEpisode:
    """One episode of a file."""

    number: int
    """The line in the file, counted from 1."""
    trajectory: Trajectory
    step: int | None = None
    """The trainer's step, if the line is a rollout of a training run."""
    held_out: bool = False
    """Whether the trainer's evaluation ran it."""


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that is not an episode."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which episodes to show; every condition that is set must hold."""

    task: str | None = None
    """The task's id, or a pattern with `*`."""
    reward_below: float | None = None
    """Episodes with a reward less than this value; unscored ones do not count as such."""
    failed: bool = False
    """Only episodes that failed or are unscored."""
    episode: str | None = None
    """The number of the line, or the episode's id."""

    def __contains__(self, viewed: object) -> bool:
        if not isinstance(viewed, ViewedEpisode):
            return False
        trajectory = viewed.trajectory
        value = trajectory.value
        if self.task is not None and not fnmatchcase(trajectory.task.id, self.task):
            return False
        if self.reward_below is not None and (value is None or value >= self.reward_below):
            return False
        if self.failed and value is not None:
            return False
        return self.episode is None or self.episode in (str(viewed.number), trajectory.episode)


@dataclass(slots=True)
class Totals:
    """What was counted while a file was read."""

    episodes: int = 0
    chosen: int = 0
    """Episodes that the selection contains."""
    scored: int = 0
    """Chosen episodes that have a reward."""
    rewards: float = 0.0
    """The sum of their rewards."""
    ends: Counter[str] = field(default_factory=Counter)
    """Chosen episodes by outcome."""
    broken: list[BrokenLine] = field(default_factory=list)
    """The first hundred broken lines."""
    broken_count: int = 0

    def count(self, viewed: ViewedEpisode | BrokenLine, selection: Selection) -> bool:
        """Count a line; return whether it is a chosen episode."""
        if isinstance(viewed, BrokenLine):
            self.broken_count += 1
            self.broken += [viewed] if len(self.broken) < 100 else []
            return False
        self.episodes += 1
        if viewed not in selection:
            return False
        self.chosen += 1
        self.ends[viewed.trajectory.outcome] += 1
        if (value := viewed.trajectory.value) is not None:
            self.scored += 1
            self.rewards += value
        return True

    def facts(self, shown: int) -> Iterator[str]:
        """Yield the facts about a file of which `shown` episodes are shown: counts, and the mean reward."""
        every = f"{self.episodes:,} episodes"
        yield every if self.chosen == self.episodes else f"{self.chosen:,} of {every} match"
        if self.scored:
            yield f"mean reward {self.rewards / self.scored:z.4g}"
        if self.chosen > self.scored:
            yield f"{self.chosen - self.scored:,} unscored"
        if shown < self.chosen:
            yield f"the first {shown:,} are shown"
        if self.broken_count:
            yield f"{self.broken_count:,} broken line{'s' if self.broken_count > 1 else ''}"


def read_lines(path: Path) -> Iterator[ViewedEpisode | BrokenLine]:
    """Yield the episodes of a file and its broken lines, in order. Empty lines are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file), start=1):
            if line is None:
                yield BrokenLine(number, f"longer than {LONGEST_LINE // 1024**2} MiB")
            elif line.strip():
                yield read_line(number, line)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long."""
    while line := file.readline(LONGEST_LINE):
        if line.endswith(b"\n") or len(line) < LONGEST_LINE:
            yield line
            continue
        while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        yield None


def read_line(number: int, line: bytes) -> ViewedEpisode | BrokenLine:
    """Return the episode of one line.

    Args:
        number: the number of the line, from 1.
        line: its bytes, with the line break if it has one.
    """
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = "an unfinished line" if not line.endswith(b"\n") else "not JSON"
        return BrokenLine(number, f"{what}: {error}")
    of_run = isinstance(value, dict) and isinstance(value.get("trajectory"), dict)
    try:
        trajectory = Trajectory.model_validate(value["trajectory"] if of_run else value)
    except ValidationError as error:
        return BrokenLine(number, describe_invalid_line(error))
    if not of_run:
        return ViewedEpisode(number, trajectory)
    step = value.get("step")
    return ViewedEpisode(number, trajectory, step if isinstance(step, int) else None, value.get("held_out") is True)
