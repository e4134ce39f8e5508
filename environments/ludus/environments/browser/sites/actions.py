"""Everything that changes the state of the sites. Goals are reached by these functions, and so are forms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ludus.environments._store import Row, Store
from ludus.environments.browser.sites import words
from ludus.environments.browser.sites.web import Refusal

_SECTION: Final = re.compile(r"^== (.+) ==$", re.MULTILINE)


class Desk(NamedTuple):
    """Who acts, when, and on which state."""

    store: Store
    user: str
    today: str


def _need(row: Row | None, what: str) -> Row:
    if row is None:
        raise Refusal(f"There is no such {what}.")
    return row


def _filled(text: str, what: str) -> str:
    if not text.strip():
        raise Refusal(f"{what} must not be empty.")
    return text.strip()


# ── the shop ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def cart(desk: Desk) -> list[Row]:
    """Return the lines of the user's cart."""
    return desk.store.rows(
        "SELECT * FROM cart_lines WHERE person = ? ORDER BY CAST(SUBSTR(id, 3) AS INTEGER)", desk.user
    )


def add_to_cart(desk: Desk, product: str, quantity: int) -> None:
    """Put a product into the cart."""
    row = _need(desk.store.get("products", product), "product")
    old = next((one for one in cart(desk) if one["product"] == product), None)
    wanted = quantity + (old["quantity"] if old else 0)
    if not 1 <= quantity <= 20:
        raise Refusal("The quantity is a number from 1 to 20.")
    if wanted > row["stock"]:
        raise Refusal(f"Only {row['stock']} of {row['name']} are in stock.")
    if old:
        desk.store.update("cart_lines", old["id"], quantity=wanted)
    else:
        id = desk.store.new_id("cart_lines")
        desk.store.insert("cart_lines", {"id": id, "person": desk.user, "product": product, "quantity": quantity})


def set_quantity(desk: Desk, line: str, quantity: int) -> None:
    """Change the quantity of a line of the cart; 0 removes it."""
    row = next((one for one in cart(desk) if one["id"] == line), None)
    product = desk.store.get("products", _need(row, "line in your cart")["product"])
    if quantity == 0:
        desk.store.delete("cart_lines", line)
    elif not 1 <= quantity <= 20 or product is None or quantity > product["stock"]:
        raise Refusal("The quantity is a number from 0 to 20, and not more than there is in stock.")
    else:
        desk.store.update("cart_lines", line, quantity=quantity)


