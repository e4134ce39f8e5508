"""Checks of tool calls: which tools were called, in which order, with which arguments, in how many steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Selector, TakenStep, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.verdict import Verdict

log = logging.getLogger("ludus.server.rewards")


def _matches(step: TakenStep, tool: str, arguments: Mapping[str, Any]) -> bool:
    if step.error is not None or step.tool != tool:
        return False
    for name, expected in arguments.items():
        if name not in step.arguments:
            return False
        argument = step.arguments[name]
        matches = satisfies(expected, argument) if callable(expected) else _equal(argument, expected)
        if not matches:
            return False
    return True


def satisfies(predicate: Callable[[Any], Any], argument: object) -> bool:
    """Return whether the author's function accepts a value made by the policy; a function that raises does not.

    If an error left the item unscored, a policy could cause that by a value that the function does not expect.
    """
    try:
        return bool(predicate(argument))
    except Exception as error:
        log.warning("%r raised %s for a value of the policy's, which counts as no", predicate, type(error).__name__)
        return False


def _equal(argument: object, expected: object) -> bool:
    """Return whether two JSON values are equal: true is not 1."""
    if isinstance(argument, bool) or isinstance(expected, bool):
        return argument is expected
    if isinstance(argument, Mapping) and isinstance(expected, Mapping):
        return argument.keys() == expected.keys() and all(_equal(argument[name], expected[name]) for name in argument)
    if isinstance(argument, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(argument) == len(expected) and all(map(_equal, argument, expected))
    return argument == expected


@dataclass(frozen=True)
class ToolCalled(Check):
    """1 when a tool was called successfully at least `at_least` and at most `at_most` times.

    `arguments` narrows down which calls count: each argument, as the tool got it in JSON, equals a value or satisfies a
    function; a function that raises is not satisfied.
    """

    tool: str
    arguments: Mapping[str, Any | Callable[[Any], bool]] = field(default_factory=dict)
    at_least: int = 1
    at_most: int | None = None

    @property
    def label(self) -> str:
        """The name, or one made from the tool's name."""
        return self.name or f"called_{self.tool}"

    def check(self, attempt: Attempt) -> Verdict:
        """Count the matching calls."""
        count = sum(_matches(step, self.tool, self.arguments) for step in attempt.steps)
        right = count >= self.at_least and (self.at_most is None or count <= self.at_most)
        return Verdict(float(right), f"{count} such calls of {self.tool}")


@dataclass(frozen=True)
class ToolNotCalled(Check):
    """1 when a tool was never called, with or without success."""

    tool: str

    @property
    def label(self) -> str:
        """The name, or one made from the tool's name."""
        return self.name or f"not_called_{self.tool}"

    def check(self, attempt: Attempt) -> Verdict:
        """Look for calls of the tool."""
        at = [step.number for step in attempt.steps if step.tool == self.tool]
        return Verdict(float(not at), f"called in step {at[0]}" if at else "")


@dataclass(frozen=True)
class CallOrder(Check):
    """The share of a list of calls that were made in its order; other calls in between are allowed.

    A call is a tool's name, or a name with arguments as in `ToolCalled`.
    """

    calls: Sequence[str | tuple[str, Mapping[str, Any]]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.calls:
            raise AuthoringError("CallOrder lists no calls; name at least one tool")

    def check(self, attempt: Attempt) -> Verdict:
        """Go through the steps once."""
        matched = 0
        steps: Iterator[TakenStep] = iter(attempt.steps)
        for call in self.calls:
            tool, arguments = (call, {}) if isinstance(call, str) else call
            if not any(_matches(step, tool, arguments) for step in steps):
                return Verdict(
                    matched / len(self.calls), f"{tool} did not follow; {matched}/{len(self.calls)} in order"
                )
            matched += 1
        return Verdict(1.0, f"all {matched} in order")


@dataclass(frozen=True)
class NoErrors(Check):
    """The share of tool calls without an error; 1 if there were no calls."""

    def check(self, attempt: Attempt) -> Verdict:
        """Count the calls with an error."""
        wrong = sum(step.error is not None for step in attempt.steps)
        count = len(attempt.steps)
        return Verdict(1.0 - wrong / count if count else 1.0, f"{wrong} of {count} calls were refused")


@dataclass(frozen=True)
class Efficiency(Check):
    """1 for `best` steps or fewer, 0 for `worst` or more, and linear in between.

    It says nothing about success: put it behind a gate.
    """

    best: Selector[int]
    worst: Selector[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.best, int) and isinstance(self.worst, int) and self.worst <= self.best:
            raise AuthoringError(f"Efficiency: worst ({self.worst}) must be more than best ({self.best})")

    def check(self, attempt: Attempt) -> Verdict:
        """Count the steps."""
        best, worst = resolve(self.best, attempt), resolve(self.worst, attempt)
        count = len(attempt.steps)
        if worst <= best:
            raise ValueError(f"worst ({worst}) must be more than best ({best})")
        return Verdict(min(1.0, max(0.0, (worst - count) / (worst - best))), f"{count} steps; {best} would do")
