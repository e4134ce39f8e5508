"""The pages of the shop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ludus.environments._store import Row
from ludus.environments.browser.sites import actions, words
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.web import (
    Child,
    Refusal,
    Request,
    Response,
    Site,
    address,
    area,
    button,
    choice,
    confirmed,
    field,
    form,
    link,
    paged,
    table,
    tag,
    toggled,
)
from ludus.environments.browser.sites.world import money

SORTS: Final = {
    "name": "Name", "price": "Price, lowest first", "price-down": "Price, highest first", "rating": "Rating, best first"
}  # fmt: skip
_ORDER: Final = {
    "name": "name",
    "price": "price, name",
    "price-down": "price DESC, name",
    "rating": "rating DESC, name",
}


def stars(rating: int) -> str:
    """Return a rating in tenths of stars as text."""
    return f"{rating // 10}.{rating % 10} of 5"


def count_of(stars: int) -> str:
    """Return the stars of a review as text."""
    return f"{stars} star" if stars == 1 else f"{stars} stars"


def whole(text: str, what: str = "The quantity") -> int:
    """Return a number from a form."""
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII):
        raise Refusal(f"{what} is a whole number.")
    return int(text)


class Shop(Site):
    """The shop."""

    host = "shop.test"
    routes = (
        ("GET", "/", "home"), ("GET", "/products", "products"), ("GET", "/products/(P-[0-9]+)", "product"),
        ("GET", "/products/(P-[0-9]+)/review", "review_form"), ("POST", "/products/(P-[0-9]+)/review", "review"),
        ("POST", "/products/(P-[0-9]+)/wish", "wish"), ("GET", "/cart", "cart"), ("POST", "/cart", "add"),
        ("POST", "/cart/(C-[0-9]+)", "change_line"), ("GET", "/checkout", "checkout"), ("POST", "/checkout", "place"),
        ("GET", "/orders", "orders"), ("GET", "/orders/(O-[0-9]+)", "order"), ("POST", "/orders/(O-[0-9]+)/cancel", "cancel"),
        ("GET", "/returns/(L-[0-9]+)", "return_form"), ("POST", "/returns/(L-[0-9]+)", "send_back"),
        ("GET", "/wishes", "wishes"), ("GET", "/offers", "offers"), ("GET", "/account", "account"),
        ("POST", "/account", "change_account"), ("GET", "/addresses/(new|A-[0-9]+)", "address_form"),
        ("POST", "/addresses/(new|A-[0-9]+)", "save_address"), ("POST", "/addresses/(A-[0-9]+)/delete", "delete_address"),
    )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the shop."""
        return f"{self.world} Shop"

    @property
    def desk(self) -> Desk:
        """Who acts."""
        return Desk(self.store, self.user, self.today)

    def menu(self) -> Sequence[Child]:
        """Return the links at the top."""
        count = sum(one["quantity"] for one in actions.cart(self.desk))
        return [
            link("Home", "/"), link("Products", "/products"), link("Offers", "/offers"), link("Orders", "/orders"),
            link("Wish list", "/wishes"), link("Account", "/account"), link(f"Cart ({count})", "/cart"),
        ]  # fmt: skip

    def home(self, request: Request) -> Response:
        """Answer with the first page."""
        items = [tag("li", link(name, address("/products", category=name))) for name in words.CATEGORIES]
        return self.page(self.name, self._search(""), tag("h2", "Categories"), tag("ul", items))

    def _search(self, text: str) -> Child:
        return form("/products", field("Search products", "q", text, type_="search"), button("Search"), method="get")

    def products(self, request: Request) -> Response:
        """Answer with a list of products."""
        q, category, brand, color = (request.asked(name) for name in ("q", "category", "brand", "color"))
        sort = request.asked("sort") if request.asked("sort") in SORTS else "name"
        where, values = ["1 = 1"], list[Any]()
        for column, value in (("category", category), ("brand", brand), ("color", color)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if request.asked("stock"):
            where.append("stock > 0")
        for word in q.split()[:8]:
            where.append("name LIKE ?")
            values.append(f"%{word}%")
        rows = self.store.rows(f"SELECT * FROM products WHERE {' AND '.join(where)} ORDER BY {_ORDER[sort]}", *values)
        shown, steps = paged(rows, request)
        return self.page(
            "Products", self._filters(request, q, category, brand, color, sort),
            table(("Product", "Price", "Rating", "Stock"), [self._row(one) for one in shown]), steps,
        )  # fmt: skip

    def _filters(self, request: Request, q: str, category: str, brand: str, color: str, sort: str) -> Child:
        brands = [row["brand"] for row in self.store.rows("SELECT DISTINCT brand FROM products ORDER BY brand")]
        more = toggled(
            "Filters", "filters", _any("Brand", "brand", brands, brand), _any("Color", "color", words.COLORS, color),
            tag("label", tag("input", type_="checkbox", name="stock", value="1", checked=bool(request.asked("stock"))),
                " Only in stock"),
            opened=bool(brand or color or request.asked("stock")),
        )  # fmt: skip
        return form(
            "/products", field("Search products", "q", q, type_="search"),
            _any("Category", "category", tuple(words.CATEGORIES), category),
            choice("Sort by", "sort", tuple(SORTS.items()), sort), more, button("Search"), method="get",
        )  # fmt: skip

    def _row(self, one: Row) -> Sequence[Child]:
        stock = f"{one['stock']} in stock" if one["stock"] else "sold out"
        return link(one["name"], f"/products/{one['id']}"), money(one["price"]), stars(one["rating"]), stock

    def _product(self, id: str) -> Row:
        row = self.store.get("products", id)
        if row is None:
            raise Refusal("There is no such product.")
        return row

    def product(self, request: Request, id: str) -> Response:
        """Answer with a product and its reviews."""
        row = self._product(id)
        facts = [("Price", money(row["price"])), ("Brand", row["brand"]), ("Category", row["category"]),
                 ("Color", row["color"]), ("Rating", stars(row["rating"])),
                 ("Stock", f"{row['stock']} in stock" if row["stock"] else "sold out")]  # fmt: skip
        buy = form("/cart", tag("input", type_="hidden", name="product", value=id),
                   field("Quantity", "quantity", "1", inputmode="numeric"), button("Add to cart"))  # fmt: skip
        wished = bool(self.store.rows("SELECT id FROM wishes WHERE product = ? AND person = ?", id, self.user))
        wish = form(f"/products/{id}/wish", tag("input", type_="hidden", name="wanted", value="" if wished else "1"),
                    button("Remove from wish list" if wished else "Add to wish list"))  # fmt: skip
        found = self.store.rows("SELECT * FROM reviews WHERE product = ? ORDER BY day DESC, id", id)
        shown, steps = paged(found, request, 5)
        reviews = [
            tag("li", tag("p", f"{count_of(one['stars'])} by {self.person(one['author'])} on {one['day']}: {one['title']}"),
                tag("p", one["text"]))
            for one in shown
        ]  # fmt: skip
        return self.page(
            row["name"], tag("p", row["description"]), table(("Detail", "Value"), facts), buy if row["stock"] else None, wish,
            tag("h2", "Reviews"), link("Write a review", f"/products/{id}/review"), tag("ul", reviews), steps,
        )  # fmt: skip

    def review_form(self, request: Request, id: str) -> Response:
        """Answer with the form for a review."""
        row = self._product(id)
        points = [(str(number), count_of(number)) for number in range(5, 0, -1)]
        return self.page(
            f"Review of {row['name']}",
            form(f"/products/{id}/review", choice("Stars", "stars", points, "5"), field("Title", "title"),
                 area("Review", "text", data_count="count"), tag("p", "0 characters", id="count"), button("Send review")),
        )  # fmt: skip

    def review(self, request: Request, id: str) -> Response:
        """Take a review."""
        actions.review(self.desk, id, whole(request.sent("stars"), "The number of stars"), request.sent("title"),
                       request.sent("text"))  # fmt: skip
        return self.redirect(f"/products/{id}")

    def wish(self, request: Request, id: str) -> Response:
        """Change the wish list."""
        actions.wish(self.desk, id, bool(request.sent("wanted")))
        return self.redirect(f"/products/{id}")

    def cart(self, request: Request) -> Response:
        """Answer with the cart."""
        rows, total = list[Sequence[Child]](), 0
        for one in actions.cart(self.desk):
            product = self._product(one["product"])
            total += one["quantity"] * product["price"]
            change = form(f"/cart/{one['id']}", field(f"Quantity of {product['name']}", "quantity", one["quantity"]),
                          button("Update"))  # fmt: skip
            remove = form(f"/cart/{one['id']}", tag("input", type_="hidden", name="quantity", value="0"),
                          button(f"Remove {product['name']}"))  # fmt: skip
            rows.append((link(product["name"], f"/products/{product['id']}"), money(product["price"]), change, remove))
        if not rows:
            return self.page("Cart", tag("p", "Your cart is empty."))
        return self.page("Cart", table(("Product", "Price", "Quantity", ""), rows), tag("p", f"Sum: {money(total)}"),
                         link("Go to checkout", "/checkout"))  # fmt: skip

    def add(self, request: Request) -> Response:
        """Put a product into the cart."""
        actions.add_to_cart(self.desk, request.sent("product"), whole(request.sent("quantity")))
        return self.redirect("/cart")

    def change_line(self, request: Request, id: str) -> Response:
        """Change a line of the cart."""
        actions.set_quantity(self.desk, id, whole(request.sent("quantity")))
        return self.redirect("/cart")

    def _addresses(self) -> list[Row]:
        return self.store.rows("SELECT * FROM addresses WHERE person = ? ORDER BY label, id", self.user)

    def checkout(self, request: Request) -> Response:
        """Answer with the form for an order."""
        lines = [(self._product(one["product"]), one["quantity"]) for one in actions.cart(self.desk)]
        if not lines:
            raise Refusal("Your cart is empty.")
        places = [(one["id"], f"{one['label']}: {_place(one)}") for one in self._addresses()]
        ways = [(name, f"{name} ({money(cost)})") for name, cost in words.SHIPPING.items()]
        total = sum(product["price"] * quantity for product, quantity in lines)
        return self.page(
            "Checkout", tag("ul", [tag("li", f"{quantity} x {product['name']}") for product, quantity in lines]),
            tag("p", f"Sum without shipping: {money(total)}"),
            form("/checkout", choice("Address", "address", places), choice("Shipping", "shipping", ways),
                 field("Coupon code", "coupon"), button("Place order")),
        )  # fmt: skip

    def place(self, request: Request) -> Response:
        """Take an order."""
        id = actions.place_order(self.desk, request.sent("address"), request.sent("shipping"), request.sent("coupon"))
        return self.redirect(f"/orders/{id}")

    def orders(self, request: Request) -> Response:
        """Answer with the user's orders."""
        rows = self.store.rows("SELECT * FROM orders WHERE person = ? ORDER BY day DESC, id DESC", self.user)
        shown, steps = paged(rows, request, 5)
        cells = [
            (link(f"Order {one['id']}", f"/orders/{one['id']}"), one["day"], one["status"], money(one["total"]))
            for one in shown
        ]  # fmt: skip
        return self.page("Orders", table(("Order", "Date", "Status", "Total"), cells), steps)

    def order(self, request: Request, id: str) -> Response:
        """Answer with an order."""
        try:
            row = actions.my_order(self.desk, id)
        except Refusal:
            return self.missing()
        lines = self.store.rows(
            "SELECT * FROM order_lines WHERE order_id = ? ORDER BY CAST(SUBSTR(id, 3) AS INTEGER)", id
        )
        returned = {one["line"] for one in self.store.rows("SELECT line FROM returns")}
        cells = []
        for one in lines:
            product = self._product(one["product"])
            can = row["status"] == "delivered" and one["id"] not in returned
            back: Child = link(f"Return {product['name']}", f"/returns/{one['id']}") if can else ""
            cells.append((link(product["name"], f"/products/{product['id']}"), str(one["quantity"]), money(one["price"]),
                          "being returned" if one["id"] in returned else back))  # fmt: skip
        place = self.store.get("addresses", row["address"])
        facts = [("Date", row["day"]), ("Status", row["status"]), ("Shipping", row["shipping"]), ("Coupon", row["coupon"] or "none"),
                 ("Delivered to", f"{place['label']}: {_place(place)}" if place else "a deleted address"),
                 ("Tracking code", row["tracking"] or "none yet"), ("Total", money(row["total"]))]  # fmt: skip
        cancel = confirmed("Cancel order", f"Cancel order {id}?", f"/orders/{id}/cancel", "Yes, cancel it")
        return self.page(f"Order {id}", table(("Detail", "Value"), facts),
                         table(("Product", "Quantity", "Price", ""), cells),
                         cancel if row["status"] == "processing" else None)  # fmt: skip

    def cancel(self, request: Request, id: str) -> Response:
        """Cancel an order."""
        actions.cancel_order(self.desk, id)
        return self.redirect(f"/orders/{id}")

    def return_form(self, request: Request, id: str) -> Response:
        """Answer with the form for a return."""
        line = self.store.get("order_lines", id)
        order = self.store.get("orders", line["order_id"]) if line else None
        if line is None or order is None or order["person"] != self.user or order["status"] != "delivered":
            return self.missing()
        product = self._product(line["product"])
        reasons = [(one, one) for one in words.RETURN_REASONS]
        wishes = [(one, one) for one in words.RETURN_WISHES]
        return self.page(
            f"Return {product['name']}", tag("p", f"{line['quantity']} x from order {order['id']}"),
            form(f"/returns/{id}", choice("Reason", "reason", reasons), choice("Instead I want", "wish", wishes),
                 button("Send return")),
        )  # fmt: skip

    def send_back(self, request: Request, id: str) -> Response:
        """Take a return."""
        actions.return_line(self.desk, id, request.sent("reason"), request.sent("wish"))
        line = self.store.get("order_lines", id)
        return self.redirect(f"/orders/{line['order_id']}" if line else "/orders")

    def wishes(self, request: Request) -> Response:
        """Answer with the wish list."""
        rows = self.store.rows(
            "SELECT products.* FROM wishes JOIN products ON products.id = wishes.product WHERE person = ? ORDER BY name",
            self.user,
        )
        return self.page("Wish list", table(("Product", "Price", "Rating", "Stock"), [self._row(row) for row in rows]))

    def offers(self, request: Request) -> Response:
        """Answer with the coupons."""
        rows = [
            (row["id"], f"{row['percent']} %", money(row["minimum"]), row["category"] or "all products")
            for row in self.store.rows("SELECT * FROM coupons ORDER BY id")
        ]
        return self.page("Offers", tag("p", "An order takes one coupon. It takes its percentage off the products that it "
                         "is valid for, if all products of the cart together cost the minimum or more."),
                         table(("Code", "Off", "Minimum", "Valid for"), rows))  # fmt: skip

    def account(self, request: Request) -> Response:
        """Answer with the user's data."""
        me = self.store.get("people", self.user) or {}
        box = tag("input", type_="checkbox", name="newsletter", value="1", checked=bool(me.get("newsletter")))
        places = [
            (one["label"], _place(one), link(f"Edit {one['label']}", f"/addresses/{one['id']}"),
             confirmed(f"Delete {one['label']}", "Delete this address?", f"/addresses/{one['id']}/delete", "Yes, delete it"))
            for one in self._addresses()
        ]  # fmt: skip
        return self.page(
            "Account", tag("p", f"{me.get('name')}, {me.get('email')}"),
            form("/account", field("Phone", "phone", me.get("phone")), tag("label", box, " Newsletter"), button("Save")),
            tag("h2", "Addresses"), table(("Label", "Address", "", ""), places), link("Add an address", "/addresses/new"),
        )  # fmt: skip

    def change_account(self, request: Request) -> Response:
        """Change the user's data."""
        actions.change_profile(self.desk, request.sent("phone"), bool(request.sent("newsletter")))
        return self.redirect("/account")

    def address_form(self, request: Request, id: str) -> Response:
        """Answer with the form for an address."""
        row: Row = {}
        if id != "new":
            try:
                row = actions.my_address(self.desk, id)
            except Refusal:
                return self.missing()
        fields = [field(name.capitalize(), name, row.get(name, "")) for name in ("label", "street", "city", "postcode")]
        return self.page("Address", form(f"/addresses/{id}", fields, button("Save address")))

    def save_address(self, request: Request, id: str) -> Response:
        """Take an address."""
        actions.save_address(self.desk, "" if id == "new" else id,
                             *(request.sent(name) for name in ("label", "street", "city", "postcode")))  # fmt: skip
        return self.redirect("/account")

    def delete_address(self, request: Request, id: str) -> Response:
        """Delete an address."""
        actions.delete_address(self.desk, id)
        return self.redirect("/account")


def _place(row: Row) -> str:
    return f"{row['street']}, {row['postcode']} {row['city']}"


def _any(label: str, name: str, values: Sequence[str], value: str) -> Child:
    return choice(label, name, [("", "any"), *((one, one) for one in values)], value)
