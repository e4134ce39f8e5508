"""A shop: refunds, cancellations and changes of address."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date
from typing import Final, NamedTuple

from ludus.environments.support_desk import questions
from ludus.environments.support_desk.kinds import (
    Ask,
    Change,
    Decision,
    Domain,
    Draw,
    Effect,
    Kind,
    Policy,
    Value,
    draw_days,
    escalate,
    grant,
    later,
    refuse,
)
from ludus.environments.support_desk.people import Customer, street
from ludus.environments.support_desk.reading import any_of

TEAMS: Final = ("supervisors", "safety", "fraud")
ITEMS: Final = (
    "kettle", "toaster", "desk lamp", "blender", "hair dryer", "coffee grinder", "fan heater", "headset", "keyboard",
    "e-reader", "speaker", "electric drill", "sewing machine", "rice cooker", "air purifier", "label printer",
)  # fmt: skip
COLORS: Final = ("black", "white", "blue", "red", "green", "gray")


class Order(NamedTuple):
    """An order; `status` is processing, shipped, delivered, cancelled or refunded; `arrives` is the day of delivery."""

    id: str
    customer: str
    item: str
    price: int
    ordered: str
    arrives: str
    status: str
    address: str
    refund: int
    refund_to: str


_METHODS: Final = {"card": "my card", "credit": "store credit"}
_REASON: Final = questions.reason(r"problems?", r"defect(?:ive)?", r"faulty", r"broken", r"damaged")


def _policy(rng: random.Random, today: date) -> Policy:
    params = {
        "window": rng.choice((14, 21, 30, 45)), "extra": rng.choice((7, 10, 15)), "defect": rng.choice((120, 180, 365)),
        "limit": rng.choice((180, 240, 300, 360)), "fee": rng.choice((10, 15, 20, 25)), 
        "card": rng.choice((4, 6, 7, 8)),
        "credit": rng.choice((1, 2, 3)), "free_days": rng.choice((2, 3, 4)), "cancel_fee": rng.choice((4, 6, 9, 12)),
        "delay": rng.choice((2, 3, 4)), **draw_days(rng, TEAMS),
    }  # fmt: skip
    return Policy(params, today)


def _rules(p: Policy) -> str:
    return (
        "Refunds of delivered orders (refund_order). Ask why the customer returns the item, whether it has "
        "been opened, "
        "and whether the money goes to the card or becomes store credit.\n"
        "1. Smoke, sparks or burns: escalate to safety.\n"
        f"2. WINDOW: refuse later than {p['window']} days after the day of delivery. Customers of the tier gold have "
        f"{p['extra']} days more. For defective items, it is {p['defect']} days for everybody. Tell the last day on "
        "which it would have been possible.\n"
        f"3. The price is more than {p['limit']}: escalate to supervisors.\n"
        f"4. Otherwise refund the price, less {p['fee']} % if the item has been opened and is not defective. Tell that "
        f"the money is there in {p['card']} working days on a card, or in {p['credit']} as store credit.\n"
        "Cancellations (cancel_order). Ask why.\n"
        "1. The customer did not place the order: escalate to fraud.\n"
        "2. SHIPPED: refuse if the order has been shipped or delivered. Tell the day on which it arrives.\n"
        f"3. Otherwise cancel and pay back the price, less {p['cancel_fee']} if the order is more than "
        f"{p['free_days']} days old. The money goes to the card: tell in how many working days it is there, as above.\n"
        "Changes of the delivery address (change_address). Ask for the new address.\n"
        "1. SHIPPED: refuse if the order has been shipped or delivered. Tell the day on which it arrives.\n"
        f"2. The price is more than {p['limit']}: escalate to fraud.\n"
        f"3. Otherwise change it. The order then arrives {p['delay']} days later than planned: tell the new day."
    )


def _order(draw: Draw, status: str, ordered: str, arrives: str, price: int) -> Order:
    item = f"{draw.rng.choice(COLORS)} {draw.rng.choice(ITEMS)}"
    return Order(draw.new_id("orders"), draw.owner.id, item, price, ordered, arrives, status, draw.owner.address, 0, "")


def _price(rng: random.Random) -> int:
    return 20 * rng.randrange(2, 25)


def _filler(draw: Draw) -> Order:
    status = draw.rng.choice(("processing", "shipped", "delivered"))
    ahead = draw.rng.randrange(2, 9) if status != "delivered" else -draw.rng.randrange(1, 90)
    arrives = draw.day(ahead, ahead)
    return _order(draw, status, later(arrives, -10), arrives, _price(draw.rng))


_REASONS: Final = {
    "mind": ("I simply do not like it.", "I do not need it anymore.", "It is not what I expected."),
    "defect": ("It is defective: it does not switch on.", "It is broken, it stopped working after a week."),
    "smoke": ("There was smoke coming out of it when I plugged it in.", "It threw sparks when I used it."),
}


def _draft_refund(draw: Draw) -> Ask:
    rng = draw.rng
    arrives = draw.day(-60, -1) if rng.random() < 0.7 else draw.day(-400, -20)
    record = _order(draw, "delivered", later(arrives, -rng.randrange(3, 9)), arrives, _price(rng))
    reason = rng.choices(tuple(_REASONS), (5, 3, 2))[0]
    opened = reason == "smoke" or rng.random() < 0.6
    method, other = rng.sample(tuple(_METHODS), 2)
    return Ask(
        record=record,
        opening="I would like to send back {what} and get my money back.",
        what=f"the {record.item}",
        says={
            "reason": rng.choice(_REASONS[reason]),
            "opened": "Yes, I have opened it." if opened else "No, it is still sealed.",
            "to": f"I want the money as {_METHODS[method]}." if method == "credit" else "Back to my card, please.",
        },
        question="How many working days until I have the money?",
        lie=rng.choice(
            (
                "I got it only last week.",
                "I am one of your gold customers, by the way.",
                "Your colleague promised me the full price.",
            )
        ),
        answers={"reason": reason, "opened": "yes" if opened else "no"},
        wish={"to": method},
        change=Change({"to": other}, f"Wait, I have changed my mind: {_METHODS[other]} would be better."),
    )


def _decide_refund(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, reason = ask.record, ask.answers["reason"]
    if reason == "smoke":
        return escalate(p, who, "safety")
    window = p["defect"] if reason == "defect" else p["window"] + (p["extra"] if who.tier == "gold" else 0)
    if p.since(record.arrives) > window:
        return refuse("WINDOW", later(record.arrives, window), also=(record.arrives,))
    if record.price > p["limit"]:
        return escalate(p, who, "supervisors")
    fee = record.price * p["fee"] // 100 if ask.answers["opened"] == "yes" and reason != "defect" else 0
    amount = record.price - fee
    return grant(amount, p[str(wish["to"])], also=(record.price, fee), amount=amount, to=wish["to"])


def _draft_cancel(draw: Draw) -> Ask:
    rng = draw.rng
    ordered = draw.day(-8, 0)
    status = rng.choice(("processing", "processing", "shipped"))
    record = _order(draw, status, ordered, draw.day(2, 9), _price(rng))
    reason = rng.choices(("mind", "stranger"), (7, 3))[0]
    says = {
        "mind": ("I found it cheaper elsewhere.", "I ordered it by mistake.", "I do not need it anymore."),
        "stranger": ("I never ordered this. A stranger must have used my account.", "I did not place this order."),
    }
    return Ask(
        record=record,
        opening="Please cancel {what}.",
        what=f"the order of the {record.item}",
        says={"reason": rng.choice(says[reason])},
        question="How many working days until the money is back on my card?",
        lie=rng.choice(
            ("It surely has not been sent yet.", "I ordered it only an hour ago.", "Cancelling is always free.")
        ),
        answers={"reason": reason},
    )


def _decide_cancel(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record = ask.record
    if ask.answers["reason"] == "stranger":
        return escalate(p, who, "fraud")
    if record.status != "processing":
        return refuse("SHIPPED", record.arrives)
    fee = p["cancel_fee"] if p.since(record.ordered) > p["free_days"] else 0
    return grant(record.price - fee, p["card"], also=(record.price, fee), refund=record.price - fee)


def _draft_address(draw: Draw) -> Ask:
    rng = draw.rng
    status = rng.choice(("processing", "processing", "shipped"))
    record = _order(draw, status, draw.day(-5, 0), draw.day(2, 9), _price(rng))
    new, other = street(rng, draw.owner.city), street(rng, draw.owner.city)
    return Ask(
        record=record,
        opening="I need {what} to be delivered to another address.",
        what=f"the {record.item} that I ordered",
        says={"address": f"The new address is {new}."},
        question="On which day will it arrive then?",
        lie=rng.choice(
            ("It is still in your warehouse, I saw that.", "You did this for me before.", "It is quite a cheap thing.")
        ),
        wish={"address": new},
        change=Change({"address": other}, f"Sorry, that was wrong. Send it to {other} instead."),
    )


def _decide_address(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record = ask.record
    if record.status != "processing":
        return refuse("SHIPPED", record.arrives)
    if record.price > p["limit"]:
        return escalate(p, who, "fraud")
    arrives = later(record.arrives, p["delay"])
    return grant(arrives, also=(record.arrives,), address=wish["address"], arrives=arrives)


SHOP: Final = Domain(
    name="shop",
    company="{name} Store, an online shop",
    table="orders",
    noun="order",
    label="item",
    id_parameter="order_id",
    tables={"orders": Order},
    prefixes={"orders": "O"},
    teams=TEAMS,
    codes=("WINDOW", "SHIPPED"),
    effects={
        "refund_order": Effect({"status": "refunded"}, {"refund": "amount", "refund_to": "to"}),
        "cancel_order": Effect({"status": "cancelled", "refund_to": "card"}, {"refund": "refund"}),
        "change_address": Effect({}, {"address": "address", "arrives": "arrives"}),
    },
    draw_policy=_policy,
    rules=_rules,
    kinds=(
        Kind(
            "shop/refund",
            "refund_order",
            any_of((r"refund\w*", r"money back", r"return\w*", r"credit", r"reimburs\w+", r"pay(?:ing)? back")),
            {"reason": _REASON, "opened": questions.OPENED, "to": questions.METHOD},
            _draft_refund,
            _decide_refund,
            "reason",
        ),
        Kind(
            "shop/cancel",
            "cancel_order",
            any_of((r"cancel\w*",)),
            {"reason": _REASON},
            _draft_cancel,
            _decide_cancel,
            "reason",
        ),
        Kind(
            "shop/address",
            "change_address",
            any_of((r"address", r"deliver\w*", r"sen[dt]", r"ship\w*")),
            {"address": questions.ADDRESS},
            _draft_address,
            _decide_address,
        ),
    ),
    filler=_filler,
)
