"""A world: the rows of a shop, a handbook and an issue tracker, drawn from a generator of random numbers."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from ludus.environments._names import FIRST_NAMES, LAST_NAMES
from ludus.environments._store import Store, table_script
from ludus.environments.browser.sites import words
from ludus.environments.browser.sites.tables import (
    PREFIXES,
    TABLES,
    Addresses,
    CartLines,
    Comments,
    Coupons,
    IssueLabels,
    Issues,
    Milestones,
    OrderLines,
    Orders,
    Pages,
    People,
    Products,
    Reviews,
    Revisions,
)
from ludus.server import Difficulty

ME: Final = "U-1"
"""The user whom the agent works for."""


class Size(NamedTuple):
    """How much there is at a level."""

    products: int
    orders: int
    others: int
    issues: int
    warehouses: int
    edits: int


SIZES: Final[dict[Difficulty, Size]] = {
    "easy": Size(24, 4, 2, 16, 4, 2), "medium": Size(60, 8, 4, 40, 8, 3), "hard": Size(110, 14, 6, 80, 14, 5)
}  # fmt: skip
_SHIPPED: Final = ("processing", "shipped", "delivered", "delivered")


@dataclass
class World:
    """The rows at the start, by kind."""

    name: str
    level: Difficulty
    rng: random.Random
    today: date = date(2026, 3, 2)
    people: list[People] = field(default_factory=list)
    products: list[Products] = field(default_factory=list)
    reviews: list[Reviews] = field(default_factory=list)
    orders: list[Orders] = field(default_factory=list)
    order_lines: list[OrderLines] = field(default_factory=list)
    addresses: list[Addresses] = field(default_factory=list)
    coupons: list[Coupons] = field(default_factory=list)
    pages: list[Pages] = field(default_factory=list)
    revisions: list[Revisions] = field(default_factory=list)
    issues: list[Issues] = field(default_factory=list)
    issue_labels: list[IssueLabels] = field(default_factory=list)
    comments: list[Comments] = field(default_factory=list)
    milestones: list[Milestones] = field(default_factory=list)
    cart_lines: list[CartLines] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """The facts of each page of the handbook, by its title."""

    @property
    def me(self) -> People:
        """The user whom the agent works for."""
        return self.people[0]

    def store(self) -> Store:
        """Return the database at the start."""
        store = Store(_empty(), TABLES, PREFIXES)
        store.add_all((name, tuple(row)) for name in TABLES for row in getattr(self, name, ()))
        return store

    def add(self, table: str, row: Any) -> None:
        """Add a row."""
        getattr(self, table).append(row)

    def replace(self, table: str, row: Any, **values: Any) -> Any:
        """Change a row, and return it."""
        rows = getattr(self, table)
        new = row._replace(**values)
        rows[rows.index(row)] = new
        return new

    def product(self, id: str) -> Products:
        """Return a product by its id."""
        return self.products[int(id[2:]) - 1]

    def person(self, id: str) -> People:
        """Return a person by the id."""
        return self.people[int(id[2:]) - 1]

    def my_orders(self) -> list[Orders]:
        """Return the user's orders, the newest first."""
        return sorted((order for order in self.orders if order.person == ME), key=lambda one: one.day, reverse=True)

    def lines(self, order: Orders) -> list[OrderLines]:
        """Return the lines of an order."""
        return [order_line for order_line in self.order_lines if order_line.order_id == order.id]

    def page(self, title: str) -> Pages:
        """Return a page by its title."""
        return next(one for one in self.pages if one.title == title)

    def labels_of(self, issue: Issues) -> set[str]:
        """Return the labels of an issue."""
        return {issue_label.label for issue_label in self.issue_labels if issue_label.issue == issue.id}


@cache
def _empty() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(table_script(TABLES))
    image = connection.serialize()
    connection.close()
    return image


def money(cents: int) -> str:
    """Return an amount in dollars."""
    return f"${cents // 100}.{cents % 100:02d}"


def make_world(name: str, level: Difficulty, rng: random.Random) -> World:
    """Draw a world."""
    world, size = World(name, level, rng), SIZES[level]
    world.today = date(2026, 1, 5) + timedelta(days=rng.randrange(300))
    _people(world)
    _products(world, size)
    _reviews(world, size)
    _orders(world, size)
    _handbook(world, size)
    _issues(world, size)
    return world


def day(world: World, ago: int) -> str:
    """Return the date of some days ago."""
    return (world.today - timedelta(days=ago)).isoformat()


def _people(world: World) -> None:
    rng = world.rng
    firsts, lasts = rng.sample(FIRST_NAMES, 16), rng.sample(LAST_NAMES, 16)
    for number, (first, last) in enumerate(zip(firsts, lasts, strict=True), 1):
        phone = f"555-{rng.randrange(1000, 10000)}"
        email = f"{first.lower()}.{last.lower()}@example.com"
        world.people.append(People(f"U-{number}", f"{first} {last}", email, phone, int(number > 1)))
    cities = rng.sample(words.CITIES, 5)
    for number, label in enumerate(("Home", "Office", "Parents"), 1):
        street = f"{rng.randrange(1, 200)} {rng.choice(words.STREETS)}"
        world.addresses.append(
            Addresses(f"A-{number}", ME, label, street, cities[number], f"{rng.randrange(10**4, 10**5)}")
        )
    other = Addresses("A-4", "U-2", "Home", f"{rng.randrange(1, 200)} {words.STREETS[0]}", cities[4], "10101")
    world.addresses.append(other)


