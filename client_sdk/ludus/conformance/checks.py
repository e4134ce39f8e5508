"""Checks: coroutine functions that return if the server conforms, and raise if it does not or if they do not apply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ludus import checks
from ludus.checks import NotApplicable
from ludus.protocol.modules import Module
from ludus.protocol.text import truncate

__all__ = [
    "CORE", "WIRE_MODULES", "Check", "ConformanceFailure", "NotApplicable", "Suite", "Verdict", "expect",
    "expect_equal", "require", "short",
]  # fmt: skip

WIRE_MODULES: Final[Mapping[str, Module]] = MappingProxyType(
    {"channel": Module.CHANNEL, "play": Module.PLAY, "ors": Module.ORS}
)
"""The module of each wire; `mcp` is the core's."""

CORE: Final = "core"
"""What reports call the part of the standard that belongs to no module."""


class ConformanceFailure(Exception):
    """The server violates the standard; the message says what was expected and what was received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(checks.Check):
    """One check, with the ids of the sentences of the standard that it tests."""

    name: str
    requirements: tuple[str, ...]
    module: Module | None
    """The module that a server must offer for the check to apply, besides that of the wire; None for no other."""
    negative: bool
    """True if it sends requests that must be refused."""
    advice: bool
    """True if the sentences are a SHOULD; a failure is then noted."""
    profile: bool
    """True if only this standard demands it; on a plain ORS server, a failure is then noted."""
    last: bool
    """True if it evaluates what the other checks of its wire recorded, and therefore runs last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(checks.Verdict):
    """The outcome of a check on one wire."""

    wire: str
    check: str
    requirements: tuple[str, ...]
    module: str
    """The module that it counts for: the check's, else that of its wire, else `core`."""
    negative: bool


F = TypeVar("F", bound=Callable[[Any], Awaitable[None]])


class Suite(checks.Suite[Check]):
    """Checks of one part of the standard, in the order of their definition.

    Args:
        module: the module of the checks that name no other; see `Check`.
    """

    def __init__(self, module: Module | None = None) -> None:
        super().__init__()
        self.module = module

    def check(
        self,
        title: str,
        *requirements: str,
        module: Module | None = None,
        negative: bool = False,
        advice: bool = False,
        profile: bool = False,
        last: bool = False,
    ) -> Callable[[F], F]:
        """Add a coroutine function as a check; the further arguments are those of `Check`.

        Args:
            title: what a conforming server does.
            requirements: ids of sentences in `spec/`.
            module: see `Check`; that of the suite when None.
            negative: see `Check`.
            advice: see `Check`.
            profile: see `Check`.
            last: see `Check`.
        """

        def add(function: F) -> F:
            self.checks.append(
                Check(
                    name=function.__name__, title=title, requirements=requirements,
                    module=module or self.module, negative=negative, advice=advice, profile=profile, last=last,
                    run=function,
                )
            )  # fmt: skip
            return function

        return add


def expect(condition: object, message: str) -> None:
    """Raise `ConformanceFailure` with a message unless the condition is true."""
    if not condition:
        raise ConformanceFailure(message)


def require(value: object, reason: str) -> None:
    """Raise `NotApplicable` if a check found nothing to judge: it has seen no fault, but it has proved nothing.

    Args:
        value: what the check judged; nothing if it is false.
        reason: why there is nothing.
    """
    if not value:
        raise NotApplicable(reason)


def expect_equal(actual: object, expected: object, subject: str) -> None:
    """Raise `ConformanceFailure` unless two values are equal."""
    if actual != expected:
        raise ConformanceFailure(f"{subject}: expected {short(expected)}, found {short(actual)}")


def short(value: object) -> str:
    """Return a value's repr, truncated to 300 characters."""
    return truncate(repr(value), 300)
