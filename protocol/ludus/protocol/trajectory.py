"""Trajectories: records of episodes, as JSON lines.

One line is one episode. Its conversation has the shape of OpenAI's Responses items (`ludus.protocol.items`). The line
also holds what each step earned and cost, how the episode ended, and, separate from all rewards, what failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.protocol.episodes import NoiseKind, TaskRow
from ludus.protocol.errors import EnvironmentFailed, InfrastructureFailed, LudusError, PolicyFailed
from ludus.protocol.items import Item, from_json
from ludus.protocol.lifecycle import EndReason, EpisodeStatus
from ludus.protocol.messages import describe_invalid
from ludus.protocol.rewards import Reward
from ludus.protocol.text import truncate

__all__ = ["Failure", "Stop", "Trajectory", "TurnRecord", "describe_invalid_line"]


FailureKind = Literal["environment", "infrastructure", "policy"]
"""The part that broke: the environment's own code; the infrastructure; the policy's own code."""

_ERRORS: Final[Mapping[FailureKind, type[LudusError]]] = {
    "environment": EnvironmentFailed, "infrastructure": InfrastructureFailed, "policy": PolicyFailed,
}  # fmt: skip

Stop = Literal["final_message", "turn_limit", "time_limit", "context_limit"]
"""Why the harness stopped an episode that the environment had not ended."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Usage(_Record):
    """The requests to a model endpoint and their tokens, as the endpoint counts them."""

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
    """Its number in the episode; 0 for a malformed call, which never reached the environment."""
    call_id: str
    """The `function_call` item it belongs to."""
    error: str | None = None
    """The policy's mistake (`unknown_tool`, `invalid_arguments` or `refused`), or `unavailable` for noise."""
    noise: NoiseKind | None = None
    """The kind of noise that disturbed it: neither a failure nor a mistake of the policy."""
    reward: Reward | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The author's remarks."""
    seconds: float
    """Seconds from the call to its result, including the transport."""


class TurnRecord(_Record):
    """One turn of the policy and the calls it made."""

    items: int
    """The number of items in the conversation after the turn."""
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
    """The number of the attempt at this episode, counted from 1."""
    episode: str | None = None

    def as_error(self) -> LudusError:
        """Return the failure as an exception: `EnvironmentFailed`, `InfrastructureFailed` or `PolicyFailed`."""
        data = {"episode": self.episode, "incident": self.incident}
        given = {name: value for name, value in data.items() if value is not None}
        return _ERRORS[self.kind](f"{self.error}: {self.message}", **given)


class Branch(_Record):
    """Where an episode branched off from another one, whose state and conversation it continued."""

    parent: str
    """The id of the episode that it was forked from."""
    step: int
    """The number of steps that it shares with its parent; 0 is the start."""
    turn: int
    """The number of turns that it shares with its parent."""
    place: str
    """Its place in the tree: `3.0` is the first branch after three turns of the rollout's trunk, and `3.0/5.1` is the
    second branch after five turns of that one."""


class Trajectory(_Record):
    """The record of one episode."""

    format: Literal["ludus.trajectory/0.1"] = "ludus.trajectory/0.1"
    environment: str
    environment_version: str = ""
    split: str
    task: TaskRow
    sample: int = 0
    """The number of this episode among several of its task, counted from 0."""
    policy: str
    seed: int | None = None
    """The episode's seed, as the server reported it."""
    episode: str | None = None
    group: str | None = None
    branch: Branch | None = None
    """Where it branched off; null for an episode that was played from its start. The records of a branch contain the
    beginning that it shares with its parent, without the time and the tokens that it took there."""
    status: EpisodeStatus | None = None
    """Null if no episode was started, or if the connection was lost before the client knew the end."""
    end_reason: EndReason | None = None
    stopped: Stop | None = None
    """Why the harness closed a running episode; it is then truncated and keeps what it has earned."""
    reward: Reward | None = None
    """The total; null if the episode failed, or if the credential may not read rewards."""
    grade: Reward | None = None
    """The reward of the final message, which is part of `reward`."""
    items: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    """The `name`, `description` and `parameters` of each tool of the policy."""
    steps: tuple[StepRecord, ...] = ()
    turns: tuple[TurnRecord, ...] = ()
    started_at: float
    """Unix time, seconds."""
    seconds: float
    attempts: int = 1
    failure: Failure | None = None
    """Why the last attempt failed; null if it did not."""
    incidents: tuple[Failure, ...] = ()
    """The failures of earlier attempts."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The environment, split, task and sample of this trajectory."""
        return self.environment, self.split, self.task.id, self.sample

    @property
    def scored(self) -> bool:
        """Whether it counts in means: nothing failed, and the reward has a value."""
        return self.failure is None and self.reward is not None and self.reward.value is not None

    @property
    def value(self) -> float | None:
        """The value of the total reward; None if unscored."""
        return self.reward.value if self.scored and self.reward is not None else None

    def raise_for_failure(self) -> None:
        """Raise an exception if something broke.

        Raises:
            EnvironmentFailed, InfrastructureFailed, PolicyFailed: by the failure's kind.
        """
        if self.failure is not None:
            raise self.failure.as_error()

    @property
    def conversation(self) -> list[Item]:
        """The items as values."""
        return from_json(self.items)

    @property
    def usage(self) -> Usage | None:
        """The token usage of all turns together; None if no turn reported any."""
        usages = [turn.usage for turn in self.turns if turn.usage is not None]
        return sum(usages[1:], usages[0]) if usages else None

    @property
    def outcome(self) -> str:
        """A short text for tables: the end reason, with the reason of a stop by the harness; or what failed."""
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
    """Return the last trajectory of each key, in order of first appearance, which is the content of a resumed file.
    Each branch of a rollout counts as one of its own."""
    by_key: dict[tuple[tuple[str, str, str, int], str], Trajectory] = {}
    for trajectory in trajectories:
        by_key[trajectory.key, trajectory.branch.place if trajectory.branch else ""] = trajectory
    return list(by_key.values())


def tool_records(tools: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return tools in the form that trajectories hold, with the tools' own names and schemas."""
    return tuple(
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.input_schema} for t in tools
    )
