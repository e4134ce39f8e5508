"""The tree of a rubric: checks are its leaves; groups, gates, sequences and caps combine them.

An item that cannot be judged is *unscored*. Its parents are then unscored too, up to the whole rubric, unless the item
is `optional` or only a metric (weight 0): such an item is left out of the mean, and the others share its weight. An
item that could not be judged never counts as 0.

Every verdict is linear in the checks below it: its value is the sum of the checks' values times their effective
weights. Non-linear operations (a cap, a floor) appear as parts of their own, so that the sum always holds.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ludus.common.incidents import new_incident
from ludus.protocol.errors import AuthoringError
from ludus.sandbox.core.errors import CAUSED_INSIDE
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.verdict import Verdict, read_verdict

__all__ = ["Offload", "settle"]


log = logging.getLogger("ludus.server.rewards")

Offload = Callable[..., Awaitable[Any]]
"""A function that calls another one, which may block, outside the event loop."""


_READY = frozenset({Verdict, float, int})
"""The types that checks mostly return. Testing whether a result is awaitable takes longer than most checks."""


Pending = Verdict | Coroutine[Any, Any, Verdict]
"""A verdict, or a coroutine that returns one."""

Judged = Verdict | float | bool | Awaitable[Verdict | float | bool]
"""What a check may return: a verdict, or only its value, of which True is 1 and False is 0."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node of the tree."""

    name: str = ""
    """The name of its components. A check without one is named after its class or function; a group without one adds
    nothing to the names of its children."""
    weight: float = 1.0
    """How much it counts relative to its siblings; 0 for a metric that is only reported."""
    optional: bool = False
    """Whether it is left out of the mean if it cannot be judged. Otherwise the whole rubric is then unscored."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise AuthoringError(f"{self!r}: the weight must be a finite number, not {self.weight}")
        if "/" in self.name:
            raise AuthoringError(f"the name {self.name!r} holds a '/', which separates groups from what they hold")

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Start to evaluate: work that needs no waiting is done at once. A failing check never raises an error here."""
        raise NotImplementedError

    def names(self) -> Iterator[str]:
        """Yield the names of the components that it can give."""
        raise NotImplementedError

    @property
    def may_be_missing(self) -> bool:
        """Whether the rubric has a value without it."""
        return self.optional or self.weight == 0.0


@dataclass(frozen=True)
class Check(Node):
    """A leaf of the tree. Subclasses implement `check`, as `def` or `async def`."""

    blocking: ClassVar[bool] = False
    """Whether `check` may block and therefore runs in a thread."""

    def check(self, attempt: Attempt) -> Judged:
        """Return the verdict, or only its value.

        An error that what runs in the episode's sandbox can cause makes the value 0; see `CAUSED_INSIDE`. Any other
        error leaves the item unscored and is logged.
        """
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The name, or one made from the class."""
        return self.name or snake_case(type(self).__name__)

    def names(self) -> Iterator[str]:
        """Yield its own name."""
        yield self.label

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate the check."""
        if self.blocking:
            return self._wait(offload(self.check, attempt))
        try:
            judged = self.check(attempt)
            if type(judged) is bool:
                return Verdict(1.0 if judged else 0.0, "", self.label)
            if type(judged) not in _READY and inspect.isawaitable(judged):
                return self._wait(judged)
            return read_verdict(judged, self.label)
        except Exception as error:
            return self._broken(error)

    async def _wait(self, pending: Awaitable[Any]) -> Verdict:
        try:
            judged = await pending
            if inspect.isawaitable(judged):
                judged = await judged
            return read_verdict(judged, self.label)
        except Exception as error:
            return self._broken(error)

    def _broken(self, error: Exception) -> Verdict:
        if isinstance(error, CAUSED_INSIDE):  # such as a file that the agent did not write
            return Verdict(0.0, str(error), self.label)
        # Only the type is reported: the text of an error may hold private fields, and evidence leaves the server.
        incident = new_incident()
        log.error("check %r raised (incident %s)", self.label, incident, exc_info=error, extra={"incident": incident})
        return Verdict(None, f"the check raised {type(error).__name__} (incident {incident})", self.label)


