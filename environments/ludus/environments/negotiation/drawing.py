"""Draws negotiations.

A negotiation is kept as a short text, its code, which is drawn in about 0.05 ms, so that tasks are listed fast. What
takes longer, such as the fallbacks, follows from the code when a match starts.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ludus.environments.negotiation.opponents import reachable_by_hardest
from ludus.environments.negotiation.scenario import Domain, Issue, Scenario
from ludus.environments.negotiation.themes import CONTRACTS, GOODS, ITEMS
from ludus.server import Difficulty
from ludus.server.authoring.dice import Dice
from ludus.server.authoring.partition import SplitType, digest, split_of

HIGHEST_PRICE: Final = 999
"""The highest price that can be proposed."""

_SHAPES: Final[dict[Difficulty, tuple[int, int]]] = {"easy": (3, 3), "medium": (4, 3), "hard": (5, 4)}
"""The number of issues by difficulty, and of the options that an issue of a contract has at most."""


class Drawn(NamedTuple):
    """A negotiation by its code."""

    code: str
    domain: Domain
    difficulty: Difficulty

    @property
    def identity(self) -> str:
        """A text that is equal for negotiations with the same values, whichever seat has them."""
        facts = json.loads(self.code)
        if self.domain != "price":
            facts["points"].sort()
        for name in ("shares", "theme", "buyer"):
            facts.pop(name, None)
        return json.dumps(facts, sort_keys=True)


def draw_scenario(stream: str, split: SplitType, difficulty: Difficulty, domain: Domain) -> Drawn:
    """Return the first negotiation of a random stream that belongs to a split."""
    dice = Dice(digest(stream))
    draw = {"items": _items, "contract": _contract, "price": _price}[domain]
    while True:
        facts = draw(dice, difficulty)
        found = Drawn(json.dumps({"domain": domain, **facts}, separators=(",", ":")), domain, difficulty)
        if split_of(f"negotiation:{found.identity}") == split:
            return found


def _items(dice: Dice, difficulty: Difficulty) -> dict[str, Any]:
    kinds = _SHAPES[difficulty][0]
    while True:
        counts = [dice.between(1, 3) for _ in range(kinds)]
        points = [[dice.between(2, 20) for _ in range(kinds)] for _ in range(2)]
        first, second = ([value * count for value, count in zip(point, counts, strict=True)] for point in points)
        # What matters most differs, so that there is something to find out.
        if sum(counts) >= 5 and first.index(max(first)) != second.index(max(second)):
            return {"theme": dice.between(0, len(ITEMS) - 1), "counts": counts, "points": points, **_shares(dice)}


def _contract(dice: Dice, difficulty: Difficulty) -> dict[str, Any]:
    issues, most = _SHAPES[difficulty]
    while True:
        sizes = [dice.between(3, most) for _ in range(issues)]
        directions = [dice.chance(0.5) for _ in range(issues)]
        agreeing = dice.between(0, issues - 1)
        points: list[list[list[int]]] = [[], []]
        for seat in range(2):
            steps = []
            for number, size in enumerate(sizes):
                # In one issue both seats want the same, and it weighs less, so that it does not decide everything.
                weight = dice.between(1, 3) if number == agreeing else dice.between(2, 9)
                steps.append([weight + dice.between(0, 2) for _ in range(size - 1)])
                upward = directions[number] if seat == 0 or number == agreeing else not directions[number]
                table = [0, *accumulate(steps[-1])]
                points[seat].append(table if upward else table[::-1])
            opposed = [step for number, step in enumerate(steps) if number != agreeing]
            # The hardest opponent must be able to give up the last step of some issue.
            if 10 * min(one[-1] for one in opposed) > 3 * sum(map(sum, opposed)):
                break
        else:
            return {"theme": dice.between(0, len(CONTRACTS) - 1), "points": points, **_shares(dice)}


def _price(dice: Dice, difficulty: Difficulty) -> dict[str, Any]:
    least, most = {"easy": (40, 60), "medium": (20, 50), "hard": (15, 50)}[difficulty]
    buyer_limit = dice.between(300, 800)
    zone = max(80, buyer_limit * dice.between(least, most) // 100)
    seller_limit = buyer_limit - zone
    asked = buyer_limit + zone * dice.between(5, 38) // 100
    offered = seller_limit - zone * dice.between(5, 38) // 100
    return {
        "theme": dice.between(0, len(GOODS) - 1), "limits": [buyer_limit, seller_limit], "opening": [offered, asked],
        "buyer": dice.between(0, 1),
    }  # fmt: skip


def _shares(dice: Dice) -> dict[str, Any]:
    """Return how far the fallbacks reach into what the hardest opponent leaves, in percent."""
    return {"shares": [dice.between(45, 90), dice.between(45, 90)]}


@lru_cache(maxsize=512)
def scenario_of(code: str) -> Scenario:
    """Return the negotiation of a code."""
    facts = json.loads(code)
    domain: Domain = facts["domain"]
    if domain == "price":
        return _priced(facts)
    if domain == "items":
        names, counts = ITEMS[facts["theme"]], facts["counts"]
        issues = [Issue(name, [str(n) for n in range(count + 1)]) for name, count in zip(names, counts, strict=False)]
        first, second = facts["points"]
        points = [
            [range(0, value * count + 1, value) for value, count in zip(first, counts, strict=True)],
            [range(value * count, -1, -value) for value, count in zip(second, counts, strict=True)],
        ]
        return _with_fallbacks(Scenario(domain, issues, points), facts["shares"])
    tables = facts["points"]
    named = zip(CONTRACTS[facts["theme"]], tables[0], strict=False)
    issues = [Issue(issue.name, issue.options[: len(table)]) for issue, table in named]
    return _with_fallbacks(Scenario(domain, issues, tables), facts["shares"])


def _priced(facts: dict[str, Any]) -> Scenario:
    buyer_limit, seller_limit = facts["limits"]
    offered, asked = facts["opening"]
    issue = Issue("price", [str(price) for price in range(HIGHEST_PRICE + 1)])
    buys = [range(buyer_limit, buyer_limit - HIGHEST_PRICE - 1, -1)]
    sells = [range(-seller_limit, HIGHEST_PRICE + 1 - seller_limit)]
    targets = (buyer_limit - offered, asked - seller_limit)
    buyer: int = facts["buyer"]
    points, openings = ([buys, sells], targets) if buyer == 0 else ([sells, buys], targets[::-1])
    return Scenario("price", [issue], points, targets=openings, buyer=buyer)


def goods_of(code: str) -> str:
    """Return what is sold in a negotiation over a price."""
    return GOODS[json.loads(code)["theme"]]


def _with_fallbacks(plain: Scenario, shares: list[int]) -> Scenario:
    """Return a negotiation with fallbacks: as good as possible, as long as every opponent leaves either seat a gain.

    No fallback is less than what the other seat's best deal leaves, so accepting a first offer never pays.
    """
    least = [plain.value(seat, plain.ideal(1 - seat)) for seat in range(2)]
    bare = Scenario(plain.domain, plain.issues, plain.points, least)
    bounds = [reachable_by_hardest(bare, seat) for seat in range(2)]
    for tenths in range(10, -1, -1):
        fallbacks = [
            low + (high - low) * share * tenths // 1000 for low, high, share in zip(least, bounds, shares, strict=True)
        ]
        found = Scenario(plain.domain, plain.issues, plain.points, fallbacks)
        if all(reachable_by_hardest(found, seat) - fallbacks[seat] >= min(3, tenths + 1) for seat in range(2)):
            return found
    raise AssertionError("a negotiation without fallbacks leaves no gain")
