"""The customers of a company: the user, namesakes and others."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Final, NamedTuple

from ludus.environments._names import FIRST_NAMES, LAST_NAMES

CITIES: Final = (
    "Aldburg", "Brixen", "Corvale", "Dunmore", "Eastfall", "Fernhill", "Greyport", "Holmstad", "Ivermoor", "Kestrel",
)  # fmt: skip
STREETS: Final = ("Mill Lane", "Oak Street", "Harbor Road", "Station Road", "Park Avenue", "Church Street", "Elm Walk")
_MAILS: Final = ("mailbox.example", "post.example", "inbox.example", "letters.example")


class Customer(NamedTuple):
    """A customer; `tier` is standard or gold."""

    id: str
    name: str
    email: str
    birth: str
    city: str
    address: str
    tier: str


class Person(NamedTuple):
    """What determines the split of a task: no two splits share a person."""

    name: str
    birth: str
    city: str

    def text(self) -> str:
        """Return the person as one text."""
        return "|".join(self)


def person(rng: random.Random) -> Person:
    """Draw a person."""
    born = date(1945, 1, 1) + timedelta(days=rng.randrange(60 * 365))
    return Person(f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}", born.isoformat(), rng.choice(CITIES))


def customer(who: Person, id: str, tier: str, rng: random.Random) -> Customer:
    """Make a customer of a person."""
    first, last = who.name.lower().split()
    email = f"{rng.choice((first, first[0]))}.{last}{rng.randrange(10, 1000)}@{rng.choice(_MAILS)}"
    return Customer(id, who.name, email, who.birth, who.city, street(rng, who.city), tier)


def street(rng: random.Random, city: str) -> str:
    """Return an address in a city."""
    return f"{rng.randrange(1, 200)} {rng.choice(STREETS)}, {city}"


def near_miss(value: str, rng: random.Random) -> str:
    """Return a date or an address of mail that differs a little."""
    if "@" in value:
        head, _, tail = value.partition("@")
        return f"{head}{rng.randrange(1, 10)}@{tail}"
    moved = date.fromisoformat(value) + timedelta(days=rng.choice((-2, -1, 1, 2, 10, 31)))
    return moved.isoformat()