@dataclass(frozen=True)
class Penalty(Node):
    """A deduction from its group: its child's value times `amount`. It has no part in the weights."""

    child: Node
    amount: float = 1.0

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate the child."""
        return self.child.evaluate(attempt, offload)

    def names(self) -> Iterator[str]:
        """Yield the names of the child."""
        return self.child.names()

    @property
    def may_be_missing(self) -> bool:
        """Whether the rubric has a value without it."""
        return self.optional or self.child.optional

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.amount >= 0 or not math.isfinite(self.amount):
            raise AuthoringError(f"a penalty's amount must be 0 or more, not {self.amount}: it is taken away anyway")


@dataclass(frozen=True)
class WeightedSum(Node):
    """The sum of its children's values times their weights, which may be negative."""

    children: Sequence[Node]
    floor: float | None = None
    """The lowest value; None for no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.children:
            raise AuthoringError(f"{self.where} holds nothing; give it at least one check")
        if all(child.weight == 0.0 or isinstance(child, Penalty) for child in self.children) and self.weight != 0.0:
            raise AuthoringError(
                f"{self.where} holds only metrics and penalties, so it has no value; give one check a weight"
            )

    @property
    def where(self) -> str:
        """Its description in error messages."""
        return f"group {self.name!r}" if self.name else f"an unnamed {type(self).__name__}"

    def names(self) -> Iterator[str]:
        """Yield the names of its children, prefixed with its own name."""
        for child in self.children:
            for name in child.names():
                yield f"{self.name}/{name}" if self.name else name

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate all children concurrently."""
        pending = [child.evaluate(attempt, offload) for child in self.children]
        for evaluation in pending:
            if type(evaluation) is not Verdict:
                return self._wait(pending)
        return self._combine(pending)  # type: ignore[arg-type]

    async def _wait(self, pending: Sequence[Pending]) -> Verdict:
        return self._combine(await settled(pending))

    def _combine(self, outcomes: Sequence[Verdict]) -> Verdict:
        parts: list[tuple[Verdict, float]] = []
        broken: Verdict | None = None
        share = self._share(outcomes)
        for child, outcome in zip(self.children, outcomes, strict=True):
            if outcome.value is None and not child.may_be_missing and broken is None:
                broken = outcome
            factor = -child.amount if isinstance(child, Penalty) else child.weight * share
            parts.append((outcome, factor if outcome.value is not None else 0.0))
        if broken is not None:
            cause = f"{broken.name}: {broken.evidence}" if broken.name else broken.evidence
            return Verdict(None, cause, self.name, parts)
        counted = [outcome.value * factor for outcome, factor in parts if outcome.value is not None]
        if not counted or (share == 0.0 and self.weight != 0.0):
            return Verdict(None, "none of its checks could be judged", self.name, parts)
        try:
            value = math.fsum(counted)
        except (OverflowError, ValueError):  # the sum overflows, or there are infinities of both signs
            value = math.inf
        if not math.isfinite(value):
            return Verdict(None, "the sum of its checks is no finite number", self.name, parts)
        if self.floor is not None and value < self.floor:
            parts.append((Verdict(self.floor - value, f"not below {self.floor:g}", "floor"), 1.0))
            value = self.floor
        return Verdict(value, "", self.name, parts)

    def _share(self, outcomes: Sequence[Verdict]) -> float:
        scored = any(
            outcome.value is not None and child.weight and not isinstance(child, Penalty)
            for child, outcome in zip(self.children, outcomes, strict=True)
        )
        return 1.0 if scored else 0.0


@dataclass(frozen=True)
class Weighted(WeightedSum):
    """The weighted mean of its children's values, minus its penalties, and not below `floor`."""

    floor: float | None = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for child in self.children:
            if child.weight < 0:
                raise AuthoringError(
                    f"{self.where}: {next(child.names())!r} has the weight {child.weight:g}; wrap what takes away in "
                    "Penalty, or use WeightedSum"
                )

    def _share(self, outcomes: Sequence[Verdict]) -> float:
        weights = math.fsum(
            child.weight
            for child, outcome in zip(self.children, outcomes, strict=True)
            if outcome.value is not None and not isinstance(child, Penalty)
        )
        return 1.0 / weights if weights else 0.0


