"""The index of a file of trajectories: where each episode begins, and what a list shows of it.

With it, a page reads one line of a file and not the whole file. While an index is made, one line is in memory, and a
line with too many JSON values is reported as broken before it is parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.protocol.bounds import check_json
from ludus.protocol.errors import NotFound, PayloadTooLarge
from ludus.protocol.trajectory import Trajectory, describe_invalid_line
from ludus.viewing.conversation import reward_text
from ludus.viewing.reading import BrokenLine, ViewedEpisode, read_line

LINES: Final = 10_000
"""The most lines of a file."""

LINE_VALUES: Final = 500_000
"""The most JSON values of a line."""


class EpisodeLine(BaseModel):
    """One line of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    """The number of the line, from 1."""
    start: int
    """Where it begins, in bytes."""
    end: int
    problem: str = ""
    """Why it is not an episode; the other fields are then empty."""
    environment: str = ""
    task: str = ""
    policy: str = ""
    reward: str = ""
    outcome: str = ""
    turns: int = 0
    episode: str = ""
    parent: str = ""
    """The episode that it was forked from; empty if it was not forked."""
    place: str = ""
    """Its place in the tree of forks."""
    attempt: str = ""
    """The task and the number of the sample, as `attempt_of` returns them."""


class RolloutFile(BaseModel):
    """A file with its index."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str
    size: int
    kept_at: float
    """Unix time, seconds."""
    lines: tuple[EpisodeLine, ...]

    def line(self, number: int) -> EpisodeLine:
        """Return a line.

        Raises:
            NotFound: the file has no such episode.
        """
        found = next((one for one in self.lines if one.number == number and not one.problem), None)
        if found is None:
            raise NotFound(f"the file has no episode in line {number}")
        return found

    def attempts(self) -> dict[str, int]:
        """Return the line of each attempt at a task: the last one, without forks."""
        return {line.attempt: line.number for line in self.lines if line.attempt and not line.parent}


def attempt_of(task: str, sample: int) -> str:
    """Return the name of an attempt at a task, which is short for every task."""
    return f"{sample}:{hashlib.sha256(task.encode('utf-8', 'replace')).hexdigest()[:24]}"


def index_of(file: IO[bytes]) -> Iterator[EpisodeLine]:
    """Yield what the index has of each line that is not empty.

    Args:
        file: the file, at its beginning.

    Raises:
        PayloadTooLarge: the file has more than `LINES` lines.
        OSError: the file cannot be read.
    """
    start = count = 0
    for number, line in enumerate(file, start=1):
        end = start + len(line)
        if line.strip():
            count += 1
            if count > LINES:
                raise PayloadTooLarge(f"the file has more than {LINES:,} lines; send a part of it", limit="rollouts")
            yield _described(_read(number, line), start, end)
        start = end


def read_episode(file: IO[bytes], line: EpisodeLine) -> Trajectory:
    """Return the episode of a line.

    Raises:
        NotFound: the line is not an episode.
    """
    file.seek(line.start)
    return parse_episode(file.read(line.end - line.start), line)


def parse_episode(data: bytes, line: EpisodeLine) -> Trajectory:
    """Return the episode of the bytes of a line.

    Raises:
        NotFound: the line is not an episode.
    """
    try:
        value: Any = json.loads(data)
        of_run = isinstance(value, dict) and isinstance(value.get("trajectory"), dict)
        return Trajectory.model_validate(value["trajectory"] if of_run else value)
    except ValidationError as error:
        raise NotFound(describe_invalid_line(error)) from None
    except (ValueError, RecursionError):
        raise NotFound(f"line {line.number} of the file is not an episode") from None


def first_problem(lines: Sequence[EpisodeLine]) -> EpisodeLine | None:
    """Return the first line that is not an episode."""
    return next((line for line in lines if line.problem), None)


def _read(number: int, line: bytes) -> ViewedEpisode | BrokenLine:
    try:
        check_json(line, LINE_VALUES)
    except PayloadTooLarge:
        return BrokenLine(number, f"more than {LINE_VALUES:,} JSON values")
    return read_line(number, line)


def _described(viewed: ViewedEpisode | BrokenLine, start: int, end: int) -> EpisodeLine:
    if isinstance(viewed, BrokenLine):
        return EpisodeLine(number=viewed.number, start=start, end=end, problem=viewed.problem[:200])
    one = viewed.trajectory
    return EpisodeLine(
        number=viewed.number, start=start, end=end, environment=one.environment[:100], task=one.task.id[:100],
        policy=one.policy[:60], reward=reward_text(one)[:80], outcome=one.outcome[:60], turns=len(one.turns),
        episode=(one.episode or "")[:100], parent=one.branch.parent[:100] if one.branch is not None else "",
        place=one.branch.place[:40] if one.branch is not None else "", attempt=attempt_of(one.task.id, one.sample),
    )  # fmt: skip
