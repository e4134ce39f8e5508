"""A web shop in a browser: the policy places an order on real pages, and the shop's own state is scored.

The shop is a small web server that runs inside the episode's sandbox, next to Chromium. The policy has the browser's
tools only. When the episode ends, the server asks the shop for its orders through the exposed port, with a key that
the policy never sees; what the pages show is not scored. Needs Linux, Chromium and `pip install "ludus-rl[browser]"`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Generator, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from ludus.environments.computer import browser_settings, open_browser
from ludus.protocol import text_of
from ludus.sandbox import SandboxPortClosed
from ludus.server import Answer, Call, Environment, EpisodeLimits, Split, StepResult, Task

COUNTS: Final = {"train": 500, "validation": 50, "test": 50}
ITEMS: Final = ("blue mug", "green plate", "red bowl", "white jug", "grey pan", "oak spoon")
NAMES: Final = {"train": ("Ada", "Boris", "Chen"), "validation": ("Gita", "Hugo"), "test": ("Kofi", "Lena")}
SHIPPING: Final = ("standard", "express", "pick up")
PORT: Final = 8000

SHOP: Final = '''
import html, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

ITEMS, SHIPPING, KEY = json.loads(os.environ["ITEMS"]), json.loads(os.environ["SHIPPING"]), os.environ["KEY"]
cart, orders = {}, []

class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/orders" and self.headers["X-Key"] == KEY:
            return self.answer(json.dumps(orders), "application/json")
        if self.path == "/cart":
            lines = "".join(f"<li>{html.escape(f'{count} x {item}')}</li>" for item, count in cart.items())
            options = "".join(f"<option>{one}</option>" for one in SHIPPING)
            return self.page(f"""<h1>Your cart</h1><ul>{lines or "It is empty."}</ul><form method="post" action="/order">
                <label>Name <input name="name"></label> <label>Shipping <select name="shipping">{options}</select></label>
                <button>Place the order</button></form><a href="/">Back to the shop</a>""")
        rows = "".join(f"""<li><form method="post" action="/add">{item} <input type="hidden" name="item" value="{item}">
            <label>Quantity of {item} <input name="quantity" value="1"></label><button>Add {item}</button></form></li>"""
            for item in ITEMS)
        self.page(f'<h1>Kitchen shop</h1><ul>{rows}</ul><a href="/cart">To the cart</a>')

    def do_POST(self):
        size = min(int(self.headers["Content-Length"] or 0), 10_000)
        sent = {name: values[0] for name, values in parse_qs(self.rfile.read(size).decode()).items()}
        if self.path == "/add" and sent.get("item") in ITEMS and sent.get("quantity", "").isdecimal():
            cart[sent["item"]] = min(cart.get(sent["item"], 0) + int(sent["quantity"][:3]), 999)
            return self.page('<h1>Added</h1><a href="/">Back to the shop</a> <a href="/cart">To the cart</a>')
        if self.path == "/order" and cart and len(orders) < 100:
            orders.append({"cart": dict(cart), "name": sent.get("name", "")[:100], "shipping": sent.get("shipping")})
            cart.clear()
            return self.page('<h1>Thank you</h1><p>Your order is placed.</p><a href="/">Back to the shop</a>')
        self.page("<h1>That did not work</h1><a href='/'>Back to the shop</a>")

    def page(self, body):
        self.answer(f"<!doctype html><html lang=en><title>Kitchen shop</title><body>{body}</body></html>", "text/html")

    def answer(self, text, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *about):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Shop).serve_forever()
'''
"""The program of the shop."""


class Errand(Task):
    """An order to place."""

    order: dict[str, int]
    name: str
    shipping: str
    level: int  # the number of items; `ludus run` groups its results by it


def make_errand(split: str, index: int) -> Errand:
    """Return the task at an index."""
    rng, level = Random(f"{split}/{index}"), 1 + index % 3
    order = {item: rng.randint(1, 5) for item in rng.sample(ITEMS, level)}
    return Errand(
        id=f"{split}-{index}", order=order, name=rng.choice(NAMES[split]), shipping=rng.choice(SHIPPING), level=level
    )


class WebShop(Environment[Errand]):
    """Place an order in a web shop."""

    version = "1.0.0"
    splits = {split: Split.lazy(partial(make_errand, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=40, tool_seconds=60)
    sandbox_settings = browser_settings()

    async def setup(self) -> None:
        """Start the shop and the browser."""
        self._key = secrets.token_hex(16)
        variables = {"ITEMS": json.dumps(ITEMS), "SHIPPING": json.dumps(SHIPPING), "KEY": self._key, "PORT": str(PORT)}
        await self.sandbox.spawn(["python3", "-c", SHOP], env=variables)
        self._port = await self.sandbox.expose(PORT)
        self._browser = await open_browser(self.sandbox, f"http://127.0.0.1:{PORT}/", tools=("look", "click", "type",
                                           "select", "back", "screenshot"))  # fmt: skip

    async def teardown(self) -> None:
        """Close the connections to the shop."""
        await self._port.aclose()

    def task_tools(self) -> Sequence[Any]:
        """Return the browser's tools."""
        return self._browser.tools

    def prompt(self) -> str:
        """Return the errand."""
        items = ", ".join(f"{count} x {item}" for item, count in self.task.order.items())
        return (
            f"Order {items} in the shop that is open in your browser, for {self.task.name}, with the shipping "
            f"{self.task.shipping!r}. Order once, then say that you are done."
        )

    async def grade(self, answer: str) -> float:
        """Return 1 if the shop has this order and no other."""
        try:
            response = await self._port.get("/orders", headers={"X-Key": self._key})
        except SandboxPortClosed:  # whatever the policy did to the shop, there is no order
            return 0.0
        wanted = {"cart": self.task.order, "name": self.task.name, "shipping": self.task.shipping}
        return float(json.loads(response.text) == [wanted])

    @classmethod
    def oracle(cls, task: Errand) -> Generator[Call | Answer, StepResult, None]:
        """Place the order."""
        page = yield Call("look", {})
        for item, count in task.order.items():
            page = yield Call("type", {"ref": reference(page, f'textbox "Quantity of {item}"'), "text": str(count)})
            page = yield Call("click", {"ref": reference(page, f'button "Add {item}"')})
            page = yield Call("click", {"ref": reference(page, 'link "Back to the shop"')})
        page = yield Call("click", {"ref": reference(page, 'link "To the cart"')})
        page = yield Call("type", {"ref": reference(page, 'textbox "Name"'), "text": task.name})
        page = yield Call("select", {"ref": reference(page, 'combobox "Shipping"'), "option": task.shipping})
        yield Call("click", {"ref": reference(page, 'button "Place the order"')})
        yield Answer("Done.")


def reference(page: StepResult, element: str) -> str:
    """Return the reference of an element on a page."""
    found = re.search(rf"\[(\w+)\] {re.escape(element)}", text_of(page.content))
    assert found is not None, f"the page has no {element}"
    return found[1]