def _products(world: World, size: Size) -> None:
    rng = world.rng
    brands = rng.sample(words.BRANDS, 6)
    kinds = [
        (category, f"{brand} {adjective} {noun}", brand)
        for category, nouns in words.CATEGORIES.items() for noun in nouns for brand in brands
        for adjective in words.ADJECTIVES
    ]  # fmt: skip
    prices = rng.sample(range(500, 15000, 10), size.products)
    for number, (category, name, brand) in enumerate(rng.sample(kinds, size.products), 1):
        color = rng.choice(words.COLORS)
        stock = 0 if rng.random() < 0.12 else rng.randrange(6, 60)
        text = f"A {color} {name.split(' ', 2)[2].lower()} by {brand}, with a guarantee of {rng.randrange(2, 7)} years."
        world.products.append(
            Products(f"P-{number}", name, category, brand, color, prices[number - 1] + 5 * rng.randrange(2), stock,
                     rng.randrange(25, 51), text)
        )  # fmt: skip
    codes = rng.sample(("SAVE", "DEAL", "TREAT", "SMILE", "FRESH", "HELLO"), 4)
    for code, percent, minimum in zip(codes, rng.sample((5, 10, 15, 20), 4), (0, 3000, 6000, 12000), strict=True):
        category = rng.choice(("", "", *words.CATEGORIES))
        world.coupons.append(Coupons(f"{code}{percent}", percent, minimum, category))


def _reviews(world: World, size: Size) -> None:
    rng = world.rng
    for product in world.products:
        count = rng.choice((0, 1, 2, 3, 7 if size.products > 50 else 4))
        for author, title in zip(
            rng.sample(world.people[1:], count), rng.sample(words.REVIEW_TITLES, count), strict=True
        ):
            text = rng.choice(words.REVIEW_TEXTS).format(n=rng.randrange(2, 40))
            if rng.random() < 0.04:
                text = rng.choice(words.INJECTIONS)
            number = len(world.reviews) + 1
            world.reviews.append(
                Reviews(f"R-{number}", product.id, author.id, rng.randrange(1, 6), title, text,
                        day(world, rng.randrange(2, 400)))
            )  # fmt: skip


def _orders(world: World, size: Size) -> None:
    rng = world.rng
    count = size.orders + size.others
    owners = [ME] * size.orders + [rng.choice(world.people[1:]).id for _ in range(size.others)]
    rng.shuffle(owners)
    days = sorted(rng.sample(range(3, 260), count), reverse=True)
    first = rng.randrange(1000, 9000)
    for number, (owner, ago) in enumerate(zip(owners, days, strict=True)):
        id = f"O-{first + 3 * number}"
        chosen = rng.sample(world.products, rng.randrange(1, 4))
        total = 0
        for product in chosen:
            quantity, price = rng.randrange(1, 4), product.price
            total += quantity * price
            world.order_lines.append(
                OrderLines(f"L-{len(world.order_lines) + 1}", id, product.id, quantity, price)
            )  # fmt: skip
        shipping = rng.choice(tuple(words.SHIPPING))
        status = "delivered" if ago > 60 else rng.choice(_SHIPPED)
        if rng.random() < 0.1:
            status = "cancelled"
        tracking = f"TR{rng.randrange(10**6, 10**7)}" if status in ("shipped", "delivered") else ""
        address = f"A-{rng.randrange(1, 4)}" if owner == ME else "A-4"
        world.orders.append(
            Orders(id, owner, day(world, ago), status, address, shipping, "", total + words.SHIPPING[shipping], tracking)
        )  # fmt: skip


def body_of(intro: str, facts: dict[str, str], notes: str) -> str:
    """Return the text of a page: an introduction, facts and notes."""
    lines = "\n".join(f"{name}: {value}" for name, value in facts.items())
    return f"{intro}\n\n== Facts ==\n{lines}\n\n== Notes ==\n{notes}"


