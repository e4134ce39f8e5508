"""What is scored: the final answer, the task, and everything that the policy did on its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ludus.protocol.content import text_of
from ludus.protocol.episodes import Candidate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TakenStep:
    """One tool call and what came of it."""

    number: int
    """From 1."""
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """As the tool got them, in JSON: converted to the types it names, defaults included. Those that do not fit are as
    they were given."""
    text: str = ""
    """The observation's text, as the tool gave it: without noise."""
    error: str | None = None
    """`unknown_tool`, `invalid_arguments` or `refused`, where the policy made a mistake."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakenTurn:
    """What the policy did before it looked again: its tool calls, and what it said beside them."""

    number: int | None = None
    """As the client counts, from 1; None where it does not mark turns, and each call is a turn of its own."""
    text: str = ""
    steps: tuple[TakenStep, ...] = ()
    """Its calls, at least one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One policy's attempt at one task, as checks see it."""

    answer: str = ""
    """The final message; empty where the episode ended without one."""
    task: Any = None
    """The task with its private fields."""
    steps: tuple[TakenStep, ...] = ()
    """The tool calls, in the order of their numbers, without those that noise kept from their tools."""
    prompt: str = ""
    """The text of what the policy was told first."""
    environment: Any = None
    """The environment's instance; None where stored trajectories are scored."""
    policy: str | None = None
    """The policy's model, where it is known."""
    turn: TakenTurn | None = None
    """The turn that is judged, where one turn is; `steps` then end with it."""


Of: TypeAlias = T | Callable[[Attempt], T]
"""A value, or how to find it for an attempt."""


def resolve(of: Any, attempt: Attempt) -> Any:
    """The value that an `Of` stands for."""
    return of(attempt) if callable(of) else of


@dataclass(frozen=True, slots=True)
class FromTask:
    """Finds a field of the task: `FromTask("answer")`."""

    name: str

    def __call__(self, attempt: Attempt) -> Any:
        """Its value."""
        return getattr(attempt.task, self.name)


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """Finds an attribute of the environment's instance, such as the path of its database."""

    name: str

    def __call__(self, attempt: Attempt) -> Any:
        """Its value."""
        return getattr(attempt.environment, self.name)


def answer_of(attempt: Attempt) -> str:
    """The final answer."""
    return attempt.answer


def attempt_of(candidate: Candidate, task: Any) -> Attempt:
    """A candidate of a group as an attempt: its answer is its last assistant message.

    `metadata["model"]`, where the client names it, is the policy.
    """
    said = [text_of(message.content) for message in candidate.messages if message.role == "assistant"]
    told = [text_of(message.content) for message in candidate.messages if message.role != "assistant"]
    policy = candidate.metadata.get("model")
    return Attempt(
        answer=said[-1] if said else "",
        task=task,
        prompt="\n".join(told),
        policy=policy if isinstance(policy, str) else None,
    )
