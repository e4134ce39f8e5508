"""Checks, suites, verdicts and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

Status = Literal["passed", "failed", "noted", "warned", "waived", "skipped", "broken"]
"""The outcome of a check.

`noted`: a failure that violates only a SHOULD, or a rule that plain ORS does not have.
`warned`: a finding that deserves a look, but is not an error.
`waived`: the author accepts the findings, with a reason.
`broken`: the check itself could not be carried out, for example because the server went away.
"""


class NotApplicable(Exception):
    """The check does not apply to what is checked; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    title: str
    """The statement that is true of a subject that passes."""
    run: Callable[[Any], Any]
    """Takes the context of the check and carries it out."""


CheckT = TypeVar("CheckT", bound=Check)


class Suite(Generic[CheckT]):
    """Checks in the order of their definition."""

    def __init__(self) -> None:
        self.checks: list[CheckT] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one check."""

    title: str
    status: Status
    detail: str = ""
    """The reason why the check did not pass; empty if it passed."""
    seconds: float
    """The time that the check took."""


VerdictT = TypeVar("VerdictT", bound=Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[VerdictT]):
    """The outcome of all checks on one subject."""

    STATUSES: ClassVar[tuple[Status, ...]]
    """The statuses that a check of this kind can have, in the order of the report."""
    FAILING: ClassVar[tuple[Status, ...]]
    """The statuses that fail the report."""
    FAILING_IF_STRICT: ClassVar[tuple[Status, ...]]
    """The statuses that fail the report if it is strict."""

    strict: bool
    verdicts: tuple[VerdictT, ...]

    @property
    def passed(self) -> bool:
        """Return whether no check has a status that fails the report."""
        failing = self.FAILING + (self.FAILING_IF_STRICT if self.strict else ())
        return not self.of(*failing)

    def of(self, *statuses: Status) -> tuple[VerdictT, ...]:
        """Return the verdicts that have one of the given statuses."""
        return tuple(verdict for verdict in self.verdicts if verdict.status in statuses)

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts with each status."""
        counts = Counter(verdict.status for verdict in self.verdicts)
        return {status: counts[status] for status in self.STATUSES}

    def verdicts_as_json(self) -> list[dict[str, Any]]:
        """Return the verdicts as JSON values."""
        return [asdict(verdict) for verdict in self.verdicts]
