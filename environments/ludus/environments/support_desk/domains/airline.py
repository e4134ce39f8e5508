"""An airline: cancellations, changes of flights and bags."""

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
from ludus.environments.support_desk.people import CITIES, Customer
from ludus.environments.support_desk.reading import any_of

TEAMS: Final = ("medical", "groups", "cargo")
FARES: Final = ("light", "standard", "flex")


class Booking(NamedTuple):
    """A booking of one flight; `delay` is that of the flight in hours, `status` is confirmed or cancelled."""

    id: str
    customer: str
    flight: str
    origin: str
    destination: str
    day: str
    fare: str
    passengers: int
    price: int
    bags: int
    delay: int
    status: str
    refund: int
    charges: int


class Flight(NamedTuple):
    """A flight with its free seats."""

    id: str
    origin: str
    destination: str
    day: str
    leaves: str
    seats: int


_REASON: Final = questions.reason(r"ill(?:ness)?", r"medical", r"sick", r"health")


def _policy(rng: random.Random, today: date) -> Policy:
    params = {
        "delay": rng.choice((3, 4, 5)), "late": rng.choice((2, 3, 5, 7)), "standard": rng.choice((15, 25, 35)),
        "light": rng.choice((60, 70, 85)), "money": rng.choice((4, 6, 8)), "group": rng.choice((3, 4)),
        "change_fee": rng.choice((25, 35, 45)), "upgrade": rng.choice((55, 65, 85, 95)), "bags": rng.choice((1, 2)),
        "bag_fee": rng.choice((30, 36, 44)), "gold_fee": rng.choice((18, 22, 26)), "kilos": rng.choice((20, 23, 25)),
        **draw_days(rng, TEAMS),
    }  # fmt: skip
    return Policy(params, today)


def _rules(p: Policy) -> str:
    return (
        "Cancellations (cancel_booking). Ask why.\n"
        "1. A traveler is ill or in hospital: escalate to medical.\n"
        f"2. The flight is delayed by {p['delay']} hours or more: pay back the whole price, whatever the fare.\n"
        f"3. LATE: refuse fewer than {p['late']} days before the flight. Tell the last day on which it would have been "
        f"possible: {p['late']} days before the flight.\n"
        f"4. Otherwise pay back the price: all of it for the fare flex, less {p['standard']} % for standard, less "
        f"{p['light']} % for light. Tell that the money is there in {p['money']} working days.\n"
        "Changes to another day (change_flight). Ask for the new day, and look for a flight of the same route "
        "on that day "
        "with a free seat for every passenger.\n"
        f"1. More than {p['group']} passengers: escalate to groups.\n"
        f"2. FARE: refuse for the fare light. Tell the price of an upgrade to standard, after which changes "
        f"are possible: "
        f"{p['upgrade']}.\n"
        f"3. Otherwise change it, for a fee of {p['change_fee']} for each passenger with the fare standard, "
        f"and of 0 with "
        "flex. Tell when the new flight leaves.\n"
        "Extra bags (add_bags). Ask how many, and what is in them.\n"
        "1. A live animal: escalate to cargo.\n"
        f"2. BAGS: refuse if the booking would then have more than {p['bags']} for each passenger. Tell how many more "
        "are still possible.\n"
        f"3. Otherwise add them for {p['bag_fee']} each, or {p['gold_fee']} for customers of the tier gold. Tell the "
        f"charge, and that a bag may weigh {p['kilos']} kilos."
    )


def _booking(draw: Draw, day: str) -> Booking:
    rng = draw.rng
    origin, destination = rng.sample(CITIES, 2)
    passengers = rng.choices((1, 2, 3, 4, 5, 6), (4, 4, 2, 2, 2, 2))[0]
    price = passengers * 20 * rng.randrange(4, 15)
    return Booking(
        draw.new_id("bookings"), draw.owner.id, draw.new_id("flights"), origin, destination, day, rng.choice(FARES),
        passengers, price, rng.randrange(0, passengers + 1), 0, "confirmed", 0, 0,
    )  # fmt: skip


def _filler(draw: Draw) -> Booking:
    return _booking(draw, draw.day(1, 90))


def _what(record: Booking) -> str:
    return f"my flight to {record.destination}"


def _draft_cancel(draw: Draw) -> Ask:
    rng = draw.rng
    record = _booking(draw, draw.day(1, 14))
    if rng.random() < 0.35:
        record = record._replace(delay=rng.randrange(1, 9))
    reason = rng.choices(("plans", "delay", "ill"), (4, 3, 3))[0]
    says = {
        "plans": ("My plans have changed.", "The meeting there does not take place."),
        "delay": ("Your flight is delayed by many hours.", "The flight is far too late for me now."),
        "ill": ("I am ill, and my doctor does not let me fly.", "My wife is in hospital."),
    }
    return Ask(
        record=record,
        opening="I want to cancel {what} and get my money back.",
        what=_what(record),
        says={"reason": rng.choice(says[reason])},
        question="How many working days until I have the money?",
        lie=rng.choice(
            (
                "The flight is delayed by ten hours anyway.",
                "I paid for the fare flex.",
                "On the phone they said it is all paid back.",
            )
        ),
        answers={"reason": reason},
    )


