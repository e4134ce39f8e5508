"""What a check is: an asynchronous generator of what is wrong, and the verdict that follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

Severity = Literal["error", "warning"]
"""An error is a reward that does not work, or will not in training; a warning is worth a look."""

Status = Literal["passed", "failed", "warned", "waived", "skipped", "broken"]
"""`waived`: something was found that its author accepts, with a reason.
`broken`: the check itself could not be carried out, such as when the server went away."""

SHOWN: Final = 5
"""Pieces of evidence that a finding keeps."""


class NotApplicable(Exception):
    """There is nothing to check here; the message says why."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place where it shows."""

    detail: str
    split: str | None = None
    task: str | None = None
    seed: int | None = None
    """The episode's seed."""
    policy: str | None = None
    """What played."""
    actions: tuple[dict[str, Any], ...] | None = None
    """What was done, in order and in full: `{"tool": …, "arguments": …}`, or `{"answer": …}` for a final message. None
    where nothing was played."""

    @property
    def where(self) -> str:
        """The place in a line: `train/sum-3, seed 5, random`."""
        task = "/".join(part for part in (self.split, self.task) if part)
        seed = "" if self.seed is None else f"seed {self.seed}"
        return ", ".join(part for part in (task, seed, self.policy or "") if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with an environment."""

    kind: str
    severity: Severity
    message: str
    """What is wrong and what to do about it."""
    evidence: tuple[Evidence, ...] = ()
    """Some of the places where it shows."""
    count: int = 0
    """How many there are."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check yields; it becomes a `Finding` of the check's kind."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]
    count: int


def error(message: str, evidence: Iterable[Evidence] = ()) -> Problem:
    """A problem that must be mended."""
    return _problem("error", message, evidence)


def warning(message: str, evidence: Iterable[Evidence] = ()) -> Problem:
    """A problem that is worth a look."""
    return _problem("warning", message, evidence)


def _problem(severity: Severity, message: str, evidence: Iterable[Evidence]) -> Problem:
    places = list(evidence)
    return Problem(severity, message, tuple(places[:SHOWN]), len(places))


Run = Callable[[Any], AsyncIterator[Problem]]
"""Takes the `ValidationTarget` and yields what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look into."""

    kind: str
    """The kind of its findings."""
    title: str
    """What holds for an environment that passes."""
    peers: tuple[str, ...]
    """What other validators call it."""
    run: Run


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a check."""

    kind: str
    title: str
    status: Status
    findings: tuple[Finding, ...]
    detail: str
    """Why it was skipped, waived or broke; else empty."""
    seconds: float


F = TypeVar("F", bound=Callable[..., AsyncIterator[Problem]])


class Suite:
    """Checks in the order of their definition."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, kind: str, title: str, *peers: str) -> Callable[[F], F]:
        """Add an asynchronous generator of problems as a check; the arguments are those of `Check`."""

        def add(function: F) -> F:
            self.checks.append(Check(kind, title, peers, function))
            return function

        return add


def short(value: object, limit: int = 200) -> str:
    """A value in a line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
