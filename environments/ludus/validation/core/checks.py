"""Checks, which are asynchronous generators of problems, and the verdicts that follow from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from ludus import checks
from ludus.checks import NotApplicable
from ludus.protocol.text import truncate

__all__ = [
    "Check", "Evidence", "Finding", "NotApplicable", "Problem", "Run", "Severity", "Suite", "Verdict", "error", "short",
    "warning",
]  # fmt: skip

Severity = Literal["error", "warning"]
"""An error means that the reward does not work, or will not work in training; a warning deserves a look."""

SHOWN: Final = 5
"""The most pieces of evidence that a finding keeps."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place where a problem shows."""

    detail: str
    split: str | None = None
    task: str | None = None
    seed: int | None = None
    """The episode's seed."""
    policy: str | None = None
    """The policy that played."""
    actions: tuple[dict[str, Any], ...] | None = None
    """All actions, in order: `{"tool": …, "arguments": …}`, or `{"answer": …}` for a final message. None if nothing was
    played."""

    @property
    def where(self) -> str:
        """The place as one line, such as `train/sum-3, seed 5, random`."""
        task = "/".join(part for part in (self.split, self.task) if part)
        seed = "" if self.seed is None else f"seed {self.seed}"
        return ", ".join(part for part in (task, seed, self.policy or "") if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of an environment, as the report shows it."""

    kind: str
    severity: Severity
    message: str
    """The problem, and what to do about it."""
    evidence: tuple[Evidence, ...] = ()
    """Some of the places where the problem shows."""
    count: int = 0
    """The number of all places where it shows."""
    cause: str | None = None
    """What the results of the environment depend on, such as `wall-clock`, for checks that search for it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that a check yields; it becomes a `Finding` of the check's kind."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]
    count: int
    cause: str | None = None


def error(message: str, evidence: Iterable[Evidence] = (), cause: str | None = None) -> Problem:
    """Return a problem that must be fixed."""
    return _problem("error", message, evidence, cause)


def warning(message: str, evidence: Iterable[Evidence] = (), cause: str | None = None) -> Problem:
    """Return a problem that deserves a look."""
    return _problem("warning", message, evidence, cause)


def _problem(severity: Severity, message: str, evidence: Iterable[Evidence], cause: str | None) -> Problem:
    examples = list(evidence)
    return Problem(severity, message, tuple(examples[:SHOWN]), len(examples), cause)


Run = Callable[[Any], AsyncIterator[Problem]]
"""A function that takes the `ValidationTarget` and yields its problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(checks.Check):
    """One check of an environment; `run` is a `Run`."""

    kind: str
    """The kind of its findings."""
    peers: tuple[str, ...]
    """The names of the same check in other validators."""
    scored: bool
    """Whether it judges rewards, so that it says nothing if no episode was scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(checks.Verdict):
    """The outcome of a check; `detail` says why it was skipped, waived or broken."""

    kind: str
    findings: tuple[Finding, ...]


F = TypeVar("F", bound=Callable[..., AsyncIterator[Problem]])


class Suite(checks.Suite[Check]):
    """Checks of one kind of problem, in the order of their definition.

    Args:
        scored: whether they judge rewards.
    """

    def __init__(self, *, scored: bool = False) -> None:
        super().__init__()
        self._scored = scored

    def check(self, kind: str, title: str, *peers: str) -> Callable[[F], F]:
        """Add an asynchronous generator of problems as a check; the arguments are those of `Check`."""

        def add(function: F) -> F:
            self.checks.append(Check(kind=kind, title=title, peers=peers, run=function, scored=self._scored))
            return function

        return add


def short(value: object, limit: int = 200) -> str:
    """Return a value as one line of at most `limit` characters."""
    text = value if isinstance(value, str) else repr(value)
    return truncate(" ".join(text.split()), limit)
