"""The tables of the sites. Prices are in cents, days are ISO dates, and ratings are tenths of stars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ludus.environments._store import Tables


class People(NamedTuple):
    """The users of all sites."""

    id: str
    name: str
    email: str
    phone: str
    newsletter: int


class Products(NamedTuple):
    """What the shop sells."""

    id: str
    name: str
    category: str
    brand: str
    color: str
    price: int
    stock: int
    rating: int
    description: str


class Reviews(NamedTuple):
    """Reviews of products."""

    id: str
    product: str
    author: str
    stars: int
    title: str
    text: str
    day: str


class CartLines(NamedTuple):
    """What is in the carts."""

    id: str
    person: str
    product: str
    quantity: int


class Orders(NamedTuple):
    """Orders: `processing`, `shipped`, `delivered` or `cancelled`."""

    id: str
    person: str
    day: str
    status: str
    address: str
    shipping: str
    coupon: str
    total: int
    tracking: str


class OrderLines(NamedTuple):
    """The products of orders."""

    id: str
    order_id: str
    product: str
    quantity: int
    price: int


class Returns(NamedTuple):
    """Returned lines of orders."""

    id: str
    line: str
    reason: str
    wish: str


class Addresses(NamedTuple):
    """Addresses for deliveries."""

    id: str
    person: str
    label: str
    street: str
    city: str
    postcode: str


class Wishes(NamedTuple):
    """Wish lists."""

    id: str
    person: str
    product: str


class Coupons(NamedTuple):
    """Coupons: percent off from a minimum on, for one category or all."""

    id: str
    percent: int
    minimum: int
    category: str


class Pages(NamedTuple):
    """Pages of the wiki."""

    id: str
    title: str
    category: str
    body: str


class Revisions(NamedTuple):
    """What pages were."""

    id: str
    page: str
    number: int
    author: str
    day: str
    summary: str
    body: str


class Watches(NamedTuple):
    """Who watches which page."""

    id: str
    person: str
    page: str


class Issues(NamedTuple):
    """Issues: `open` or `closed` for a reason."""

    id: str
    title: str
    body: str
    state: str
    reason: str
    author: str
    assignee: str
    milestone: str
    component: str
    opened: str


class IssueLabels(NamedTuple):
    """The labels of issues."""

    id: str
    issue: str
    label: str


class Comments(NamedTuple):
    """Comments on issues."""

    id: str
    issue: str
    author: str
    day: str
    text: str


class Milestones(NamedTuple):
    """Milestones."""

    id: str
    title: str
    due: str


TABLES: Final[Tables] = {
    "people": People, "products": Products, "reviews": Reviews, "cart_lines": CartLines, "orders": Orders,
    "order_lines": OrderLines, "returns": Returns, "addresses": Addresses, "wishes": Wishes, "coupons": Coupons,
    "pages": Pages, "revisions": Revisions, "watches": Watches, "issues": Issues, "issue_labels": IssueLabels,
    "comments": Comments, "milestones": Milestones,
}  # fmt: skip
PREFIXES: Final[Mapping[str, str]] = {
    "reviews": "R", "cart_lines": "C", "orders": "O", "order_lines": "L", "returns": "T", "addresses": "A",
    "wishes": "H", "pages": "W", "revisions": "V", "watches": "Y", "issues": "I", "issue_labels": "G", "comments": "K",
}  # fmt: skip
"""The letters of the ids of tables that get new rows."""