def discount(desk: Desk, code: str) -> int:
    """Return what a coupon takes off the cart, in cents.

    Raises:
        Refusal: it is not valid for this cart.
    """
    if not code:
        return 0
    coupon = _need(desk.store.get("coupons", code.upper()), f"coupon as {code[:20]!r}")
    lines = [(one["quantity"], _need(desk.store.get("products", one["product"]), "product")) for one in cart(desk)]
    everything = sum(quantity * product["price"] for quantity, product in lines)
    valid = [line for line in lines if coupon["category"] in ("", line[1]["category"])]
    if everything < coupon["minimum"] or not valid:
        raise Refusal(f"The coupon {coupon['id']} is not valid for this cart.")
    return int(sum(quantity * product["price"] for quantity, product in valid) * coupon["percent"] // 100)


def place_order(desk: Desk, address: str, shipping: str, coupon: str = "") -> str:
    """Order what is in the cart, and return the id of the order."""
    store, lines = desk.store, cart(desk)
    if not lines:
        raise Refusal("Your cart is empty.")
    place = store.get("addresses", address)
    if place is None or place["person"] != desk.user:
        raise Refusal("Choose one of your addresses.")
    if shipping not in words.SHIPPING:
        raise Refusal("Choose a way of shipping.")
    off, id = discount(desk, coupon), store.new_id("orders")
    total = words.SHIPPING[shipping] - off
    for line in lines:
        product = _need(store.get("products", line["product"]), "product")
        if line["quantity"] > product["stock"]:
            raise Refusal(f"Only {product['stock']} of {product['name']} are in stock.")
    for line in lines:
        product = _need(store.get("products", line["product"]), "product")
        total += line["quantity"] * product["price"]
        row = {"order_id": id, "product": product["id"], "quantity": line["quantity"], "price": product["price"]}
        store.insert("order_lines", {"id": store.new_id("order_lines"), **row})
        store.update("products", product["id"], stock=product["stock"] - line["quantity"])
        store.delete("cart_lines", line["id"])
    row = {"id": id, "person": desk.user, "day": desk.today, "status": "processing", "address": address}
    store.insert("orders", {**row, "shipping": shipping, "coupon": coupon.upper(), "total": total, "tracking": ""})
    return id


def my_order(desk: Desk, id: str) -> Row:
    """Return an order of the user."""
    row = desk.store.get("orders", id)
    return _need(row if row is not None and row["person"] == desk.user else None, "order of yours")


def cancel_order(desk: Desk, id: str) -> None:
    """Cancel an order."""
    if my_order(desk, id)["status"] != "processing":
        raise Refusal("Only an order that is being processed can be cancelled.")
    desk.store.update("orders", id, status="cancelled")


def return_line(desk: Desk, line: str, reason: str, wish: str) -> None:
    """Return a line of an order."""
    row = _need(desk.store.get("order_lines", line), "line of an order")
    if my_order(desk, row["order_id"])["status"] != "delivered":
        raise Refusal("Only what was delivered can be returned.")
    if desk.store.rows("SELECT id FROM returns WHERE line = ?", line):
        raise Refusal("This is being returned already.")
    if reason not in words.RETURN_REASONS or wish not in words.RETURN_WISHES:
        raise Refusal("Choose a reason and what you want instead.")
    desk.store.insert("returns", {"id": desk.store.new_id("returns"), "line": line, "reason": reason, "wish": wish})


def review(desk: Desk, product: str, stars: int, title: str, text: str) -> None:
    """Write a review."""
    _need(desk.store.get("products", product), "product")
    if desk.store.rows("SELECT id FROM reviews WHERE product = ? AND author = ?", product, desk.user):
        raise Refusal("You have reviewed this product already.")
    if not 1 <= stars <= 5:
        raise Refusal("A review has 1 to 5 stars.")
    row = {
        "id": desk.store.new_id("reviews"),
        "product": product,
        "author": desk.user,
        "stars": stars,
        "day": desk.today,
    }
    desk.store.insert("reviews", {**row, "title": _filled(title, "The title"), "text": _filled(text, "The review")})


def save_address(desk: Desk, id: str, label: str, street: str, city: str, postcode: str) -> None:
    """Change an address, or add one if `id` is empty."""
    values = {
        "label": _filled(label, "The label"), "street": _filled(street, "The street"), "city": _filled(city, "The city"),
        "postcode": _filled(postcode, "The postcode"),
    }  # fmt: skip
    if id:
        my_address(desk, id)
        desk.store.update("addresses", id, **values)
    else:
        desk.store.insert("addresses", {"id": desk.store.new_id("addresses"), "person": desk.user, **values})


def my_address(desk: Desk, id: str) -> Row:
    """Return an address of the user."""
    row = desk.store.get("addresses", id)
    return _need(row if row is not None and row["person"] == desk.user else None, "address of yours")


def delete_address(desk: Desk, id: str) -> None:
    """Delete an address."""
    my_address(desk, id)
    desk.store.delete("addresses", id)


def wish(desk: Desk, product: str, wanted: bool) -> None:
    """Put a product on the wish list, or take it off."""
    _need(desk.store.get("products", product), "product")
    old = desk.store.rows("SELECT id FROM wishes WHERE product = ? AND person = ?", product, desk.user)
    if wanted and not old:
        desk.store.insert("wishes", {"id": desk.store.new_id("wishes"), "person": desk.user, "product": product})
    elif not wanted and old:
        desk.store.delete("wishes", old[0]["id"])


def change_profile(desk: Desk, phone: str, newsletter: bool) -> None:
    """Change the user's phone number and newsletter."""
    if not re.fullmatch(r"[\d +()-]{5,20}", phone):
        raise Refusal("A phone number has 5 to 20 digits, spaces, or + - ( ).")
    desk.store.update("people", desk.user, phone=phone, newsletter=int(newsletter))


# ── the wiki ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sections(body: str) -> list[tuple[str, str]]:
    """Return the headings and texts of a page; the first heading is empty."""
    parts = _SECTION.split(body)
    return [("", parts[0].strip())] + [
        (parts[at], parts[at + 1].strip()) for at in range(1, len(parts) - 1, 2)
    ]  # fmt: skip


def page_titled(store: Store, title: str) -> Row | None:
    """Return a page by its title."""
    found = store.rows("SELECT * FROM pages WHERE title = ?", title)
    return found[0] if found else None


def _revise(desk: Desk, page: str, body: str, summary: str) -> None:
    last = desk.store.rows("SELECT MAX(number) AS last FROM revisions WHERE page = ?", page)[0]["last"] or 0
    row = {"id": desk.store.new_id("revisions"), "page": page, "number": last + 1, "author": desk.user}
    desk.store.insert("revisions", {**row, "day": desk.today, "summary": summary[:200], "body": body})
    desk.store.update("pages", page, body=body)


def edit_section(desk: Desk, page: str, number: int, text: str, summary: str = "") -> None:
    """Change the text of a section; 0 is the introduction."""
    body = _need(desk.store.get("pages", page), "page")["body"]
    parts = sections(body)
    if not 0 <= number < len(parts):
        raise Refusal("There is no such section.")
    if _SECTION.search(text):
        raise Refusal("The text of a section has no headings.")
    parts[number] = (parts[number][0], text.strip())
    new = "\n\n".join(f"== {title} ==\n{one}" if title else one for title, one in parts)
    if new == body:
        raise Refusal("Nothing was changed.")
    _revise(desk, page, new, summary)


def create_page(desk: Desk, title: str, category: str, body: str) -> None:
    """Create a page."""
    title = " ".join(_filled(title, "The title").split())
    if not re.fullmatch(r"[\w' .-]{2,80}", title):
        raise Refusal("A title has 2 to 80 letters, digits, spaces, points or dashes.")
    if page_titled(desk.store, title) is not None:
        raise Refusal("There is a page of this title.")
    if not desk.store.rows("SELECT id FROM pages WHERE category = ?", category):
        raise Refusal("Choose a category.")
    id = desk.store.new_id("pages")
    desk.store.insert("pages", {"id": id, "title": title, "category": category, "body": ""})
    _revise(desk, id, _filled(body, "The text"), "Created")


def revert_page(desk: Desk, page: str, number: int) -> None:
    """Bring a page back to an earlier revision."""
    found = desk.store.rows("SELECT * FROM revisions WHERE page = ? AND number = ?", page, number)
    row = _need(found[0] if found else None, "revision")
    if row["body"] == _need(desk.store.get("pages", page), "page")["body"]:
        raise Refusal("The page is as in this revision.")
    _revise(desk, page, row["body"], f"Reverted to revision {number}")


def rename_page(desk: Desk, page: str, title: str) -> None:
    """Give a page another title."""
    _need(desk.store.get("pages", page), "page")
    title = " ".join(_filled(title, "The title").split())
    if not re.fullmatch(r"[\w' .-]{2,80}", title) or page_titled(desk.store, title) is not None:
        raise Refusal("This title is taken, or has other characters than letters, digits, spaces, points and dashes.")
    desk.store.update("pages", page, title=title)


def watch(desk: Desk, page: str, wanted: bool) -> None:
    """Watch a page, or no longer."""
    _need(desk.store.get("pages", page), "page")
    old = desk.store.rows("SELECT id FROM watches WHERE page = ? AND person = ?", page, desk.user)
    if wanted and not old:
        desk.store.insert("watches", {"id": desk.store.new_id("watches"), "person": desk.user, "page": page})
    elif not wanted and old:
        desk.store.delete("watches", old[0]["id"])


# ── the issue tracker ────────────────────────────────────────────────────────────────────────────────────────────────


def create_issue(
    desk: Desk, title: str, body: str, component: str, milestone: str = "", assignee: str = "", labels: Sequence[str] = ()
) -> str:  # fmt: skip
    """Open an issue, and return its id."""
    id = desk.store.new_id("issues")
    row: dict[str, Any] = {"id": id, "title": _filled(title, "The title")[:200], "body": body.strip(), "state": "open"}
    row |= {"reason": "", "author": desk.user, "opened": desk.today}
    row |= _fields(desk.store, assignee, milestone, component)
    desk.store.insert("issues", row)
    for label in labels:
        add_label(desk, id, label)
    return id


def _fields(store: Store, assignee: str, milestone: str, component: str) -> dict[str, str]:
    if assignee and store.get("people", assignee) is None or milestone and store.get("milestones", milestone) is None:
        raise Refusal("Choose a person and a milestone from the lists.")
    if component not in {team.lower() for team in words.TEAMS}:
        raise Refusal("Choose a component.")
    return {"assignee": assignee, "milestone": milestone, "component": component}


def change_issue(desk: Desk, issue: str, assignee: str, milestone: str, component: str) -> None:
    """Change who works on an issue, when, and what it is about."""
    _need(desk.store.get("issues", issue), "issue")
    desk.store.update("issues", issue, **_fields(desk.store, assignee, milestone, component))


def set_state(desk: Desk, issue: str, state: str, reason: str = "") -> None:
    """Close an issue for a reason, or open it again."""
    row = _need(desk.store.get("issues", issue), "issue")
    if row["state"] == state or state not in ("open", "closed"):
        raise Refusal(f"The issue is {row['state']}.")
    if state == "closed" and reason not in words.REASONS:
        raise Refusal("Choose a reason.")
    desk.store.update("issues", issue, state=state, reason=reason if state == "closed" else "")


def retitle_issue(desk: Desk, issue: str, title: str) -> None:
    """Give an issue another title."""
    _need(desk.store.get("issues", issue), "issue")
    desk.store.update("issues", issue, title=_filled(title, "The title")[:200])


def comment(desk: Desk, issue: str, text: str) -> None:
    """Comment on an issue."""
    _need(desk.store.get("issues", issue), "issue")
    row = {"id": desk.store.new_id("comments"), "issue": issue, "author": desk.user, "day": desk.today}
    desk.store.insert("comments", {**row, "text": _filled(text, "The comment")})


def add_label(desk: Desk, issue: str, label: str) -> None:
    """Add a label to an issue."""
    _need(desk.store.get("issues", issue), "issue")
    if label not in words.LABELS:
        raise Refusal("Choose a label.")
    if not desk.store.rows("SELECT id FROM issue_labels WHERE issue = ? AND label = ?", issue, label):
        desk.store.insert("issue_labels", {"id": desk.store.new_id("issue_labels"), "issue": issue, "label": label})


def remove_label(desk: Desk, issue: str, label: str) -> None:
    """Remove a label from an issue."""
    old = desk.store.rows("SELECT id FROM issue_labels WHERE issue = ? AND label = ?", issue, label)
    for one in old:
        desk.store.delete("issue_labels", one["id"])
