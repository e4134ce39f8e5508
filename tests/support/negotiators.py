"""Negotiations without a server, and simple policies for them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from ludus.environments.negotiation.environment import MESSAGES, Negotiation, NegotiationMatch
from ludus.environments.negotiation.reactions import NEEDS, meeting
from ludus.environments.negotiation.scenario import SEATS
from ludus.environments.negotiation.tasks import NegotiationTask

Turn = Callable[[NegotiationMatch, str, random.Random], None]
"""Takes the turn of a seat."""


def match_of(
    task: NegotiationTask, played: Sequence[str] = SEATS, opponent: str = "", seed: int = 0
) -> NegotiationMatch:
    """Return a match of a task, set up."""
    match = NegotiationMatch()
    match.id, match.task, match.seed, match.played = "match", task, seed, frozenset(played)
    match.opponent = (opponent or task.opponent) if len(played) < len(SEATS) else ""
    match.setup()
    return match


def seat_of(match: NegotiationMatch, seat: str) -> Negotiation:
    """Return the environment of one seat of a match, set up."""
    found = Negotiation()
    found.task, found.seed, found.match, found.seat = match.task, match.seed, match, seat
    found.setup()
    return found


def earned(task: NegotiationTask, turn: Turn, seat: str = "first", opponent: str = "", seed: int = 0) -> float:
    """Return the reward of a policy against a scripted opponent."""
    match = match_of(task, (seat,), opponent, seed)
    rng = random.Random(seed)
    while not match.finished:
        turn(match, seat, rng)
    assert match.rewards is not None
    value = match.rewards[seat].value
    assert value is not None
    return value


def guess(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Accept what is open in one turn of five; else offer any deal."""
    if match.open is not None and rng.random() < 0.2:
        match.accept(seat)
    elif match.last_turn:
        match.walk_away(seat)
    else:
        match.propose(seat, rng.choice(match.scenario.deals))


def accept_what_gains(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Accept what is better than the fallback; else offer any such deal."""
    scenario, me = match.scenario, SEATS.index(seat)
    if match.open is not None and scenario.surplus(me, match.open.deal) > 0:
        match.accept(seat)
    elif match.last_turn:
        match.walk_away(seat)
    else:
        most = scenario.targets[me]
        gaining = [deal for deal in scenario.deals if scenario.fallbacks[me] < scenario.value(me, deal) <= most]
        match.propose(seat, rng.choice(gaining))


def step_down(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Concede evenly from the best deal to the fallback, without a look at what the other side offers."""
    if _last_chance(match, seat):
        return
    scenario, me = match.scenario, SEATS.index(seat)
    least = _level(match, me)
    worth = [(value, deal) for value, deal in zip(scenario.values[me], scenario.deals, strict=True) if value >= least]
    lowest = min(worth)[0]
    match.propose(seat, rng.choice([deal for value, deal in worth if value == lowest]))


def look_and_step_down(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Concede evenly too, but offer those deals of the same worth that are closest to the other side's offer."""
    scenario, me = match.scenario, SEATS.index(seat)
    least, near = _level(match, me), match.open
    if near is not None and scenario.value(me, near.deal) >= least:
        match.accept(seat)
    elif not _last_chance(match, seat):
        worth = [(value, one) for value, one in zip(scenario.values[me], scenario.deals, strict=True) if value >= least]
        if near is None:
            match.propose(seat, scenario.ideal(me))
            return
        gaps = [sum(abs(a - b) for a, b in zip(one, near.deal, strict=True)) for _, one in worth]
        match.propose(seat, max(one for one, gap in zip(worth, gaps, strict=True) if gap == min(gaps))[1])


def _level(match: NegotiationMatch, me: int) -> float:
    scenario = match.scenario
    left = 1 - (match.turns // 2) / match.task.rounds
    return scenario.fallbacks[me] + (scenario.targets[me] - scenario.fallbacks[me]) * left


def _last_chance(match: NegotiationMatch, seat: str) -> bool:
    """Take the last turn of a seat, if it is its last."""
    if match.turns < 2 * (match.task.rounds - 1):
        return False
    if match.open is not None and match.scenario.surplus(SEATS.index(seat), match.open.deal) > 0:
        match.accept(seat)
        return True
    if match.last_turn:
        match.walk_away(seat)
    return match.last_turn or match.finished


SCRIPT_LEVELS = (0.62, 0.62, 0.31, 0.31, 0.19)
"""The shares of its own range that the best script asks for, turn by turn, found by a random search."""
READER_LEVELS = (0.77, 0.77, 0.29, 0.29, 0.17)
"""Those of `ask_and_meet`, found by the same search."""


def best_script(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Name one need after the other without a question, and go down in three steps, without a look at what is said."""
    number = match.turns // 2
    if number < 3 and match.said == 0:
        match.say(seat, meeting(NEEDS[5 * number % len(NEEDS)]))
    _offer_at(match, seat, SCRIPT_LEVELS)


def ask_and_meet(match: NegotiationMatch, seat: str, rng: random.Random) -> None:
    """Ask what the other side needs, meet that, and go down in three steps."""
    heard = " ".join(event.text for event in match.events if event.kind == "message" and event.seat != seat)
    needs = re.findall(r"I also need ([^.]*)\.", heard)
    said = {event.text for event in match.events if event.kind == "message" and event.seat == seat}
    for need in needs:
        if f"You get {need}." not in said and match.said < MESSAGES:
            match.say(seat, f"You get {need}.")
    if len(needs) < 2 and match.said < MESSAGES:
        match.say(seat, "What matters most to you, and what do you need?")
    _offer_at(match, seat, READER_LEVELS)


def _offer_at(match: NegotiationMatch, seat: str, levels: Sequence[float]) -> None:
    """Accept what is worth the level of the turn, or else offer such a deal, close to the other side's offer."""
    scenario, me = match.scenario, SEATS.index(seat)
    low, high = scenario.fallbacks[me], scenario.targets[me]
    least, near = low + (high - low) * levels[min(match.turns // 2, len(levels) - 1)], match.open
    if near is not None and scenario.value(me, near.deal) >= max(least, low + 1):
        match.accept(seat)
    elif not _last_chance(match, seat):
        worth = [(value, one) for value, one in zip(scenario.values[me], scenario.deals, strict=True) if value >= least]
        if near is None:
            match.propose(seat, min(worth)[1])
            return
        gaps = [sum(abs(a - b) for a, b in zip(one, near.deal, strict=True)) for _, one in worth]
        match.propose(seat, max(one for one, gap in zip(worth, gaps, strict=True) if gap == min(gaps))[1])
