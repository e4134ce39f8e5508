"""The attempt that is scored: the final answer, the task, and everything that the policy did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ludus.protocol.content import text_of
from ludus.protocol.episodes import Candidate

__all__ = ["Selector", "answer_of", "resolve"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TakenStep:
    """One tool call and its outcome."""

    number: int
    """The number of the step, from 1."""
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """As the tool got them, in JSON: converted to the declared types, defaults included. Invalid arguments are as they
    were given."""
    text: str = ""
    """The observation's text as the tool returned it, without noise."""
    error: str | None = None
    """`unknown_tool`, `invalid_arguments` or `refused`, if the policy made a mistake."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakenTurn:
    """One turn: the tool calls that the policy made together, and the text that it wrote with them."""

    number: int | None = None
    """As the client counts, from 1; None if it does not mark turns, so that each call is a turn of its own."""
    text: str = ""
    steps: tuple[TakenStep, ...] = ()
    """Its calls, at least one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One policy's attempt at one task, as checks see it."""

    answer: str = ""
    """The final message; empty if the episode ended without one."""
    task: Any = None
    """The task with its private fields."""
    steps: tuple[TakenStep, ...] = ()
    """The tool calls, in the order of their numbers, except those that noise kept from their tools."""
    prompt: str = ""
    """The text of the initial prompt."""
    environment: Any = None
    """The environment's instance; None if stored trajectories are scored without replay."""
    policy: str | None = None
    """The policy's model, if it is known."""
    turn: TakenTurn | None = None
    """The turn to judge, if a single turn is judged; `steps` then end with it."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)
    """Held while a method of `environment` runs in a thread; all attempts of one episode share it."""
    in_its_thread: Callable[..., Awaitable[Any]] | None = field(default=None, repr=False, compare=False)
    """Runs a method of `environment` in the thread of its other methods; None if any thread will do."""


Selector: TypeAlias = T | Callable[[Attempt], T]
"""A value, or a function that finds it for an attempt."""


def resolve(of: Any, attempt: Attempt) -> Any:
    """Return the value of a `Selector` for an attempt."""
    return of(attempt) if callable(of) else of


@dataclass(frozen=True, slots=True)
class FromTask:
    """Finds a field of the task: `FromTask("answer")`."""

    name: str

    def __call__(self, attempt: Attempt) -> Any:
        """Return its value."""
        return getattr(attempt.task, self.name)


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """Finds an attribute of the environment's instance, such as the path of its database."""

    name: str

    def __call__(self, attempt: Attempt) -> Any:
        """Return its value."""
        return getattr(attempt.environment, self.name)


def answer_of(attempt: Attempt) -> str:
    """Return the final answer."""
    return attempt.answer


def attempt_of(candidate: Candidate, task: Any) -> Attempt:
    """Return a group's candidate as an attempt: its answer is its last assistant message.

    The policy is `metadata["model"]`, if the client names it.
    """
    replies = [text_of(message.content) for message in candidate.messages if message.role == "assistant"]
    requests = [text_of(message.content) for message in candidate.messages if message.role != "assistant"]
    policy = candidate.metadata.get("model")
    return Attempt(
        answer=replies[-1] if replies else "",
        task=task,
        prompt="\n".join(requests),
        policy=policy if isinstance(policy, str) else None,
    )