def _handbook(world: World, size: Size) -> None:
    rng = world.rng
    staff = world.people[1:]
    teams = dict(zip(words.TEAMS, rng.sample(staff, 6), strict=True))
    for team, lead in teams.items():
        deputy = rng.choice([one for one in staff if one is not lead])
        facts = {"Lead": f"[[{lead.name}]]", "Deputy": f"[[{deputy.name}]]", "Channel": f"#{team.lower()}-{rng.randrange(10, 99)}",
                 "Component": team.lower(), "Budget": f"{rng.randrange(20, 900)} thousand dollars"}  # fmt: skip
        _page(world, size, f"Team {team}", "Teams", f"The {team} team keeps {world.name} going.", facts)
    for person in staff:
        team = rng.choice(words.TEAMS)
        facts = {"Role": rng.choice(words.ROLES), "Team": f"[[Team {team}]]", "Room": f"{rng.choice('ABCD')}{rng.randrange(100, 500)}",
                 "Extension": str(rng.randrange(1000, 10000))}  # fmt: skip
        _page(world, size, person.name, "People", f"{person.name} works for {world.name}.", facts)
    cities = rng.sample(words.CITIES, size.warehouses)
    capacities = rng.sample(range(400, 9900, 10), size.warehouses)
    for city, capacity in zip(cities, capacities, strict=True):
        facts = {"Capacity": f"{capacity} pallets", "Opened": str(rng.randrange(1970, 2022)), "Manager": f"[[{rng.choice(staff).name}]]",
                 "Gates": str(rng.randrange(4, 40))}  # fmt: skip
        _page(
            world,
            size,
            f"Warehouse {city}",
            "Warehouses",
            f"This warehouse in {city} serves the region around it.",
            facts,
        )
    for brand in sorted({product.brand for product in world.products}):
        facts = {"Country": rng.choice(words.COUNTRIES), "Buyer": f"[[{rng.choice(staff).name}]]",
                 "Lead time": f"{rng.randrange(3, 60)} days", "Contract": f"CT-{rng.randrange(1000, 10000)}"}  # fmt: skip
        _page(world, size, f"Supplier {brand}", "Suppliers", f"{brand} delivers goods for {world.name}.", facts)


def _page(world: World, size: Size, title: str, category: str, intro: str, facts: dict[str, str]) -> None:
    rng = world.rng
    team = rng.choice(words.TEAMS)
    notes = f"Questions go to [[Team {team}]]. Reviewed every {rng.randrange(2, 24)} months."
    if rng.random() < 0.04:
        notes += f" {rng.choice(words.INJECTIONS)}"
    id, body = f"W-{len(world.pages) + 1}", body_of(intro, facts, notes)
    world.pages.append(Pages(id, title, category, body))
    world.facts[title] = facts
    count = rng.randrange(1, size.edits + 1)
    days = sorted(rng.sample(range(5, 700), count), reverse=True)
    changed = list(facts)
    for number, ago in enumerate(days, 1):
        old = dict(facts)
        if number < count:
            name = changed[(number + len(title)) % len(changed)]
            old[name] = _older(rng, facts[name])
        author = rng.choice(world.people[1:])
        summary = "Created" if number == 1 else rng.choice(("Update", "Correction", "New figures", "Checked"))
        world.revisions.append(
            Revisions(f"V-{len(world.revisions) + 1}", id, number, author.id, day(world, ago), summary,
                      body if number == count else body_of(intro, old, notes))
        )  # fmt: skip


def _older(rng: random.Random, value: str) -> str:
    number = next((part for part in value.split() if part.isdigit()), None)
    return value.replace(number, str(int(number) + rng.randrange(1, 90)), 1) if number else f"{value} (to be confirmed)"


def _issues(world: World, size: Size) -> None:
    rng = world.rng
    for number, title in enumerate(words.MILESTONES, 1):
        due = world.today + timedelta(days=30 * number + rng.randrange(20))
        world.milestones.append(Milestones(f"M-{number}", title, due.isoformat()))
    titles = [one.format(thing=thing) for one in words.ISSUE_SUBJECTS for thing in words.ISSUE_THINGS]
    days = sorted(rng.sample(range(2, 500), size.issues), reverse=True)
    for number, (title, ago) in enumerate(zip(rng.sample(titles, size.issues), days, strict=True), 1):
        closed = rng.random() < 0.3
        issue = Issues(
            f"I-{number}", title, f"Seen with version {rng.randrange(1, 9)}.{rng.randrange(10)}. {rng.choice(words.COMMENTS)}",
            "closed" if closed else "open", rng.choice(words.REASONS[:2]) if closed else "", rng.choice(world.people[1:]).id,
            rng.choice(("", *(person.id for person in world.people))), rng.choice(("", "M-1", "M-2", "M-3", "M-4")),
            rng.choice(words.TEAMS).lower(), day(world, ago),
        )  # fmt: skip
        world.issues.append(issue)
        for label in rng.sample(words.LABELS, rng.randrange(0, 3)):
            world.issue_labels.append(IssueLabels(f"G-{len(world.issue_labels) + 1}", issue.id, label))
        for _ in range(rng.randrange(0, 3)):
            text = rng.choice(words.INJECTIONS) if rng.random() < 0.03 else rng.choice(words.COMMENTS)
            world.comments.append(
                Comments(f"K-{len(world.comments) + 1}", issue.id, rng.choice(world.people[1:]).id,
                         day(world, rng.randrange(0, ago)), text)
            )  # fmt: skip


def sorted_by(rows: Sequence[Any], name: str, last_first: bool = False) -> list[Any]:
    """Return rows in the order of a column."""
    return sorted(rows, key=lambda one: getattr(one, name), reverse=last_first)
