"""Scripted opponents: what they accept, and what they offer.

Each but `random` answers concessions. A concession is what the other seat's best offer is worth to the opponent above
its first one; offers below the opponent's fallback count as that. An opponent that concedes at the rate r wants

    its opening points - r × the concession

and accepts an offer that is worth as much to it. So offers that are repeated, messages and the passing of rounds move
none of them. Rates: `conceder` 2, `tit-for-tat` 1, `boulware` 1/2. `optimal` accepts a fixed share of what lies between
its fallback and its opening, the share that earns it the most on average against agents with the values of the tasks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from ludus.environments.negotiation.scenario import Deal, Scenario


class Style(NamedTuple):
    """How an opponent concedes."""

    numerator: int
    denominator: int
    floor: int = 0
    """The percentage of the way from its fallback to its opening below which it never goes; 0 for none."""
    at_once: bool = False
    """Whether it accepts what is worth its floor before any concession."""


STYLES: Final = {
    "random": Style(0, 1, 0, True),
    "conceder": Style(2, 1),
    "tit-for-tat": Style(1, 1),
    "boulware": Style(1, 2),
    "optimal": Style(1, 1, 70, True),
}
"""The opponents, the weakest first."""

HARDEST: Final = "optimal"


class Opponent:
    """The opponent that plays one seat of one match.

    Args:
        scenario: what is negotiated.
        seat: its seat.
        strength: its name in `STYLES`.
    """

    def __init__(self, scenario: Scenario, seat: int, strength: str) -> None:
        self._scenario, self._seat, self._strength = scenario, seat, strength
        self._style = STYLES[strength]
        self._fallback, self._target = scenario.fallbacks[seat], scenario.targets[seat]
        self._first: int | None = None
        self._most = 0

    def wish(self) -> str | None:
        """Return the issue whose options differ the most for it; None if it has nothing to say."""
        issues = self._scenario.issues
        if self._strength == "random" or len(issues) == 1:
            return None
        ranges = [max(table) - min(table) for table in self._scenario.points[self._seat]]
        return issues[ranges.index(max(ranges))].name

    @property
    def wants(self) -> int:
        """The points that it asks for in its next offer."""
        first = self._first if self._first is not None else self._most
        asked = self._target - self._style.numerator * max(0, self._most - first) // self._style.denominator
        return max(asked, self._least)

    @property
    def _least(self) -> int:
        return max(self._fallback + 1, _floor(self._style, self._fallback, self._target))

    def hear(self, offer: Deal) -> None:
        """Take note of an offer of the other seat."""
        value = max(self._fallback, self._scenario.value(self._seat, offer))
        if self._first is None:
            self._first = value
        self._most = max(self._most, value)

    def accepts(self, offer: Deal, rng: random.Random, last: bool) -> bool:
        """Return whether it accepts an offer, of which it took note.

        Args:
            offer: the offer.
            rng: what `random` chooses by.
            last: whether this is its last move.
        """
        value = self._scenario.value(self._seat, offer)
        if self._strength == "random":
            return value >= self._least and (last or rng.random() < 0.5)
        return value >= (self._least if self._style.at_once else self.wants)

    def offers(self, answered: Deal | None, rng: random.Random) -> Deal:
        """Return its next offer: of the deals that are worth what it wants, one that is close to the other's offer."""
        scenario = self._scenario
        pairs = zip(scenario.deals, scenario.values[self._seat], strict=True)
        if self._strength == "random":
            return rng.choice([deal for deal, value in pairs if self._least <= value <= self._target])
        if answered is None:
            return scenario.ideal(self._seat)
        wanted = self.wants
        worth = [(_distance(deal, answered), value, deal) for deal, value in pairs if value >= wanted]
        closest = min(one[:2] for one in worth)
        return rng.choice([deal for *rank, deal in worth if tuple(rank) == closest])


def acceptable(scenario: Scenario, seat: int, strength: str) -> list[Deal]:
    """Return the deals to which an opponent on a seat can be brought, by an opening that is worth nothing to it.

    No other way of playing leads to further ones: what it wants falls with the concession, and the greatest concession
    with which an offer can be made is that from its fallback.
    """
    style, fallback, target = STYLES[strength], scenario.fallbacks[seat], scenario.targets[seat]
    least = max(fallback + 1, _floor(style, fallback, target))
    if not style.at_once:
        least = next(
            value
            for value in range(least, target + 1)
            if value >= target - style.numerator * (value - fallback) // style.denominator
        )
    return [deal for deal, value in zip(scenario.deals, scenario.values[seat], strict=True) if value >= least]


def best_deals(deals: Iterable[Deal], scenario: Scenario, seat: int, shared: bool) -> Deal:
    """Return the deal that is best for a seat, or for both together where the reward is shared."""
    if shared:
        return max(deals, key=lambda deal: (scenario.joint(deal), scenario.surplus(seat, deal)))
    return max(deals, key=lambda deal: (scenario.value(seat, deal), scenario.value(1 - seat, deal)))


def reachable_by_hardest(scenario: Scenario, seat: int) -> int:
    """Return the most points that a seat can get from the hardest opponent."""
    return max(scenario.value(seat, deal) for deal in acceptable(scenario, 1 - seat, HARDEST))


def _floor(style: Style, fallback: int, target: int) -> int:
    return fallback - (-(target - fallback) * style.floor // 100)


def _distance(one: Deal, other: Deal) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
