"""The rubric of an environment class, made from what it declares and from its marked methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Reward
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.methods import MethodCheck, methods_of
from ludus.server.rewards.nodes import Node, WeightedSum, snake_case
from ludus.server.rewards.rubric import Rubric

__all__ = ["Declared"]


class GroupScorer(Protocol):
    """Scores attempts at one task against each other."""

    async def score(self, attempts: Sequence[Attempt]) -> list[Reward]:
        """Return one reward for each attempt, in their order."""
        ...


Declared = Rubric | Node | Sequence[Node]
"""What an environment may declare as its rubric."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The rubrics and reward methods of an environment class."""

    rubric: Rubric | None
    """What the class declares as its `rubric`."""
    methods: tuple[MethodCheck, ...]
    """The `@reward` and `@metric` methods for whole episodes."""
    end: Rubric | None
    """The rubric for whole episodes: `rubric` and `methods` together."""
    step: Rubric | None
    """The rubric for single tool calls."""
    turn: Rubric | None
    """The rubric for turns."""


def bind(cls: Any) -> Binding | None:
    """Return the binding of a class; None if it declares no rewards.

    Raises:
        AuthoringError: its `rubric` is not a rubric, or two checks have the same name.
    """
    declared: Any = cls.rubric
    ends, steps, turns = methods_of(cls, "end"), methods_of(cls, "step"), methods_of(cls, "turn")
    if declared is None and not (ends or steps or turns):
        return None
    name = cls.__dict__.get("name") or snake_case(cls.__name__)
    rubric: Rubric | None
    if declared is None or isinstance(declared, Rubric):
        rubric = declared
    elif isinstance(declared, Node) or (
        isinstance(declared, Sequence) and declared and all(isinstance(node, Node) for node in declared)
    ):
        rubric = Rubric(declared, name=name, version=cls.version)
    else:
        raise AuthoringError(
            f"{cls.__qualname__}.rubric is {type(declared).__name__}; give a Rubric, a check, or a list of checks"
        )
    end = _joined(rubric, ends, name, cls.version) if ends else rubric
    step = _joined(None, steps, name, cls.version) if steps else None
    turn = _joined(None, turns, name, cls.version) if turns else None
    return Binding(rubric, ends, end, step, turn)


def _joined(base: Rubric | None, methods: Sequence[MethodCheck], name: str, version: str) -> Rubric:
    nodes: list[Node] = [*((base.root,) if base is not None else ()), *methods]
    counts = 0.0 if all(node.weight == 0.0 for node in nodes) else 1.0
    joined = WeightedSum(tuple(nodes), weight=counts)
    return Rubric(joined, name=base.name if base else name, version=base.version if base else version)


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """What the environment's code needs to score the attempt of its episode."""

    binding: Binding
    attempt: Attempt
    offload: Callable[..., Awaitable[Any]]


SCORING: Final[ContextVar[ScoringContext | None]] = ContextVar("ludus_scoring", default=None)
"""The scoring that the current task does; set by the runtime while a step, a turn or an episode is judged."""
