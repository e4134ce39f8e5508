"""Trajectories: what was recorded of episodes, as JSON lines, and what they amount to.

One line is one episode. Its conversation has the shape of OpenAI's Responses items (`ludus.client.items`); beside it
stand what each step earned and cost, how the episode ended, and, kept apart from all rewards, what failed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from ludus.client.items import Item, from_json
from ludus.protocol.episodes import NoiseKind, TaskRow
from ludus.protocol.errors import ParseError
from ludus.protocol.lifecycle import EndReason, EpisodeStatus
from ludus.protocol.rewards import Reward
from ludus.protocol.text import replace_surrogates

FailureKind = Literal["environment", "infrastructure", "policy"]
"""What broke: the environment's own code; something below or between; the policy's own code."""

Stop = Literal["final_message", "turn_limit", "time_limit", "context_limit"]
"""Why the harness stopped an episode that the environment had not ended."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Usage(_Record):
    """What a model endpoint was asked, in tokens as the endpoint counts them."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class StepRecord(_Record):
    """One tool call."""

    step: int
    """Its number in the episode; 0 for a call that never reached the environment because it was malformed."""
    call_id: str
    """The `function_call` item it belongs to."""
    error: str | None = None
    """`unknown_tool`, `invalid_arguments` or `refused`, where the policy made a mistake; `unavailable` by noise."""
    noise: NoiseKind | None = None
    """How the environment disturbed it on purpose: no failure, and nothing that the policy did."""
    reward: Reward | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The author's remarks."""
    seconds: float
    """From the call to its outcome, the wire included."""


class TurnRecord(_Record):
    """One turn of the policy and the calls it made."""

    items: int
    """How many items the conversation had after it."""
    policy_seconds: float
    environment_seconds: float
    usage: Usage | None = None


class Failure(_Record):
    """Something that broke. It says nothing about the policy's reward."""

    kind: FailureKind
    error: str
    """The name of the exception's class."""
    message: str
    incident: str | None = None
    """The id under which the server logged the cause."""
    attempt: int
    """In which attempt at this episode, counted from 1."""
    episode: str | None = None


class Trajectory(_Record):
    """Everything recorded of one episode."""

    format: Literal["ludus.trajectory/0.1"] = "ludus.trajectory/0.1"
    environment: str
    environment_version: str = ""
    split: str
    task: TaskRow
    sample: int = 0
    """Which of several episodes of this task, counted from 0."""
    policy: str
    seed: int | None = None
    """The episode's seed, as the server told it."""
    episode: str | None = None
    group: str | None = None
    status: EpisodeStatus | None = None
    """Null when no episode was started, or the connection was lost before its end was known."""
    end_reason: EndReason | None = None
    stopped: Stop | None = None
    """Why the harness closed an episode that still ran: it is truncated, and its reward is what it had earned."""
    reward: Reward | None = None
    """The total. Null when there is none: the episode failed, or the credential may not read rewards."""
    grade: Reward | None = None
    """What the final message earned, which `reward` contains."""
    items: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    """`name`, `description` and `parameters` of each tool the policy was given."""
    steps: tuple[StepRecord, ...] = ()
    turns: tuple[TurnRecord, ...] = ()
    started_at: float
    """Unix time, seconds."""
    seconds: float
    attempts: int = 1
    failure: Failure | None = None
    """Why there is no reward, when the last attempt failed."""
    incidents: tuple[Failure, ...] = ()
    """The failures of earlier attempts."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What this trajectory is of: environment, split, task and sample."""
        return self.environment, self.split, self.task.id, self.sample

    @property
    def scored(self) -> bool:
        """Whether it counts in means: nothing failed, and there is a reward with a value."""
        return self.failure is None and self.reward is not None and self.reward.valid

    @property
    def value(self) -> float | None:
        """The total reward's value, or None when unscored."""
        return self.reward.value if self.scored and self.reward is not None else None

    @property
    def conversation(self) -> list[Item]:
        """The items as values."""
        return from_json(self.items)

    @property
    def usage(self) -> Usage | None:
        """All turns' token usage together; None when no turn told any."""
        told = [turn.usage for turn in self.turns if turn.usage is not None]
        return sum(told[1:], told[0]) if told else None

    @property
    def outcome(self) -> str:
        """One word or two for tables: the end reason, with why the harness stopped it; or what failed."""
        if self.failure is not None:
            return f"{self.failure.kind} failure"
        reason = str(self.end_reason or "unknown")
        return f"{reason} ({self.stopped})" if self.stopped else reason


class TrajectoryWriter:
    """Appends trajectories to a file, each line whole and on disk before `write` returns. Usable from threads.

    With `resume`, the scored trajectories already there are kept and listed in `done`, a line that a crash tore is
    cut off, and failed ones may be tried again (readers take the last line of a key).

    Raises:
        FileExistsError: the file holds something already, and neither `resume` nor `overwrite` was asked for.
    """

    def __init__(self, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.done: set[tuple[str, str, str, int]] = set()
        held = self.path.exists() and self.path.stat().st_size > 0
        if held and not (resume or overwrite):
            raise FileExistsError(f"{self.path} exists: resume it, overwrite it, or name another file")
        if held and resume:
            self.done = {trajectory.key for trajectory in read_trajectories(self.path) if trajectory.scored}
            _cut_torn_line(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if resume else os.O_TRUNC)
        self._file = os.open(self.path, mode, 0o644)
        self._lock = threading.Lock()

    def write(self, trajectory: Trajectory) -> None:
        """Append one line."""
        try:
            line = trajectory.model_dump_json().encode() + b"\n"
        except ValueError:  # a policy, or a server of another kind, gave text that UTF-8 does not have
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
    """The trajectories of a file, in its order. A last line that a crash tore is left out.

    Raises:
        ParseError: a whole line is no trajectory; the message names it.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Trajectory.model_validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"]) or "the line"
                raise ParseError(f"{path}, line {number}: not a trajectory: {where}: {first['msg']}") from None


def latest(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The last trajectory of each key, in order of first appearance: what a resumed file amounts to."""
    by_key: dict[tuple[str, str, str, int], Trajectory] = {}
    for trajectory in trajectories:
        by_key[trajectory.key] = trajectory
    return list(by_key.values())


def tool_records(tools: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """`ToolSpec`s as trajectories hold them: with the tools' own names and schemas."""
    return tuple(
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.input_schema} for t in tools
    )


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
