"""What a run reports: what was proposed, why the rest is not kept, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from ludus.generation.candidates import REASONS, Reason, Rejected
from ludus.generation.model import Budget

FILTERS: Final[tuple[tuple[str, tuple[Reason, ...]], ...]] = (
    ("schema", ("schema", "held_out")),
    ("duplicates", ("contaminated", "duplicate", "near_duplicate")),
    ("oracle", ("broken", "unsolvable", "unscored")),
    ("no-op and random", ("free_reward",)),
    ("validate", ("validate",)),
    ("calibration", ("too_easy", "too_hard", "not_calibrated")),
)
"""The filters in their order, with the reasons for which each rejects."""
_REPLIES: Final[tuple[Reason, ...]] = ("endpoint", "refused", "truncated", "malformed")
SHOWN: Final = 3


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class FilterFigures(_Part):
    """What one filter let through."""

    name: str
    seen: int
    passed: int

    @property
    def rate(self) -> float | None:
        """The acceptance rate; None if it saw nothing."""
        return self.passed / self.seen if self.seen else None


class Spending(_Part):
    """The use of models."""

    model: str | None
    requests: int
    input_tokens: int
    output_tokens: int
    unmetered_requests: int
    """Requests whose tokens the endpoint did not count; they are not in the figures above, nor in the cost."""
    cost: float | None
    """In the currency of the prices; None without prices."""

    def line(self) -> str:
        """Return the use as one line."""
        if self.model is None and not self.requests:
            return "no model was used"
        cost = "cost unknown (give --price-in and --price-out)" if self.cost is None else f"cost {self.cost:.4f}"
        if self.unmetered_requests:
            cost += f", without {self.unmetered_requests} requests whose tokens the endpoint did not count"
        tokens = f"{self.input_tokens:,} + {self.output_tokens:,} tokens"
        return f"{self.requests} requests to {self.model or 'the calibrating model'}, {tokens}, {cost}"


class Example(_Part):
    """One rejected proposal."""

    reason: Reason
    number: int
    detail: str


class RunReport(_Part):
    """The outcome of a run."""

    environment: str
    version: str
    mode: str
    seed: int
    split: str
    wanted: int
    proposed: int
    """The candidates that were read, without replies that hold none."""
    replies_without_task: dict[Reason, int]
    kept: int
    rejected: dict[Reason, int]
    filters: tuple[FilterFigures, ...]
    spending: Spending
    seconds: float
    """The wall time of this part of the run."""
    stopped: str | None
    """Why fewer were kept than wanted; None if all are."""
    examples: tuple[Example, ...]
    """Some rejections of each reason."""

    @property
    def acceptance(self) -> float | None:
        """The share of the proposed tasks that is kept; None if none was proposed."""
        return self.kept / self.proposed if self.proposed else None

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with the rates."""
        value = self.model_dump(mode="json")
        value["acceptance"] = self.acceptance
        for part, figures in zip(value["filters"], self.filters, strict=True):
            part["acceptance"] = figures.rate
        return value

    def lines(self) -> list[str]:
        """Return the report as text."""
        rate = "–" if self.acceptance is None else f"{self.acceptance:.0%}"
        kept = f"kept {self.kept} of {self.wanted} wanted; {self.proposed} proposed, {rate} accepted"
        found = [f"{self.environment} {self.version}: {kept}"]
        for one in self.filters:
            if one.seen:
                found.append(f"  {one.name:<18} {one.passed:>5} of {one.seen:<5} pass")
        for reason, count in sorted((self.rejected | self.replies_without_task).items(), key=lambda one: -one[1]):
            found.append(f"  {count:>5} × {reason}: {REASONS[reason]}")
            found += [f"          {example.detail}" for example in self.examples if example.reason == reason][:1]
        found.append(f"  {self.spending.line()}, {self.seconds:.0f} s")
        if self.stopped is not None:
            found.append(f"  stopped: {self.stopped}")
        return found


def figures_of(proposed: int, rejected: Sequence[Rejected], calibrated: bool) -> tuple[FilterFigures, ...]:
    """Return what each filter let through."""
    counts = Counter(one.rejection.reason for one in rejected)
    found, left = [], proposed
    for name, reasons in FILTERS:
        if name == "calibration" and not calibrated:
            continue
        out = sum(counts[reason] for reason in reasons)
        found.append(FilterFigures(name=name, seen=left, passed=left - out))
        left -= out
    return tuple(found)


def counts_of(rejected: Sequence[Rejected]) -> tuple[dict[Reason, int], dict[Reason, int]]:
    """Return how many candidates were rejected for each reason, and how many replies held none."""
    counts: Counter[Reason] = Counter(one.rejection.reason for one in rejected)
    replies: dict[Reason, int] = {}
    others: dict[Reason, int] = {}
    for reason, count in counts.items():
        (replies if reason in _REPLIES else others)[reason] = count
    return others, replies


def examples_of(rejected: Sequence[Rejected]) -> tuple[Example, ...]:
    """Return the first rejections of each reason."""
    found: dict[Reason, list[Example]] = {}
    for one in rejected:
        some = found.setdefault(one.rejection.reason, [])
        if len(some) < SHOWN:
            some.append(Example(reason=one.rejection.reason, number=one.number, detail=one.rejection.detail))
    return tuple(example for some in found.values() for example in some)


def spending_of(budget: Budget, model: str | None) -> Spending:
    """Return the use of models so far."""
    ledger = budget.ledger
    return Spending(
        model=model, requests=ledger.requests, input_tokens=ledger.input_tokens, output_tokens=ledger.output_tokens,
        unmetered_requests=ledger.unmetered, cost=budget.cost,
    )  # fmt: skip
