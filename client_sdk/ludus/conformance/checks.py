"""What a check is: a coroutine that ends well, finds a fault, or has nothing to look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Status = Literal["passed", "failed", "noted", "skipped"]
"""`noted`: something that a sentence advises against, or that a server's own standard does not demand."""


class ConformanceFailure(Exception):
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
    advice: bool
    """Whether the sentences are a SHOULD: a fault is noted then."""
    profile: bool
    """Whether only this standard demands it: on a server that is plain ORS a fault is noted."""
    last: bool
    """Whether it looks back on what the other checks of its wire have seen."""
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
    """Why it did not pass; empty when it did."""
    seconds: float


F = TypeVar("F", bound=Callable[[Any], Awaitable[None]])


class Suite:
    """Checks in the order of their definition."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(
        self,
        title: str,
        *requirements: str,
        negative: bool = False,
        advice: bool = False,
        profile: bool = False,
        last: bool = False,
    ) -> Callable[[F], F]:
        """Add a coroutine function as a check; the further arguments are those of `Check`.

        Args:
            title: what a conforming server does.
            requirements: ids of sentences in `spec/`.
            negative: see `Check`.
            advice: see `Check`.
            profile: see `Check`.
            last: see `Check`.
        """

        def add(function: F) -> F:
            self.checks.append(Check(function.__name__, title, requirements, negative, advice, profile, last, function))
            return function

        return add


def expect(condition: object, message: str) -> None:
    """Find a fault unless the condition holds."""
    if not condition:
        raise ConformanceFailure(message)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Find a fault unless two values are equal."""
    if found != wanted:
        raise ConformanceFailure(f"{what}: expected {short(wanted)}, found {short(found)}")


def short(value: object) -> str:
    """A value in a line."""
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "…"
