"""Scripted opponents: what they accept, what they offer, and how they react.

Each but `random` answers concessions. A concession is what the other seat's best offer is worth to the opponent above
its fallback. An opponent that concedes at the rate r wants

    its opening points - r × the concession

and accepts an offer that is worth as much to it. Rates: `conceder` 2, `tit-for-tat` 1, `boulware` 1/2. `optimal`
accepts a fixed share of what lies between its fallback and its opening, the share that earns it the most on average
against agents with the values of the tasks.

How far it goes depends on its goodwill, from 0 to 2. It begins at 1. Each of its needs that a message meets
(`reactions.py`) adds 1. An opening that leaves it no more than its fallback takes 1 away, and so does each improvement
of an offer after the third: who comes closer with every turn is worth waiting for. Below 2, its rate is a part of the
full one (`GOODWILL`), or the share is higher.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ludus.environments.negotiation.reactions import Listener, Need
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

GOODWILL: Final = (10, 25, 100)
"""The percentage of its rate at which an opponent concedes, by its goodwill."""

RAISED: Final = 10
"""By how many percent an opponent with a fixed share raises it for each level of goodwill that is missing."""

IMPROVEMENTS: Final = 3
"""How many improvements of an offer cost no goodwill."""


class Opponent:
    """The opponent that plays one seat of one match.

    Args:
        scenario: what is negotiated.
        seat: its seat.
        strength: its name in `STYLES`.
        needs: what it needs besides the deal.
    """

    def __init__(self, scenario: Scenario, seat: int, strength: str, needs: Sequence[Need] = ()) -> None:
        self._scenario, self._seat, self._strength = scenario, seat, strength
        self._style = STYLES[strength]
        self._fallback, self._target = scenario.fallbacks[seat], scenario.targets[seat]
        self._least = _least_value(self._style, self._fallback, self._target)
        self._most: int | None = None
        self._improvements = 0
        self._slips = 0
        self._listener = Listener(self._interests(), needs)

    def _interests(self) -> list[str]:
        """Return the names of the issues, those first whose options differ the most for it; none for a price."""
        issues = self._scenario.issues
        if len(issues) == 1:
            return []
        ranges = [max(table) - min(table) for table in self._scenario.points[self._seat]]
        order = sorted(range(len(issues)), key=lambda number: -ranges[number])
        return [issues[number].name for number in order]

    @property
    def goodwill(self) -> int:
        """How far it meets the other seat, from 0 to 2."""
        return min(2, max(0, 1 + self._listener.met - self._slips))

    @property
    def wants(self) -> int:
        """The points that it asks for in its next offer."""
        style = self._style
        concession = (self._most if self._most is not None else self._fallback) - self._fallback
        given = style.numerator * GOODWILL[self.goodwill] * concession // (100 * style.denominator)
        return max(self._target - given, self._floor)

    @property
    def _floor(self) -> int:
        """The points below which it accepts nothing now."""
        if not self._style.floor:
            return self._least
        raised = min(100, self._style.floor + RAISED * (2 - self.goodwill))
        return max(self._least, _share(raised, self._fallback, self._target))

    def listen(self, text: str) -> None:
        """Take note of a message of the other seat."""
        if self._strength != "random":
            self._listener.listen(text)

    def reply(self) -> str:
        """Return what it says in its turn; empty if it says nothing."""
        return self._listener.reply()

    def hear(self, offer: Deal) -> None:
        """Take note of an offer of the other seat."""
        value = max(self._fallback, self._scenario.value(self._seat, offer))
        if self._strength == "random":
            return
        if self._most is None:
            self._most = value
            if value == self._fallback:
                self._slips += 1
                self._listener.remark("That leaves me nothing, so I hold back.")
        elif value > self._most:
            self._most = value
            self._improvements += 1
            if self._improvements > IMPROVEMENTS:
                self._slips += 1
                self._listener.remark("You come closer with every offer, so I wait.")

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
        return value >= (self._floor if self._style.at_once else self.wants)

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
    """Return the deals to which an opponent on a seat can be brought, with all of its goodwill.

    No other way of playing leads to further ones: none is worth less to it than `_least_value`.
    """
    least = _least_value(STYLES[strength], scenario.fallbacks[seat], scenario.targets[seat])
    return [deal for deal, value in zip(scenario.deals, scenario.values[seat], strict=True) if value >= least]


def _least_value(style: Style, fallback: int, target: int) -> int:
    """Return the least points for which an opponent with all of its goodwill accepts a deal."""
    least = max(fallback + 1, _share(style.floor, fallback, target))
    if style.at_once:
        return least
    return next(
        value
        for value in range(least, target + 1)
        if value >= target - style.numerator * (value - fallback) // style.denominator
    )


def best_deals(deals: Iterable[Deal], scenario: Scenario, seat: int, shared: bool) -> Deal:
    """Return the deal that is best for a seat, or for both together where the reward is shared."""
    if shared:
        return max(deals, key=lambda deal: (scenario.joint(deal), scenario.surplus(seat, deal)))
    return max(deals, key=lambda deal: (scenario.value(seat, deal), scenario.value(1 - seat, deal)))


def reachable_by_hardest(scenario: Scenario, seat: int) -> int:
    """Return the most points that a seat can get from the hardest opponent."""
    return max(scenario.value(seat, deal) for deal in acceptable(scenario, 1 - seat, HARDEST))


def _share(percent: int, fallback: int, target: int) -> int:
    """Return the points at a percentage of the way from a fallback to an opening, rounded up."""
    return fallback - (-(target - fallback) * percent // 100)


def _distance(one: Deal, other: Deal) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
