"""Errands in the shop."""

from __future__ import annotations

from ludus.environments.browser.goals import SHOP, Goal, Step, click, fill, go, pick, see, template
from ludus.environments.browser.sites import actions, words
from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.shop import count_of
from ludus.environments.browser.sites.tables import Addresses, CartLines, Coupons, OrderLines, Orders, Products
from ludus.environments.browser.sites.web import PER_PAGE, address
from ludus.environments.browser.sites.world import ME, World, money, sorted_by
from ludus.environments.browser.templates.common import buyable, find_product, open_order, put_into_cart, unique

_AMOUNT = "Answer with the amount, such as $12.30."


@template("shop-price", "shop", ("easy",))
def price(world: World) -> Goal:
    """The price of a product."""
    product = world.rng.choice(world.products)
    steps = [*find_product(product.name), see(money(product.price))]
    return Goal(f"What does the {product.name} cost in the shop? {_AMOUNT}", steps, money(product.price))


@template("shop-cheapest", "shop")
def cheapest(world: World) -> Goal:
    """The cheapest product of a category, at higher levels with conditions."""
    good = world.level != "easy"
    rows = [
        product
        for product in world.products
        if not good or product.rating >= 40 and (world.level != "hard" or product.stock)
    ]
    kinds = [one for one in words.CATEGORIES if sum(row.category == one for row in rows) > 1]
    category = world.rng.choice(kinds)
    listed = sorted_by([product for product in world.products if product.category == category], "price")
    wanted = next(one for one in listed if one in rows)
    more = {"easy": "", "medium": " with a rating of 4.0 or better",
            "hard": " that is in stock and has a rating of 4.0 or better"}[world.level]  # fmt: skip
    page = listed.index(wanted) // PER_PAGE + 1
    query = {"category": category, "sort": "price"}
    steps = [go(f"{SHOP}/products"), pick('combobox "Category"', category), pick('combobox "Sort by"', "Price, lowest first"),
             click('button "Search"'), go(address(f"{SHOP}/products", **query, page=page)), see(f'link "{wanted.name}"')]  # fmt: skip
    return Goal(f"Which product of the category {category}{more} is the cheapest one in the shop? Answer with its full name.",
                steps, wanted.name)  # fmt: skip


def _order_of_one(world: World) -> tuple[Orders, Products]:
    """Return an order of the user, and a product that only this order of the user has."""
    mine = {my_order.id: my_order for my_order in world.my_orders()}
    lines = unique(
        [order_line for order_line in world.order_lines if order_line.order_id in mine], lambda one: one.product
    )
    line = world.rng.choice(lines)
    return mine[line.order_id], world.product(line.product)


@template("shop-order-total", "shop", ("easy", "medium"))
def order_total(world: World) -> Goal:
    """The total of an order."""
    if world.level == "easy":
        order = world.rng.choice(world.my_orders())
        what = f"my order {order.id}"
    else:
        order, product = _order_of_one(world)
        what = f"my order with the {product.name} in it"
    steps = [*open_order(world, order), see(money(order.total))]
    return Goal(f"What is the total of {what} in the shop? {_AMOUNT}", steps, money(order.total))


