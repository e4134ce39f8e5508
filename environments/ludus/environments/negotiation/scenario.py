"""What is negotiated: issues with options, what each seat's points are for them, and which deals are efficient.

A deal is one option for each issue. The points of a deal are the sum of those of its options. Each seat has a fallback:
what it gets without a deal. Only what a deal is worth above that, its surplus, counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Final, Literal, NamedTuple

Domain = Literal["items", "contract", "price"]
Deal = tuple[int, ...]
"""The index of an option for each issue: for items the number that `first` gets, for a price the price."""

SEATS: Final = ("first", "second")


class Issue(NamedTuple):
    """One thing that a deal settles."""

    name: str
    options: Sequence[str]
    """What the options are called."""


class Scenario:
    """One negotiation with all of its private values.

    Args:
        domain: what it is about.
        issues: what a deal settles.
        points: for each seat and issue, the points of the options.
        fallbacks: the points of each seat without a deal.
        targets: the points of the deals with which each seat would open; None for the best.
        buyer: the seat that buys, from 0, if it is about a price.
    """

    def __init__(
        self,
        domain: Domain,
        issues: Sequence[Issue],
        points: Sequence[Sequence[Sequence[int]]],
        fallbacks: Sequence[int] = (0, 0),
        targets: Sequence[int] | None = None,
        buyer: int = 0,
    ) -> None:
        self.domain: Domain = domain
        self.issues = tuple(issues)
        self.points = points
        self.fallbacks = tuple(fallbacks)
        self.buyer = buyer
        self._targets = targets

    @cached_property
    def deals(self) -> list[Deal]:
        """All deals."""
        return list(product(*(range(len(issue.options)) for issue in self.issues)))

    @cached_property
    def values(self) -> tuple[list[int], list[int]]:
        """The points of each seat for all deals, in the order of `deals`."""
        first, second = ([sum(one) for one in product(*tables)] for tables in self.points)
        return first, second

    @cached_property
    def targets(self) -> tuple[int, int]:
        """The points with which each seat would open."""
        if self._targets is not None:
            return self._targets[0], self._targets[1]
        first, second = (sum(max(table) for table in tables) for tables in self.points)
        return first, second

    def value(self, seat: int, deal: Deal) -> int:
        """Return the points of a seat for a deal."""
        return sum(table[option] for table, option in zip(self.points[seat], deal, strict=True))

    def surplus(self, seat: int, deal: Deal) -> int:
        """Return what a deal is worth to a seat above its fallback."""
        return self.value(seat, deal) - self.fallbacks[seat]

    def ideal(self, seat: int) -> Deal:
        """Return the deal with which a seat would open: the one with the points of its target."""
        return self.deals[self.values[seat].index(self.targets[seat])]

    def rational(self) -> list[Deal]:
        """Return the deals that leave no seat less than its fallback."""
        first, second = self.fallbacks
        pairs = zip(self.deals, *self.values, strict=True)
        return [deal for deal, one, other in pairs if one >= first and other >= second]

    def frontier(self) -> list[Deal]:
        """Return the rational deals from which no seat can gain without a loss of the other one."""
        best = -1
        found = []
        for deal in sorted(self.rational(), key=lambda one: (-self.value(0, one), -self.value(1, one))):
            if self.value(1, deal) > best:
                best = self.value(1, deal)
                found.append(deal)
        return found

    def joint(self, deal: Deal) -> int:
        """Return the sum of both surpluses; 0 if a seat gets no more than its fallback."""
        first, second = self.surplus(0, deal), self.surplus(1, deal)
        return first + second if first > 0 and second > 0 else 0

    def nash_product(self, deal: Deal) -> int:
        """Return the product of both surpluses; 0 if a seat gets no more than its fallback."""
        first, second = self.surplus(0, deal), self.surplus(1, deal)
        return first * second if first > 0 and second > 0 else 0

    @cached_property
    def best_joint(self) -> int:
        """The greatest sum of surpluses."""
        return max(map(self.joint, self.rational()), default=0)

    def nash_solution(self) -> Deal:
        """Return the deal with the greatest product of surpluses (Nash 1950)."""
        return max(self.rational(), key=lambda deal: (self.nash_product(deal), deal))
