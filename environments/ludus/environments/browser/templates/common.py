"""Ways through the pages that many errands share, and choices among the rows of a world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ludus.environments.browser.goals import ISSUES, SHOP, WIKI, Step, click, fill, go, pick, see
from ludus.environments.browser.sites.tables import Issues, Orders, Products
from ludus.environments.browser.sites.web import address
from ludus.environments.browser.sites.wiki import path_of
from ludus.environments.browser.sites.world import World

T = TypeVar("T")


def unique(rows: Sequence[T], key: Callable[[T], Any]) -> list[T]:
    """Return the rows whose key no other row has."""
    keys = [key(row) for row in rows]
    return [row for row, value in zip(rows, keys, strict=True) if keys.count(value) == 1]


def buyable(world: World, count: int = 1) -> list[Products]:
    """Return different products that are in stock."""
    return world.rng.sample([product for product in world.products if product.stock], count)


def find_product(name: str) -> list[Step]:
    """Search for a product, and open it."""
    return [
        go(f"{SHOP}/"),
        fill('searchbox "Search products"', name),
        click('button "Search"'),
        click(f'link "{name}"'),
    ]


def put_into_cart(product: Products, count: int) -> list[Step]:
    """Put a product into the cart."""
    return [*find_product(product.name), fill('textbox "Quantity"', str(count)), click('button "Add to cart"')]


def open_order(world: World, order: Orders) -> list[Step]:
    """Open an order of the user from the list."""
    page = [my_order.id for my_order in world.my_orders()].index(order.id) // 5 + 1
    return [go(address(f"{SHOP}/orders", page=page if page > 1 else "")), click(f'link "Order {order.id}"')]


def find_page(title: str) -> list[Step]:
    """Search for a page of the wiki, and open it."""
    return [go(f"{WIKI}/"), fill('searchbox "Search pages"', title), click('button "Search"'), click(f'link "{title}"')]


def edit_section(title: str, section: str, text: str) -> list[Step]:
    """Change the text of a section."""
    return [go(WIKI + path_of(title)), click(f'link "Edit {section}"'), fill('textbox "Text"', text),
            fill('textbox "Summary of the change"', "Update"), click('button "Save page"')]  # fmt: skip


def open_issue(issue: Issues) -> list[Step]:
    """Open an issue."""
    return [go(f"{ISSUES}/issues/{number_of(issue)}")]


def find_issue(issue: Issues) -> list[Step]:
    """Search for an issue, and open it."""
    return [go(f"{ISSUES}/"), fill('searchbox "Search issues"', issue.title), pick('combobox "State"', "all"),
            click('button "Search"'), click(f'link "{issue.title}"')]  # fmt: skip


def number_of(issue: Issues) -> str:
    """Return the number of an issue."""
    return issue.id[2:]


def facts_text(facts: dict[str, str]) -> str:
    """Return the text of the section with the facts."""
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def name_in(link: str) -> str:
    """Return the title of a link in double brackets."""
    return link.removeprefix("[[").removesuffix("]]")


def show_facts(title: str, *values: str) -> list[Step]:
    """Open a page, and see what it says."""
    return [go(WIKI + path_of(title)), *(see(value) for value in values)]
