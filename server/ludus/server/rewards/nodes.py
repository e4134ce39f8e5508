"""The tree of a rubric: checks are its leaves; groups, gates, sequences and caps combine them.

An item that cannot be judged is *unscored*. Its parents are then unscored too, up to the whole rubric, unless the item
is `optional` or only a metric (weight 0): such an item is left out of the mean, and the others share its weight. An
item that could not be judged never counts as 0.

Every outcome is linear in the checks below it: its value is the sum of the checks' values times their effective
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

from ludus.protocol.errors import AuthoringError
from ludus.protocol.incidents import new_incident
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.verdict import Finding, Verdict, read_verdict

log = logging.getLogger("ludus.server.rewards")

Offload = Callable[..., Awaitable[Any]]
"""A function that calls another one, which may block, outside the event loop."""


_READY = frozenset({Verdict, float, int})
"""The types that checks mostly return. Testing whether a result is awaitable takes longer than most checks."""


class Outcome:
    """The result of one node: a value, or None if unscored, and the parts that add up to it."""

    __slots__ = ("evidence", "name", "parts", "value")

    def __init__(
        self, name: str, value: float | None, evidence: str = "", parts: Sequence[tuple[Outcome, float]] | None = None
    ) -> None:
        self.name = name
        self.value = value
        self.evidence = evidence
        """The reason for the value, or for its absence."""
        self.parts = parts
        """The outcomes below, each with the factor by which it counts here; None for a check."""

    def leaves(self) -> list[tuple[str, Outcome, float]]:
        """Return the checks below with their full names and effective weights."""
        found: list[tuple[str, Outcome, float]] = []
        self._gather(found, 1.0, "")
        return found

    def _gather(self, found: list[tuple[str, Outcome, float]], factor: float, prefix: str) -> None:
        if self.parts is None:
            found.append((prefix + (self.name or "value"), self, factor))
            return
        inner = f"{prefix}{self.name}/" if self.name else prefix
        for part, share in self.parts:
            part._gather(found, factor * share, inner)


Pending = Outcome | Coroutine[Any, Any, Outcome]
"""An outcome, or a coroutine that returns one."""


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

    def begin(self, attempt: Attempt, offload: Offload) -> Pending:
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

    def check(self, attempt: Attempt) -> Finding | Awaitable[Finding]:
        """Return the finding. An error leaves the item unscored and is logged."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The name, or one made from the class."""
        return self.name or snake_case(type(self).__name__)

    def names(self) -> Iterator[str]:
        """Yield its own name."""
        yield self.label

    def begin(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate the check."""
        if self.blocking:
            return self._wait(offload(self.check, attempt))
        try:
            found = self.check(attempt)
            if type(found) is bool:
                return Outcome(self.label, 1.0 if found else 0.0)
            if type(found) not in _READY and inspect.isawaitable(found):
                return self._wait(found)
            return self._outcome(read_verdict(found))
        except Exception as error:
            return self._broken(error)

    async def _wait(self, finding: Awaitable[Any]) -> Outcome:
        try:
            found = await finding
            if inspect.isawaitable(found):
                found = await found
            return self._outcome(read_verdict(found))
        except Exception as error:
            return self._broken(error)

    def _outcome(self, verdict: Verdict) -> Outcome:
        return Outcome(self.label, verdict.value, verdict.evidence)

    def _broken(self, error: Exception) -> Outcome:
        # Only the type is reported: the text of an error may hold private fields, and evidence leaves the server.
        incident = new_incident()
        log.error("check %r raised (incident %s)", self.label, incident, exc_info=error, extra={"incident": incident})
        return Outcome(self.label, None, f"the check raised {type(error).__name__} (incident {incident})")


@dataclass(frozen=True)
class Penalty(Node):
    """A deduction from its group: its child's value times `amount`. It has no part in the weights."""

    child: Node
    amount: float = 1.0

    def begin(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate the child."""
        return self.child.begin(attempt, offload)

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

    def begin(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate all children concurrently."""
        begun = [child.begin(attempt, offload) for child in self.children]
        for one in begun:
            if type(one) is not Outcome:
                return self._wait(begun)
        return self._combine(begun)  # type: ignore[arg-type]

    async def _wait(self, begun: Sequence[Pending]) -> Outcome:
        return self._combine(await settled(begun))

    def _combine(self, outcomes: Sequence[Outcome]) -> Outcome:
        parts: list[tuple[Outcome, float]] = []
        broken: Outcome | None = None
        share = self._share(outcomes)
        for child, outcome in zip(self.children, outcomes, strict=True):
            if outcome.value is None and not child.may_be_missing and broken is None:
                broken = outcome
            factor = -child.amount if isinstance(child, Penalty) else child.weight * share
            parts.append((outcome, factor if outcome.value is not None else 0.0))
        if broken is not None:
            why = f"{broken.name}: {broken.evidence}" if broken.name else broken.evidence
            return Outcome(self.name, None, why, parts)
        counted = [outcome.value * factor for outcome, factor in parts if outcome.value is not None]
        if not counted or (share == 0.0 and self.weight != 0.0):
            return Outcome(self.name, None, "none of its checks could be judged", parts)
        try:
            value = math.fsum(counted)
        except (OverflowError, ValueError):  # the sum overflows, or there are infinities of both signs
            value = math.inf
        if not math.isfinite(value):
            return Outcome(self.name, None, "the sum of its checks is no finite number", parts)
        if self.floor is not None and value < self.floor:
            parts.append((Outcome("floor", self.floor - value, f"not below {self.floor:g}"), 1.0))
            value = self.floor
        return Outcome(self.name, value, "", parts)

    def _share(self, outcomes: Sequence[Outcome]) -> float:
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

    def _share(self, outcomes: Sequence[Outcome]) -> float:
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

    async def begin(self, attempt: Attempt, offload: Offload) -> Outcome:
        """Evaluate the condition, and `then` if the condition holds."""
        condition = await settle(self.condition.begin(attempt, offload))
        if condition.value is None:
            return Outcome(self.name, None, f"the gate's condition: {condition.evidence}", [(condition, 0.0)])
        if condition.value < self.at_least:
            why = f"closed: {condition.name or 'the condition'} is {condition.value:g}, below {self.at_least:g}"
            shut = Outcome(_one_name(self.then), self.otherwise, why)
            return Outcome(self.name, self.otherwise, why, [(condition, 0.0), (shut, 1.0)])
        then = await settle(self.then.begin(attempt, offload))
        return Outcome(self.name, then.value, then.evidence, [(condition, 0.0), (then, 1.0)])


@dataclass(frozen=True)
class Sequential(Weighted):
    """The weighted mean of children evaluated one after another; after one below `at_least`, the rest count 0."""

    at_least: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _no_penalties(self, self.children)

    async def begin(self, attempt: Attempt, offload: Offload) -> Outcome:
        """Evaluate the children in order until one fails."""
        outcomes: list[Outcome] = []
        failed = ""
        for child in self.children:
            if failed:
                outcomes.append(Outcome(_one_name(child), 0.0, f"not reached: {failed} failed"))
                continue
            outcome = await settle(child.begin(attempt, offload))
            outcomes.append(outcome)
            if outcome.value is None and not child.may_be_missing:
                rest = self.children[len(outcomes) :]
                outcomes += [Outcome(_one_name(one), None, "not reached") for one in rest]
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

    async def begin(self, attempt: Attempt, offload: Offload) -> Outcome:
        """Evaluate the child and the condition concurrently."""
        begun = [self.child.begin(attempt, offload)]
        if self.when is not None:
            begun.append(self.when.begin(attempt, offload))
        outcome, *condition = await settled(begun)
        parts = [(outcome, 1.0), *((one, 0.0) for one in condition)]
        if condition and condition[0].value is None and self.when is not None and not self.when.may_be_missing:
            return Outcome(self.name, None, f"the cap's condition: {condition[0].evidence}", parts)
        value = outcome.value
        if value is None or value <= self.at_most or (condition and not (condition[0].value or 0.0) > 0.0):
            return Outcome(self.name, value, outcome.evidence, parts)
        parts.append((Outcome("cap", self.at_most - value, f"at most {self.at_most:g}"), 1.0))
        return Outcome(self.name, self.at_most, "", parts)


async def settle(begun: Pending) -> Outcome:
    """Return the outcome, awaited if needed."""
    return begun if isinstance(begun, Outcome) else await begun


async def settled(begun: Sequence[Pending]) -> list[Outcome]:
    """Return all outcomes in order; those to be awaited run concurrently."""
    waiting = [one for one in begun if not isinstance(one, Outcome)]
    if len(waiting) == 1:
        done = iter([await waiting[0]])
    else:
        done = iter(await asyncio.gather(*waiting))
    return [one if isinstance(one, Outcome) else next(done) for one in begun]


def _one_name(node: Node) -> str:
    return node.label if isinstance(node, Check) else node.name or next(iter(node.names()))


def _no_penalties(parent: Node, children: Sequence[Node]) -> None:
    if any(isinstance(child, Penalty) for child in children):
        raise AuthoringError(f"a Penalty belongs in a Weighted or a WeightedSum, not in a {type(parent).__name__}")


def snake_case(name: str) -> str:
    """Return a class name in snake case: `ExactMatch` → `exact_match`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
