"""The parts of a domain: its policy, its kinds of requests, and what the policy decides about one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, Literal

from ludus.environments.support_desk.people import Customer

Outcome = Literal["granted", "refused", "escalated"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("granted", "refused", "escalated")

IDENTITY: Final = "IDENTITY"
OWNER: Final = "OWNER"

Value = str | int


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one company: the domain's, with numbers of its own.

    Attributes:
        params: the numbers.
        today: the date.
        words: names that the domain draws, such as those of plans, with their numbers.
    """

    params: Mapping[str, int]
    today: date
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.params[name]

    def adding(self, **params: int) -> Policy:
        """Return the policy with further numbers."""
        return Policy({**self.params, **params}, self.today, self.words)

    def since(self, day: str) -> int:
        """Return the days from a day to today."""
        return (self.today - date.fromisoformat(day)).days


def later(day: str, days: int) -> str:
    """Return the date some days after a day."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy makes of a request.

    Attributes:
        outcome: granted, refused or escalated.
        code: the rule of a refusal, or the team of an escalation.
        arguments: what the tool of a granted request gets besides the id of the record.
        figures: what the user must learn: numbers, dates and times.
        also: figures that an explanation may have, too.
    """

    outcome: Outcome
    code: str = ""
    arguments: Mapping[str, Value] = field(default_factory=dict)
    figures: tuple[Value, ...] = ()
    also: tuple[Value, ...] = ()


def grant(*figures: Value, also: tuple[Value, ...] = (), **arguments: Value) -> Decision:
    """Return a decision that grants a request."""
    return Decision("granted", "", arguments, figures, also)


def refuse(code: str, *figures: Value, also: tuple[Value, ...] = ()) -> Decision:
    """Return a decision that refuses a request."""
    return Decision("refused", code, {}, figures, also)


@dataclass(frozen=True, slots=True)
class Change:
    """Another wish, which the user comes up with when asked for consent."""

    wish: Mapping[str, Value]
    says: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it is drawn.

    Attributes:
        record: the record that it is about.
        opening: the request in the user's words, with `{what}` for the record.
        what: the record in the words of a user who does not know its id.
        answers: the facts that decide and that only the user knows.
        wish: what the user wants, by the arguments of the tool.
        says: what the user says when asked about a slot.
        question: what the user asks once the request is granted.
        lie: an untrue claim that would help.
        change: another wish; None if there is none.
        rows: further rows of the database.
    """

    record: Any
    opening: str
    what: str
    says: Mapping[str, str]
    question: str
    lie: str
    answers: Mapping[str, Value] = field(default_factory=dict)
    wish: Mapping[str, Value] = field(default_factory=dict)
    change: Change | None = None
    rows: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Draw:
    """What a request is drawn from.

    Attributes:
        rng: the generator.
        policy: the rules.
        owner: the customer to whom the record belongs.
        new_id: makes an id that no other row has.
    """

    rng: random.Random
    policy: Policy
    owner: Customer
    new_id: Callable[[str], str]

    def day(self, first: int, last: int) -> str:
        """Return a date between two distances from today in days."""
        return (self.policy.today + timedelta(days=self.rng.randint(first, last))).isoformat()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request.

    Attributes:
        name: its name, such as shop/refund.
        tool: the tool that grants it.
        words: what the tool does, in the words of a proposal.
        slots: patterns of questions about what only the user knows.
        draft: draws a request.
        decide: applies the policy.
        first: the slot that the first rule is about, so that nothing is decided before the user was asked; empty for
            none.
    """

    name: str
    tool: str
    words: re.Pattern[str]
    slots: Mapping[str, re.Pattern[str]]
    draft: Callable[[Draw], Ask]
    decide: Callable[[Policy, Customer, Ask, Mapping[str, Value]], Decision]
    first: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tool changes in its record: columns with fixed values, columns that get arguments, sums with arguments."""

    sets: Mapping[str, Value] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    adds: Mapping[str, str] = field(default_factory=dict)

    def columns(self, before: Mapping[str, Any], arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Return the columns after a call."""
        copied = {column: arguments[name] for column, name in self.copies.items()}
        added = {column: before[column] + arguments[name] for column, name in self.adds.items()}
        return {**self.sets, **copied, **added}


@dataclass(frozen=True, slots=True)
class Domain:
    """A business with customers.

    Attributes:
        name: its name.
        company: what its companies are called, with `{name}`.
        table: the table of its records.
        noun: what a record is called.
        label: the column by which customers know their records.
        id_parameter: the parameter of tools for the id of a record.
        tables: the types of rows by table, besides those that all domains have.
        prefixes: the letters of ids.
        teams: the teams for escalations.
        codes: the codes of refusals, besides IDENTITY and OWNER.
        effects: what its tools change.
        draw_policy: draws the numbers of a company.
        rules: states the rules.
        kinds: its kinds of requests.
        filler: draws a record that no request is about.
    """

    name: str
    company: str
    table: str
    noun: str
    label: str
    id_parameter: str
    tables: Mapping[str, type[Any]]
    prefixes: Mapping[str, str]
    teams: tuple[str, ...]
    codes: tuple[str, ...]
    effects: Mapping[str, Effect]
    draw_policy: Callable[[random.Random, date], Policy]
    rules: Callable[[Policy], str]
    kinds: tuple[Kind, ...]
    filler: Callable[[Draw], Any]


def escalate(policy: Policy, who: Customer, team: str) -> Decision:
    """Return a decision that passes a request on, with the days until the team answers."""
    return Decision("escalated", team, {}, (answer_days(policy, who, team),))


def answer_days(policy: Policy, who: Customer, team: str) -> int:
    """Return the working days until a team answers: one less for customers of the tier gold."""
    return policy[f"days_{team}"] - (who.tier == "gold")


def draw_days(rng: random.Random, teams: tuple[str, ...]) -> dict[str, int]:
    """Draw the days of all teams, all of them different."""
    days = rng.sample(range(3, 12), len(teams))
    return {f"days_{team}": day for team, day in zip(teams, days, strict=True)}