@dataclass(frozen=True)
class Gate(Node):
    """The value of `then` if `condition` reaches `at_least`; if not, `otherwise`, and `then` is not evaluated."""

    condition: Node
    then: Node
    at_least: float = 1.0
    otherwise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _no_penalties(self, (self.condition, self.then))

    def names(self) -> Iterator[str]:
        """Yield the names of the condition and of `then`."""
        for child in (self.condition, self.then):
            for name in child.names():
                yield f"{self.name}/{name}" if self.name else name

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Evaluate the condition, and `then` if the condition holds."""
        condition = await settle(self.condition.evaluate(attempt, offload))
        if condition.value is None:
            return Verdict(None, f"the gate's condition: {condition.evidence}", self.name, [(condition, 0.0)])
        if condition.value < self.at_least:
            cause = f"closed: {condition.name or 'the condition'} is {condition.value:g}, below {self.at_least:g}"
            shut = Verdict(self.otherwise, cause, _one_name(self.then))
            return Verdict(self.otherwise, cause, self.name, [(condition, 0.0), (shut, 1.0)])
        then = await settle(self.then.evaluate(attempt, offload))
        return Verdict(then.value, then.evidence, self.name, [(condition, 0.0), (then, 1.0)])


@dataclass(frozen=True)
class Sequential(Weighted):
    """The weighted mean of children evaluated one after another; after one below `at_least`, the rest count 0."""

    at_least: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _no_penalties(self, self.children)

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Evaluate the children in order until one fails."""
        outcomes: list[Verdict] = []
        failed = ""
        for child in self.children:
            if failed:
                outcomes.append(Verdict(0.0, f"not reached: {failed} failed", _one_name(child)))
                continue
            outcome = await settle(child.evaluate(attempt, offload))
            outcomes.append(outcome)
            if outcome.value is None and not child.may_be_missing:
                skipped = self.children[len(outcomes) :]
                outcomes += [Verdict(None, "not reached", _one_name(child)) for child in skipped]
                break
            if outcome.value is not None and outcome.value < self.at_least and child.weight:
                failed = outcome.name or "an earlier one"
        return self._combine(outcomes)


@dataclass(frozen=True)
class Cap(Node):
    """The value of `child`, limited to `at_most`; with `when`, only if the value of that node is above 0."""

    child: Node
    at_most: float
    when: Node | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _no_penalties(self, [self.child, *([self.when] if self.when is not None else ())])

    def names(self) -> Iterator[str]:
        """Yield the names of the child and of the condition."""
        for child in (self.child, self.when):
            for name in child.names() if child is not None else ():
                yield f"{self.name}/{name}" if self.name else name

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Evaluate the child and the condition concurrently."""
        pending = [self.child.evaluate(attempt, offload)]
        if self.when is not None:
            pending.append(self.when.evaluate(attempt, offload))
        outcome, *condition = await settled(pending)
        parts = [(outcome, 1.0), *((gate, 0.0) for gate in condition)]
        if condition and condition[0].value is None and self.when is not None and not self.when.may_be_missing:
            return Verdict(None, f"the cap's condition: {condition[0].evidence}", self.name, parts)
        value = outcome.value
        if value is None or value <= self.at_most or (condition and not (condition[0].value or 0.0) > 0.0):
            return Verdict(value, outcome.evidence, self.name, parts)
        parts.append((Verdict(self.at_most - value, f"at most {self.at_most:g}", "cap"), 1.0))
        return Verdict(self.at_most, "", self.name, parts)


async def settle(pending: Pending) -> Verdict:
    """Return the verdict, awaited if needed."""
    return pending if isinstance(pending, Verdict) else await pending


async def settled(pending: Sequence[Pending]) -> list[Verdict]:
    """Return all verdicts in order; those to be awaited run concurrently."""
    waiting = [evaluation for evaluation in pending if not isinstance(evaluation, Verdict)]
    if len(waiting) == 1:
        verdicts = iter([await waiting[0]])
    else:
        verdicts = iter(await asyncio.gather(*waiting))
    return [evaluation if isinstance(evaluation, Verdict) else next(verdicts) for evaluation in pending]


def _one_name(node: Node) -> str:
    return node.label if isinstance(node, Check) else node.name or next(iter(node.names()))


def _no_penalties(parent: Node, children: Sequence[Node]) -> None:
    if any(isinstance(child, Penalty) for child in children):
        raise AuthoringError(f"a Penalty belongs in a Weighted or a WeightedSum, not in a {type(parent).__name__}")


def snake_case(name: str) -> str:
    """Return a class name in snake case: `ExactMatch` → `exact_match`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
