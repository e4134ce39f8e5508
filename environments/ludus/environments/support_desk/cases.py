"""The case of a task: a company with its policy and database, the user, and what the user wants."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, Literal, NamedTuple

from ludus.environments.support_desk.domains import DOMAINS
from ludus.environments.support_desk.kinds import (
    IDENTITY,
    OUTCOMES,
    OWNER,
    Ask,
    Change,
    Decision,
    Domain,
    Draw,
    Kind,
    Outcome,
    Policy,
    Value,
    refuse,
)
from ludus.environments.support_desk.people import Customer, Person, customer, near_miss, person
from ludus.server import Difficulty

Mood = Literal["calm", "chatty", "upset", "brisk"]
MOODS: Final[tuple[Mood, ...]] = ("calm", "chatty", "upset", "brisk")
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for domain in DOMAINS.values() for kind in domain.kinds}
"""The kinds of requests by name."""

_MOST_DRAWS: Final = 120
_NAMES: Final = (
    "Alder", "Beacon", "Cobalt", "Drift", "Echo", "Fable", "Grove", "Halo", "Indigo", "Juniper", "Lark", "Mosaic",
)  # fmt: skip


class Refusal(NamedTuple):
    """A refusal in the log of the desk."""

    id: str
    record: str
    rule: str


class Escalation(NamedTuple):
    """A case that was passed on."""

    id: str
    record: str
    team: str


LOGS: Final[Mapping[str, type[Any]]] = {"customers": Customer, "refusals": Refusal, "escalations": Escalation}
"""The tables that all domains have."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that the user wants.

    Attributes:
        kind: its kind.
        ask: the request as it was drawn.
        owner: the customer to whom the record belongs.
        decision: what the policy makes of it in the end.
        change: what the user wants instead, once asked for consent.
        knows_id: whether the user knows the id of the record.
        pushes: how often the user insists after a refusal.
        remark: a sentence that the user adds to the request.
    """

    kind: Kind
    ask: Ask
    owner: Customer
    decision: Decision
    change: Change | None = None
    knows_id: bool = True
    pushes: int = 0
    remark: str = ""

    @property
    def id(self) -> str:
        """The id of the record."""
        return str(self.ask.record.id)

    @property
    def wish(self) -> Mapping[str, Value]:
        """What the user wants in the end."""
        return self.change.wish if self.change else self.ask.wish


@dataclass(frozen=True, slots=True)
class Case:
    """The case of a task.

    Attributes:
        domain: the business.
        company: the company.
        policy: its rules.
        user: the customer whom the user claims to be.
        requests: what the user wants, in this order.
        mood: how the user writes.
        patience: how many messages the user reads.
        first: what the user says first about `email` or `birth`, by mistake.
        wrong: what the user says about `birth` each time, because the user is not the customer.
        rows: the database.
    """

    domain: Domain
    company: str
    policy: Policy
    user: Customer
    requests: tuple[Request, ...]
    mood: Mood
    patience: int
    first: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[tuple[str, Any], ...] = ()


class _Maker:
    """Draws a case.

    Args:
        domain: the business.
        who: the user.
        rng: the generator.
    """

    def __init__(self, domain: Domain, who: Person, rng: random.Random) -> None:
        self.domain, self.rng = domain, rng
        today = date(2026, 1, 5) + timedelta(days=rng.randrange(330))
        self.policy = domain.draw_policy(rng, today).adding(
            visit=rng.randrange(12, 29), extension=10 * rng.randrange(100, 999) + 7
        )
        self.used: set[str] = set()
        self.user = customer(who, self.new_id("customers"), rng.choices(("standard", "gold"), (3, 2))[0], rng)

    def new_id(self, table: str) -> str:
        """Return an id that no row has yet."""
        prefix = {**self.domain.prefixes, "customers": "C"}[table]
        while (found := f"{prefix}-{self.rng.randrange(1000, 10000)}") in self.used:
            pass
        self.used.add(found)
        return found

    def draw(self, owner: Customer) -> Draw:
        return Draw(self.rng, self.policy, owner, self.new_id)

    def request(self, kind: Kind, outcome: Outcome, owner: Customer, labels: set[str]) -> Request | None:
        """Draw a request that the policy decides in a certain way; None if there was none."""
        for _ in range(_MOST_DRAWS):
            ask = kind.draft(self.draw(owner))
            decision = kind.decide(self.policy, owner, ask, ask.wish)
            if decision.outcome == outcome and getattr(ask.record, self.domain.label) not in labels:
                return Request(kind, ask, owner, decision)
        return None

    def changed(self, request: Request) -> Request:
        """Return the request with the change of mind, if it has one and the policy decides alike about both wishes.

        So a change of mind says nothing about the decision. What is refused or escalated has the same figures for both.
        """
        change, before = request.ask.change, request.decision
        if change is None:
            return request
        decision = request.kind.decide(self.policy, request.owner, request.ask, change.wish)
        if (decision.outcome, decision.code) != (before.outcome, before.code):
            return request
        if decision.outcome != "granted" and decision.figures != before.figures:
            return request
        return _with(request, decision=decision, change=change)

    def other(self, namesake: bool = False) -> Customer:
        """Draw another customer."""
        who = person(self.rng)
        if namesake:
            who = who._replace(name=self.user.name)
        elif who.name == self.user.name:
            return self.other()
        return customer(who, self.new_id("customers"), self.rng.choice(("standard", "gold")), self.rng)


def _with(request: Request, **values: Any) -> Request:
    names = ("kind", "ask", "owner", "decision", "change", "knows_id", "pushes", "remark")
    return Request(**{name: values.get(name, getattr(request, name)) for name in names})


def make_case(level: Difficulty, kind: str, outcome: Outcome, who: Person, seed: int) -> Case:
    """Return the case of a task.

    Args:
        level: the difficulty.
        kind: the kind of the first request.
        outcome: what the policy makes of the first request.
        who: the user.
        seed: what all else follows from.
    """
    rng = random.Random(seed)
    domain = DOMAINS[kind.partition("/")[0]]
    while True:
        maker = _Maker(domain, who, rng)
        found = _drawn(maker, level, KINDS[kind], outcome)
        if found is not None:
            return found


def _drawn(maker: _Maker, level: Difficulty, kind: Kind, outcome: Outcome) -> Case | None:
    rng, domain = maker.rng, maker.domain
    strangers = level != "easy" and outcome == "refused"
    trick = rng.choices(("", IDENTITY, OWNER), (6, 2, 2))[0] if strangers else ""
    others = [maker.other(namesake=level != "easy" and at < 2) for at in range(5)]
    owner = others[rng.randrange(5)] if trick == OWNER else maker.user
    kinds = [kind]
    if level == "hard" and trick != IDENTITY:
        kinds.append(rng.choice([one for one in domain.kinds if one is not kind]))
    labels: set[str] = set()
    requests = []
    for number, one in enumerate(kinds):
        mine = owner if number == 0 else maker.user
        drawn = "granted" if number == 0 and trick else outcome if number == 0 else rng.choice(OUTCOMES)
        request = maker.request(one, drawn, mine, labels)
        if request is None:
            return None
        labels.add(getattr(request.ask.record, domain.label))
        requests.append(_complicated(maker, level, request, trick if number == 0 else ""))
    rows = _rows(maker, requests, others, labels)
    mood = rng.choice(MOODS) if level != "easy" else rng.choice(("calm", "chatty"))
    return Case(
        domain=domain,
        company=domain.company.format(name=rng.choice(_NAMES)),
        policy=maker.policy,
        user=maker.user,
        requests=tuple(requests),
        mood=mood,
        patience={"calm": 8, "chatty": 8, "upset": 6, "brisk": 4}[mood] + 8 * len(requests),
        first=_mistyped(maker, level, trick),
        wrong={"birth": near_miss(maker.user.birth, rng)} if trick == IDENTITY else {},
        rows=tuple(rows),
    )


def _complicated(maker: _Maker, level: Difficulty, request: Request, trick: str) -> Request:
    """Return a request with what makes it harder at a level."""
    rng, policy = maker.rng, maker.policy
    if level == "easy":
        return request
    pushes = 1 if level == "medium" else 2
    remark = request.ask.lie if rng.random() < 0.5 else ""
    if trick == IDENTITY:
        return _with(request, decision=refuse(IDENTITY, policy["visit"]), pushes=pushes, remark=remark)
    if trick == OWNER:
        family = rng.choice(("It is my sister's, but she lets me do this.", "It is in my husband's name.", remark))
        return _with(request, decision=refuse(OWNER, policy["extension"]), pushes=pushes, remark=family)
    if rng.random() < 0.5:
        request = maker.changed(request)
    return _with(request, pushes=pushes, remark=remark, knows_id=rng.random() < 0.5)


def _mistyped(maker: _Maker, level: Difficulty, trick: str) -> dict[str, str]:
    """Return what the user gets wrong at first."""
    if level == "easy" or trick == IDENTITY or maker.rng.random() < 0.6:
        return {}
    slot = maker.rng.choice(("email", "birth"))
    return {slot: near_miss(getattr(maker.user, slot), maker.rng)}


def _rows(maker: _Maker, requests: list[Request], others: list[Customer], labels: set[str]) -> list[tuple[str, Any]]:
    rng, domain = maker.rng, maker.domain
    rows: list[tuple[str, Any]] = [("customers", one) for one in (maker.user, *others)]
    taken = set(labels)
    records = [request.ask.record for request in requests]
    for who in (maker.user, maker.user, *others):
        record = domain.filler(maker.draw(who))
        if getattr(record, domain.label) not in taken:
            taken |= {getattr(record, domain.label)} if who is maker.user else set()
            records.append(record)
    rng.shuffle(records)
    rows += [(domain.table, one) for one in records]
    rows += [row for request in requests for row in request.ask.rows]
    return rows
