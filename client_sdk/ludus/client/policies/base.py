"""What a policy sees and what it does in its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import StepResult, TaskRow, ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, text_message
from ludus.protocol.trajectory import Stop, Usage


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a policy knows when it is its turn."""

    environment: str
    task: TaskRow
    seed: int
    """The episode's seed."""
    sample: int
    """Which of several episodes of the task."""
    turn: int
    """Its turns so far, this one included."""
    items: Sequence[Item]
    """The prompt and everything since, oldest first."""
    tools: Sequence[ToolSpec]
    gradable: bool
    """Whether a final message is graded. Where not, it just ends the episode."""
    results: tuple[StepResult, ...] = ()
    """The outcomes of the last turn's calls; without rewards and metadata, unless the policy `sees_rewards`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a policy did. With calls, the episode goes on; without, the text is its final message."""

    items: tuple[Item, ...]
    """An assistant message, calls, or both."""
    usage: Usage | None = None
    stopped: Stop | None = None
    """Set when the policy cannot go on, such as a model whose context is full; `items` then count for nothing."""

    @property
    def calls(self) -> tuple[CallItem, ...]:
        """The calls, in order."""
        return tuple(item for item in self.items if isinstance(item, CallItem))

    @property
    def text(self) -> str:
        """What was said."""
        return "\n".join(text_of(item.content) for item in self.items if isinstance(item, Message))


PolicyResult = Turn | Call | Answer | Sequence[Call | MalformedCall]
"""What a policy may return."""

EpisodePolicy = Callable[[Conversation], Awaitable[PolicyResult]]
"""An async callable that chooses."""


@runtime_checkable
class StatefulPolicy(Protocol):
    """A policy that keeps state through an episode."""

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """The callable for one episode, given the conversation as it begins. Its `aclose`, if any, runs at the end."""
        ...


Policy = EpisodePolicy | StatefulPolicy
"""A policy."""


@dataclass(slots=True)
class CallIds:
    """Names for calls whose policy gave none: `call_1`, `call_2`, …"""

    used: int = field(default=0)

    def next(self) -> str:
        """A name not given before."""
        self.used += 1
        return f"call_{self.used}"


def as_turn(result: PolicyResult, ids: CallIds) -> Turn:
    """What a policy returned, as a turn.

    Raises:
        TypeError: a policy may not return that.
    """
    if isinstance(result, Turn):
        return result
    if isinstance(result, Answer):
        return Turn((text_message("assistant", result.text),))
    if isinstance(result, Call | MalformedCall):
        return Turn((CallItem(ids.next(), result),))
    if isinstance(result, Sequence) and result and all(isinstance(call, Call | MalformedCall) for call in result):
        return Turn(tuple(CallItem(ids.next(), call) for call in result))
    raise TypeError(
        f"a policy returned {type(result).__name__}; return a Call, a non-empty list of Calls, an Answer or a Turn"
    )


def policy_name(policy: object) -> str:
    """What trajectories call a policy: its `name`, or that of its function or class."""
    name = getattr(policy, "name", None) or getattr(policy, "__qualname__", None)
    return name if isinstance(name, str) else type(policy).__name__