@template("shop-spent", "shop", ("medium", "hard"))
def spent(world: World) -> Goal:
    """The sum of several orders."""
    orders = world.my_orders()
    count = 3 if world.level == "medium" else 8
    start = world.rng.randrange(len(orders) - count + 1)
    chosen = orders[start : start + count]
    kept = [one for one in chosen if one.status != "cancelled"]
    total = money(sum(one.total for one in kept))
    pages = sorted({(start + at) // 5 + 1 for at in range(count)})
    steps: list[Step] = []
    for page in pages:
        shown = [one for index, one in enumerate(chosen, start) if index // 5 + 1 == page]
        steps += [go(address(f"{SHOP}/orders", page=page)), *(see(money(one.total)) for one in shown)]
    return Goal(
        f"What is the sum of the totals of all my orders in the shop from {chosen[-1].day} to {chosen[0].day}, both days "
        f"included? Leave cancelled orders out. {_AMOUNT}",
        steps, total,
    )  # fmt: skip


@template("shop-reviewer", "shop", ("easy", "medium"), split="test")
def reviewer(world: World) -> Goal:
    """Who wrote a review."""
    reviews = world.reviews if world.level == "easy" else [
        one for one in world.reviews if sum(other.product == one.product for other in world.reviews) > 2
    ]  # fmt: skip
    review = world.rng.choice(reviews or world.reviews)
    product, author = world.product(review.product), world.person(review.author)
    page = 1 + _place(world, review.product, review.id) // 5
    steps = [
        *find_product(product.name),
        go(address(f"{SHOP}/products/{product.id}", page=page)),
        see(f"by {author.name} on {review.day}"),
    ]
    return Goal(
        f'Who wrote the review "{review.title}" of the {product.name} in the shop? Answer with the full name.',
        steps,
        author.name,
    )


def _place(world: World, product: str, review: str) -> int:
    """Return the place of a review among those of its product."""
    rows = sorted((one for one in world.reviews if one.product == product), key=lambda one: one.id)
    rows.sort(key=lambda one: one.day, reverse=True)
    return [row.id for row in rows].index(review)


@template("shop-lowest-review", "shop", ("medium", "hard"))
def lowest_review(world: World) -> Goal:
    """Who gave the fewest stars."""
    chosen = None
    for product in world.rng.sample(world.products, len(world.products)):
        rows = sorted([one for one in world.reviews if one.product == product.id], key=lambda one: one.stars)
        if len(rows) > (2 if world.level == "medium" else 5) and rows[0].stars < rows[1].stars:
            chosen = product, rows[0]
            break
    if chosen is None:
        product = next(one for one in world.products if sum(row.product == one.id for row in world.reviews) > 2)
        low = next(one for one in world.reviews if one.product == product.id)
        for one in [row for row in world.reviews if row.product == product.id]:
            new = world.replace("reviews", one, stars=1 if one is low else 4)
            low = new if one is low else low
        chosen = product, low
    product, review = chosen
    author = world.person(review.author).name
    page = 1 + _place(world, product.id, review.id) // 5
    steps = [
        *find_product(product.name),
        go(address(f"{SHOP}/products/{product.id}", page=page)),
        see(f"{count_of(review.stars)} by {author}"),
    ]
    return Goal(
        f"Who gave the {product.name} the fewest stars in the reviews of the shop? Answer with the full name.",
        steps,
        author,
    )


@template("shop-tracking", "shop", ("easy", "medium"), split="validation")
def tracking(world: World) -> Goal:
    """The tracking code of an order."""
    sent = [my_order for my_order in world.my_orders() if my_order.tracking]
    if not sent:
        sent = [
            world.replace(
                "orders", world.my_orders()[-1], status="delivered", tracking=f"TR{world.rng.randrange(10**6, 10**7)}"
            )
        ]
    order = world.rng.choice(sent)
    steps = [*open_order(world, order), see(order.tracking)]
    return Goal(f"What is the tracking code of the order that I placed in the shop on {order.day}? Answer with the code.",
                steps, order.tracking)  # fmt: skip


@template("shop-cart", "shop", split="validation")
def to_cart(world: World) -> Goal:
    """Put products into the cart."""
    products = buyable(world, {"easy": 1, "medium": 2, "hard": 4}[world.level])
    lines = [(one, world.rng.randrange(2, 6)) for one in products]
    said = ", ".join(f"{count} of the {one.name}" for one, count in lines)

    def act(desk: Desk) -> None:
        for product, count in lines:
            actions.add_to_cart(desk, product.id, count)

    return Goal(f"Put {said} into the cart of the shop. Do not order.",
                [step for line in lines for step in put_into_cart(*line)], act=act)  # fmt: skip


def _off(coupon: Coupons, lines: list[tuple[Products, int]]) -> int:
    everything = sum(product.price * count for product, count in lines)
    valid = sum(product.price * count for product, count in lines if coupon.category in ("", product.category))
    return valid * coupon.percent // 100 if everything >= coupon.minimum else 0


def checkout(place: Addresses, shipping: str, code: str = "") -> list[Step]:
    """Order what is in the cart."""
    where = f"{place.label}: {place.street}, {place.postcode} {place.city}"
    steps = [go(f"{SHOP}/checkout"), pick('combobox "Address"', where),
             pick('combobox "Shipping"', f"{shipping} ({money(words.SHIPPING[shipping])})")]  # fmt: skip
    return [*steps, *([fill('textbox "Coupon code"', code)] if code else []), click('button "Place order"')]


@template("shop-buy", "shop")
def buy(world: World) -> Goal:
    """Order products, at higher levels with a coupon."""
    products = buyable(world, {"easy": 1, "medium": 2, "hard": 3}[world.level])
    lines = [(one, world.rng.randrange(1, 4)) for one in products]
    place, shipping = world.rng.choice(world.addresses[:3]), world.rng.choice(tuple(words.SHIPPING))
    said = ", ".join(f"{count} of the {one.name}" for one, count in lines)
    code, coupon = "", ""
    if world.level != "easy":
        if not any(_off(one, lines) for one in world.coupons):
            world.replace("coupons", world.coupons[0], category="")
        best = sorted(world.coupons, key=lambda one: _off(one, lines))[-1]
        others = [one for one in world.coupons if one is not best]
        if any(_off(one, lines) == _off(best, lines) for one in others):
            best = world.replace("coupons", best, percent=best.percent + 30)
        code = best.id
        coupon = f" Use the coupon {code}." if world.level == "medium" else (
            " Use the coupon of the page Offers that makes this order the cheapest."
        )  # fmt: skip

    def act(desk: Desk) -> None:
        for product, count in lines:
            actions.add_to_cart(desk, product.id, count)
        actions.place_order(desk, place.id, shipping, code)

    steps = [step for line in lines for step in put_into_cart(*line)]
    steps += [go(f"{SHOP}/offers"), see(code)] if code else []
    return Goal(f"Order {said} in the shop, to my address {place.label}, with the shipping {shipping}.{coupon}",
                [*steps, *checkout(place, shipping, code)], act=act)  # fmt: skip


@template("shop-cancel", "shop", ("easy", "medium"))
def cancel(world: World) -> Goal:
    """Cancel an order."""
    order, product = _order_of_one(world)
    order = world.replace("orders", order, status="processing", tracking="")
    what = f"my order {order.id}" if world.level == "easy" else f"my order with the {product.name} in it"
    steps = [*open_order(world, order), click('button "Cancel order"'), click('button "Yes, cancel it"')]
    return Goal(f"Cancel {what} in the shop.", steps, act=lambda desk: actions.cancel_order(desk, order.id))


@template("shop-return", "shop", split="test")
def send_back(world: World) -> Goal:
    """Return something that was delivered."""
    order, product = _order_of_one(world)
    order = world.replace("orders", order, status="delivered", tracking=f"TR{world.rng.randrange(10**6, 10**7)}")
    line = next(one for one in world.lines(order) if one.product == product.id)
    reason, wish = world.rng.choice(words.RETURN_REASONS), world.rng.choice(words.RETURN_WISHES)
    lines, what = [line], f"the {product.name} of my order {order.id}"
    if world.level == "medium":
        what = f"the {product.name} that I have ordered"
    if world.level == "hard":
        lines, what = world.lines(order), f"everything in my order with the {product.name}"

    def act(desk: Desk) -> None:
        for line in lines:
            actions.return_line(desk, line.id, reason, wish)

    steps = [step for one in lines for step in _return(world, order, one, reason, wish)]
    return Goal(f'Return {what} to the shop, with the reason "{reason}"; I want "{wish}" instead.', steps, act=act)


def _return(world: World, order: Orders, line: OrderLines, reason: str, wish: str) -> list[Step]:
    name = world.product(line.product).name
    return [*open_order(world, order), click(f'link "Return {name}"'), pick('combobox "Reason"', reason),
            pick('combobox "Instead I want"', wish), click('button "Send return"')]  # fmt: skip


@template("shop-review", "shop", ("easy", "medium"))
def write_review(world: World) -> Goal:
    """Write a review."""
    stars, title = world.rng.randrange(1, 6), world.rng.choice(words.REVIEW_TITLES)
    text = world.rng.choice(words.REVIEW_TEXTS).format(n=world.rng.randrange(2, 90))
    product, steps = world.rng.choice(world.products), list[Step]()
    what = f"the {product.name}"
    if world.level == "medium":
        order = world.rng.choice(world.my_orders())
        product = max((world.product(line.product) for line in world.lines(order)), key=lambda one: one.price)
        what, steps = f"the product with the highest price in my order {order.id}", open_order(world, order)
    steps += [*find_product(product.name), click('link "Write a review"'), pick('combobox "Stars"', count_of(stars)),
              fill('textbox "Title"', title), fill('textbox "Review"', text), click('button "Send review"')]  # fmt: skip
    return Goal(f'Write a review of {what} in the shop: {count_of(stars)}, the title "{title}", and the text "{text}"', steps,
                act=lambda desk: actions.review(desk, product.id, stars, title, text))  # fmt: skip


@template("shop-address", "shop", ("easy", "medium"), split="test")
def change_address(world: World) -> Goal:
    """Add an address, or move one."""
    street = f"{world.rng.randrange(1, 300)} {world.rng.choice(words.STREETS)}"
    city, postcode = world.rng.choice(words.CITIES), str(world.rng.randrange(10**4, 10**5))
    values = {"Street": street, "City": city, "Postcode": postcode}
    if world.level == "easy":
        steps = [go(f"{SHOP}/account"), click('link "Add an address"'), fill('textbox "Label"', "Garage")]
        text, id, label = "Add an address with the label Garage to my account in the shop", "", "Garage"
    else:
        place = world.rng.choice(world.addresses[:3])
        id, label = place.id, place.label
        steps = [go(f"{SHOP}/account"), click(f'link "Edit {label}"')]
        text = f"I have moved. Change my address {label} in the shop, and keep its label"
    steps += [fill(f'textbox "{name}"', value) for name, value in values.items()]
    return Goal(f"{text}: street {street}, city {city}, postcode {postcode}.", [*steps, click('button "Save address"')],
                act=lambda desk: actions.save_address(desk, id, label, street, city, postcode))  # fmt: skip


@template("shop-wishes", "shop", ("medium", "hard"), split="test")
def wishes(world: World) -> Goal:
    """Put all products of a kind on the wish list."""
    most = 3 if world.level == "medium" else 6
    kinds = [
        (brand, category, found)
        for brand in sorted({product.brand for product in world.products}) for category in words.CATEGORIES
        if 2 <= len(found := [product for product in world.products if product.brand == brand and product.category == category]) <= most
    ]  # fmt: skip
    brand, category, found = world.rng.choice(kinds)

    def act(desk: Desk) -> None:
        for one in found:
            actions.wish(desk, one.id, True)

    steps = [step for one in found for step in [*find_product(one.name), click('button "Add to wish list"')]]
    return Goal(
        f"Put all products of the brand {brand} in the category {category} on my wish list in the shop.", steps, act=act
    )


@template("shop-reorder", "shop", ("medium", "hard"))
def reorder(world: World) -> Goal:
    """Put the products of an order into the cart again."""
    order, product = _order_of_one(world)
    what = f"my order {order.id}" if world.level == "medium" else f"my order with the {product.name} in it"
    lines = []
    for one in world.lines(order):
        row = world.product(one.product)
        lines.append((world.replace("products", row, stock=max(row.stock, 9)), one.quantity))

    def act(desk: Desk) -> None:
        for row, count in lines:
            actions.add_to_cart(desk, row.id, count)

    steps = [*open_order(world, order), *(see(row.name) for row, _ in lines)]
    return Goal(f"Put the products of {what} into the cart of the shop again, in the same quantities. Do not order.",
                [*steps, *(step for line in lines for step in put_into_cart(*line))], act=act)  # fmt: skip


@template("shop-profile", "shop", ("easy",))
def profile(world: World) -> Goal:
    """Change the phone number, and take the newsletter."""
    phone = f"555-{world.rng.randrange(1000, 10000)}"
    steps = [
        go(f"{SHOP}/account"),
        fill('textbox "Phone"', phone),
        click('checkbox "Newsletter"'),
        click('button "Save"'),
    ]
    return Goal(f"Change my phone number in the shop to {phone}, and subscribe me to the newsletter.", steps,
                act=lambda desk: actions.change_profile(desk, phone, True))  # fmt: skip


@template("shop-tidy-cart", "shop", ("medium", "hard"))
def tidy_cart(world: World) -> Goal:
    """Remove what is too expensive from a full cart."""
    products = buyable(world, 3 if world.level == "medium" else 6)
    world.cart_lines += [
        CartLines(f"C-{number}", ME, product.id, world.rng.randrange(1, 5))
        for number, product in enumerate(products, 1)
    ]
    ranked = sorted_by(products, "price")
    limit = ranked[len(ranked) // 2].price
    gone = [cart_line for cart_line in world.cart_lines if world.product(cart_line.product).price >= limit]
    kept = world.rng.choice([cart_line for cart_line in world.cart_lines if cart_line not in gone])
    count = kept.quantity + 1

    def act(desk: Desk) -> None:
        for one in gone:
            actions.set_quantity(desk, one.id, 0)
        actions.set_quantity(desk, kept.id, count)

    name = world.product(kept.product).name
    steps = [go(f"{SHOP}/cart"), *(click(f'button "Remove {world.product(one.product).name}"') for one in gone)]
    order = [cart_line for cart_line in world.cart_lines if cart_line not in gone].index(kept)
    steps += [fill(f'textbox "Quantity of {name}"', str(count)), Step("click", f'button "Update" #{order + 1}')]
    return Goal(
        f"Remove from my cart in the shop every product with a price of {money(limit)} or more, and set the quantity of the "
        f"{name} to {count}. Do not order.",
        steps, act=act,
    )  # fmt: skip
