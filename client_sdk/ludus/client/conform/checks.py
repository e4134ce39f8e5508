"""What a check is: a coroutine that ends well, finds a fault, or has nothing to look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Status = Literal["passed", "failed", "skipped"]


class Fault(Exception):
    """The server does what the standard forbids; the message says what was expected and what came."""


class NotApplicable(Exception):
    """There is nothing to check here; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to try, with the sentences of the standard that it tries."""

    name: str
    title: str
    requirements: tuple[str, ...]
    negative: bool
    """Whether it tries something that must be refused."""
    run: Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a check on one wire."""

    wire: str
    check: str
    title: str
    requirements: tuple[str, ...]
    negative: bool
    status: Status
    detail: str
    """Why it failed or was skipped; empty when it passed."""
    seconds: float


F = TypeVar("F", bound=Callable[[Any], Awaitable[None]])


class Suite:
    """Checks in the order of their definition."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, title: str, *requirements: str, negative: bool = False) -> Callable[[F], F]:
        """Add a coroutine function as a check.

        Args:
            title: what a conforming server does.
            requirements: ids of sentences in `spec/`.
            negative: whether it tries something that must be refused.
        """

        def add(function: F) -> F:
            self.checks.append(Check(function.__name__, title, requirements, negative, function))
            return function

        return add


def expect(condition: object, message: str) -> None:
    """Find a fault unless the condition holds."""
    if not condition:
        raise Fault(message)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Find a fault unless two values are equal."""
    if found != wanted:
        raise Fault(f"{what}: expected {_short(wanted)}, found {_short(found)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "…"
