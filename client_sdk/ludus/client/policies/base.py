"""The types of policies: the conversation that a policy sees, and the turn that it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import StepResult, TaskRow, ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, text_message
from ludus.protocol.trajectory import Stop, Usage

__all__ = ["Conversation", "PolicyResult", "Turn"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of a policy at one turn."""

    environment: str
    task: TaskRow
    seed: int
    """The episode's seed."""
    sample: int
    """The number of this episode among several of the same task."""
    turn: int
    """The number of turns so far, including this one."""
    items: Sequence[Item]
    """The prompt and everything since, oldest first."""
    tools: Sequence[ToolSpec]
    gradable: bool
    """Whether a final message is graded. If not, it only ends the episode."""
    results: tuple[StepResult, ...] = ()
    """The results of the last turn's calls, without rewards and metadata unless the policy sets `sees_rewards`."""
    place: str = ""
    """The place in the tree if this is a branch of a rollout, such as `3.0`; see `ludus.protocol.trajectory.Branch`. A
    policy that draws random numbers derives its seed also from it, so that branches differ."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The action of a policy in one turn. With calls, the episode goes on; without, the text is the final message."""

    items: tuple[Item, ...]
    """An assistant message, calls, or both."""
    usage: Usage | None = None
    stopped: Stop | None = None
    """Set if the policy cannot go on, such as a model whose context is full; `items` are then ignored."""
    raw: object = field(default=None, repr=False, compare=False)
    """The endpoint's whole reply as it came, for trainers that need more of it; trajectories do not keep it."""

    @property
    def calls(self) -> tuple[CallItem, ...]:
        """The calls, in order."""
        return tuple(item for item in self.items if isinstance(item, CallItem))

    @property
    def text(self) -> str:
        """The text of all messages in the turn."""
        return "\n".join(text_of(item.content) for item in self.items if isinstance(item, Message))


PolicyResult = Turn | Call | Answer | Sequence[Call | MalformedCall]
"""The values that a policy may return."""

EpisodePolicy = Callable[[Conversation], Awaitable[PolicyResult]]
"""An async callable that chooses actions."""


@runtime_checkable
class StatefulPolicy(Protocol):
    """A policy that keeps state through an episode."""

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the callable for one episode, given the first conversation. Its `aclose`, if any, runs at the end.

        For a branch of a rollout, the conversation has the turns before it. If the callable of the episode that it
        branches off from has a method `branch(place)`, that is called instead, before the next turn of that episode: it
        returns a callable for the branch with a copy of all that the policy has kept so far, such as sampled tokens.
        """
        ...


Policy = EpisodePolicy | StatefulPolicy
"""A policy."""


@dataclass(slots=True)
class CallIds:
    """Generates ids for calls that have none: `call_1`, `call_2`, …"""

    used: int = field(default=0)

    def next(self) -> str:
        """Return the next unused id."""
        self.used += 1
        return f"call_{self.used}"


def as_turn(result: PolicyResult, ids: CallIds) -> Turn:
    """Convert the value that a policy returned into a turn.

    Raises:
        TypeError: the value is not a `PolicyResult`.
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
    """Return the name of a policy for trajectories: its `name`, or the name of its function or class."""
    name = getattr(policy, "name", None) or getattr(policy, "__qualname__", None)
    return name if isinstance(name, str) else type(policy).__name__