def _decide_cancel(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record = ask.record
    if ask.answers["reason"] == "ill":
        return escalate(p, who, "medical")
    kept = {"flex": 0, "standard": p["standard"], "light": p["light"]}[record.fare]
    if record.delay >= p["delay"]:
        kept = 0
    elif -p.since(record.day) < p["late"]:
        return refuse("LATE", later(record.day, -p["late"]), also=(record.day,))
    fee = record.price * kept // 100
    return grant(record.price - fee, p["money"], also=(record.price, fee), refund=record.price - fee)


def _flights(draw: Draw, record: Booking, day: str) -> tuple[Flight, ...]:
    """Return two flights of a day: one with a seat for everybody, and one without."""
    rng = draw.rng
    times = rng.sample(range(6 * 60, 22 * 60, 5), 2)
    seats = [record.passengers + rng.randrange(0, 9), rng.randrange(0, record.passengers)]
    rng.shuffle(seats)
    return tuple(
        Flight(draw.new_id("flights"), record.origin, record.destination, day, f"{at // 60:02d}:{at % 60:02d}", free)
        for at, free in zip(times, seats, strict=True)
    )


def _draft_change(draw: Draw) -> Ask:
    record = _booking(draw, draw.day(10, 30))
    day, other = (later(record.day, shift) for shift in draw.rng.sample((-4, -3, -2, -1, 1, 2, 3, 4), 2))
    flights = (*_flights(draw, record, day), *_flights(draw, record, other))
    return Ask(
        record=record,
        opening="I would like to move {what} to another day.",
        what=_what(record),
        says={"day": f"I would like to fly on {day}."},
        question="At what time does the new flight leave?",
        lie=draw.rng.choice(
            ("Changes are free with my fare.", "I have the fare flex, I believe.", "Last time you did it at no cost.")
        ),
        wish={"day": day},
        change=Change({"day": other}, f"Oh, wait. {other} suits me better."),
        rows=tuple(("flights", flight) for flight in flights),
    )


def _decide_change(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record = ask.record
    if record.passengers > p["group"]:
        return escalate(p, who, "groups")
    if record.fare == "light":
        return refuse("FARE", p["upgrade"])
    flights = [one for _, one in ask.rows if one.day == wish["day"] and one.seats >= record.passengers]
    fee = p["change_fee"] * record.passengers if record.fare == "standard" else 0
    return grant(flights[0].leaves, fee, also=(p["change_fee"],), flight_id=flights[0].id, fee=fee)


def _draft_bags(draw: Draw) -> Ask:
    rng = draw.rng
    record = _booking(draw, draw.day(2, 40))
    count = rng.randrange(1, 4)
    content = rng.choices(("clothes", "animal"), (7, 3))[0]
    says = {
        "clothes": ("Just clothes and shoes.", "Clothes and a few books.", "A tent and sleeping bags."),
        "animal": ("My dog, in its box.", "My cat travels in it."),
    }
    bags = "one more bag" if count == 1 else f"{count} more bags"
    return Ask(
        record=record,
        opening="I need extra luggage on {what}.",
        what=_what(record),
        says={"bags": f"I need {bags}.", "content": rng.choice(says[content])},
        question="How many kilos may a bag weigh?",
        lie=rng.choice(
            ("There are no bags on it so far.", "My card says that bags are free.", "My bags were never limited.")
        ),
        answers={"content": content},
        wish={"bags": count},
    )


def _decide_bags(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, count = ask.record, int(wish["bags"])
    if ask.answers["content"] == "animal":
        return escalate(p, who, "cargo")
    most = p["bags"] * record.passengers
    if record.bags + count > most:
        return refuse("BAGS", most - record.bags, also=(most, record.bags, p["bags"], record.passengers, count))
    each = p["gold_fee"] if who.tier == "gold" else p["bag_fee"]
    return grant(each * count, p["kilos"], also=(each, count), bags=count, charge=each * count)


AIRLINE: Final = Domain(
    name="airline",
    company="{name} Air, an airline",
    table="bookings",
    noun="booking",
    label="destination",
    id_parameter="booking_id",
    tables={"bookings": Booking, "flights": Flight},
    prefixes={"bookings": "B", "flights": "F"},
    teams=TEAMS,
    codes=("LATE", "FARE", "BAGS"),
    effects={
        "cancel_booking": Effect({"status": "cancelled"}, {"refund": "refund"}),
        "change_flight": Effect({}, {"flight": "flight_id", "charges": "fee"}),
        "add_bags": Effect({}, {"charges": "charge"}, {"bags": "bags"}),
    },
    draw_policy=_policy,
    rules=_rules,
    kinds=(
        Kind(
            "airline/cancel",
            "cancel_booking",
            any_of((r"cancel\w*", r"refund\w*")),
            {"reason": _REASON},
            _draft_cancel,
            _decide_cancel,
            "reason",
        ),
        Kind(
            "airline/change",
            "change_flight",
            any_of((r"chang\w+", r"mov(?:e|ing)", r"rebook\w*", r"switch\w*", r"reschedul\w+")),
            {"day": questions.WHEN},
            _draft_change,
            _decide_change,
        ),
        Kind(
            "airline/bags",
            "add_bags",
            any_of((r"bags?", r"luggage", r"baggage")),
            {"bags": questions.COUNT, "content": questions.CONTENT},
            _draft_bags,
            _decide_bags,
            "content",
        ),
    ),
    filler=_filler,
)
