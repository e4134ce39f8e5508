"""The prompt of a seat, which is about its own side only."""

from __future__ import annotations

from typing import Final

from ludus.environments.negotiation.drawing import HIGHEST_PRICE, goods_of
from ludus.environments.negotiation.scenario import Scenario
from ludus.environments.negotiation.tasks import NegotiationTask
from ludus.environments.negotiation.terms import write_terms

_RULES: Final = """\
Both sides take turns, and `first` begins. Each side has {rounds} turns. In your turn, do one of these:
- `propose`: make an offer. It replaces your earlier ones, and the other side can accept it in its next turn only.
- `accept`: accept the open offer of the other side, by its number. The deal is made.
- `reject`: decline the open offer without making one.
- `walk_away`: end the negotiation without a deal.
With `message` you can say something before your turn ends, up to {messages} times a turn. The other side reads it.
If nothing is agreed in the last turn, there is no deal."""

_ALONE: Final = """
The other side reacts to what you offer and say. It answers concessions with concessions, by its own points; offers that
you repeat do not move it. Ask it what matters to it and what it needs. Where a message of yours meets a need, it says
so and concedes more. An opening that leaves it nothing makes it hold back, and so do many small improvements."""
_TOGETHER: Final = """
The other side takes its time: call `wait` to see what it does."""


def briefing(task: NegotiationTask, scenario: Scenario, seat: int, messages: int, alone: bool) -> str:
    """Return what a seat may know, its aim and the rules.

    Args:
        task: the task.
        scenario: its negotiation.
        seat: the seat, from 0.
        messages: how many messages a turn may have.
        alone: whether the other side is scripted.
    """
    about = {"items": _items, "contract": _contract, "price": _price}[task.domain]
    rules = _RULES.format(rounds=task.rounds, messages=messages)
    return f"{about(task, scenario, seat)}\n\n{_aim(task)}\n\n{rules}{_ALONE if alone else _TOGETHER}"


def _items(task: NegotiationTask, scenario: Scenario, seat: int) -> str:
    pool = ", ".join(f"{issue.name} ({len(issue.options) - 1})" for issue in scenario.issues)
    worth = ", ".join(
        f"{issue.name} {abs(table[1] - table[0])}"
        for issue, table in zip(scenario.issues, scenario.points[seat], strict=True)
    )
    everything = write_terms(scenario, seat, scenario.ideal(seat))
    return (
        f"You and another side divide these items: {pool}.\n"
        f"Points that one of each is worth to you: {worth}. The other side has points of its own, which you do not "
        "see, and it does not see yours.\n"
        f"Without a deal you get {scenario.fallbacks[seat]} points.\n"
        "In the terms of a deal, the numbers are what you get yourself, and the other side gets the rest. For "
        f"example, `{everything}` gives you everything."
    )


def _contract(task: NegotiationTask, scenario: Scenario, seat: int) -> str:
    lines = []
    for issue, table in zip(scenario.issues, scenario.points[seat], strict=True):
        options = ", ".join(f"{option} = {points}" for option, points in zip(issue.options, table, strict=True))
        lines.append(f"- {issue.name}: {options}")
    middle = write_terms(scenario, seat, tuple(len(issue.options) // 2 for issue in scenario.issues))
    listed = "\n".join(lines)
    return (
        "You and another side negotiate a contract. Its issues, and the points that their options are worth to you:\n"
        f"{listed}\n"
        "The other side has points of its own, which you do not see, and it does not see yours. On some issues you may "
        "want the same.\n"
        f"Without a deal you get {scenario.fallbacks[seat]} points.\n"
        f"The terms of a deal name one option for each issue, such as `{middle}`."
    )


def _price(task: NegotiationTask, scenario: Scenario, seat: int) -> str:
    buys = seat == scenario.buyer
    limit = scenario.points[seat][0].index(0)
    verb, other, bound = ("buy", "seller", "more") if buys else ("sell", "buyer", "less")
    gain = f"{limit} minus the price" if buys else f"the price minus {limit}"
    return (
        f"You want to {verb} {goods_of(task.scenario)}, and negotiate the price with a {other}.\n"
        f"Your limit is {limit}: at a price of {limit} a deal is worth nothing to you, and with {bound} you lose. Your "
        f"points are {gain}. The {other} has a limit too, which you do not see, and it does not see yours.\n"
        "Without a deal you get 0 points.\n"
        f"The terms of a deal are a whole price from 0 to {HIGHEST_PRICE}, such as `price=500`."
    )


def _aim(task: NegotiationTask) -> str:
    if task.scoring == "shared":
        return (
            "Both sides get the same reward: the more points the two sides have together above what they get without a "
            "deal, the more, up to 1 for the best deal that is within reach. A deal that leaves a side no more than it "
            "gets without one earns nothing."
        )
    zero_sum = " What one side gains, the other one loses." if task.domain == "price" else ""
    return (
        "Your reward grows with your points above what you get without a deal, up to 1 for the best deal that is "
        f"within reach.{zero_sum} No deal earns nothing."
    )
