"""Trajectories: what was recorded of episodes, as JSON lines, and what they amount to.

One line is one episode. Its conversation has the shape of OpenAI's Responses items (`ludus.protocol.items`). The line
also holds what each step earned and cost, how the episode ended, and, separate from all rewards, what failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.protocol.episodes import NoiseKind, TaskRow
from ludus.protocol.items import Item, from_json
from ludus.protocol.lifecycle import EndReason, EpisodeStatus
from ludus.protocol.messages import describe_invalid
from ludus.protocol.rewards import Reward
from ludus.protocol.text import truncate

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
    """The episode's seed, as the server reported it."""
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
        """The token usage of all turns together; None when no turn reported any."""
        usages = [turn.usage for turn in self.turns if turn.usage is not None]
        return sum(usages[1:], usages[0]) if usages else None

    @property
    def outcome(self) -> str:
        """One word or two for tables: the end reason, with why the harness stopped it; or what failed."""
        if self.failure is not None:
            return f"{self.failure.kind} failure"
        reason = str(self.end_reason or "unknown")
        return f"{reason} ({self.stopped})" if self.stopped else reason


def describe_invalid_line(error: ValidationError) -> str:
    """Return why a line of a file is not a trajectory: the first field that is invalid, and what is wrong with it."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the line"
    return f"not a trajectory: {where}: {truncate(describe_invalid(first), 300)}"


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
