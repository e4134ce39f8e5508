"""A club of subscriptions: refunds of charges, pauses and other plans."""

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
from ludus.environments.support_desk.people import Customer
from ludus.environments.support_desk.reading import any_of

TEAMS: Final = ("billing", "care", "schools")
TITLES: Final = (
    "Film Club", "Night Radio", "Atlas Maps", "Kitchen Weekly", "Garden Journal", "Chess Lessons", "Sky Atlas",
    "Music Box", "Sports Desk", "Story Hour", "Language Lab", "Science Today",
)  # fmt: skip
PLANS: Final[tuple[str, ...]] = ("Solo", "Duo", "Family", "Crowd")


class Subscription(NamedTuple):
    """A subscription; `renewed` is the day of the last charge, `uses` are those since then, `paused_until` the end of
    the last pause, `status` is active, paused or refunded."""

    id: str
    customer: str
    title: str
    plan: str
    price: int
    members: int
    renewed: str
    next_charge: str
    uses: int
    paused_until: str
    status: str
    refund: int


_REASON: Final = questions.reason(r"hospital", r"ill(?:ness)?")


def _policy(rng: random.Random, today: date) -> Policy:
    base = rng.choice((20, 30, 40))
    prices = [base + step for step in sorted(rng.sample(range(0, 60, 10), 4))]
    sizes: dict[str, int] = dict(zip(PLANS, (1, 2, rng.choice((4, 5)), rng.choice((7, 8))), strict=True))
    params = {
        "window": rng.choice((7, 10, 14)), "uses": rng.choice((3, 4, 5)), "limit": rng.choice((55, 65, 75)),
        "per_use": rng.choice((1, 2)), "money": rng.choice((4, 6, 8)), "between": rng.choice((90, 120, 150)),
        "gold": rng.choice((10, 20, 30)), **draw_days(rng, TEAMS),
    }  # fmt: skip
    plans: dict[str, int] = dict(zip(PLANS, prices, strict=True))
    return Policy(params, today, {"plans": plans, "sizes": sizes})


def _rules(p: Policy) -> str:
    plans = ", ".join(f"{name} {price} for {p.words['sizes'][name]}" for name, price in p.words["plans"].items())
    return (
        f"Plans with their monthly prices and the most members: {plans}.\n"
        "Refunds of the last charge (refund_charge). Ask why.\n"
        "1. The customer is ill or in hospital: escalate to care.\n"
        f"2. WINDOW: refuse later than {p['window']} days after the day `renewed`. Tell the last day on which it would "
        "have been possible.\n"
        f"3. USED: refuse if it has been used more than {p['uses']} times since then. Tell how many times it has been "
        "used.\n"
        f"4. The price is more than {p['limit']}: escalate to billing.\n"
        f"5. Otherwise pay back the price, less {p['per_use']} for each use. Tell that the money is there in "
        f"{p['money']} working days.\n"
        "Pauses (pause_subscription). Ask for the last day of the pause, and why.\n"
        "1. The customer has lost work or home: escalate to care.\n"
        f"2. PAUSED: refuse fewer than {p['between']} days after the day `paused_until`, the end of the pause before. "
        f"Tell the first day on which it is possible again: {p['between']} days after that day.\n"
        "3. Otherwise pause it from today. The next charge moves by the days from today to the last day: tell the new "
        "day.\n"
        "Changes of the plan (change_plan). Ask which plan, and whether it is for a school.\n"
        "1. It is used by a school or class: escalate to schools.\n"
        "2. MEMBERS: refuse a plan for fewer members than the subscription has. Tell how many members would have to "
        "leave.\n"
        f"3. Otherwise change it, from the next charge. Customers of the tier gold pay {p['gold']} % less "
        f"than the price "
        "of the plan. Tell the new monthly price, and the day of the next charge."
    )


def _subscription(draw: Draw) -> Subscription:
    rng = draw.rng
    plan = rng.choice(PLANS)
    renewed = draw.day(-28, -1)
    members = rng.randint(1, draw.policy.words["sizes"][plan])
    return Subscription(
        draw.new_id("subscriptions"), draw.owner.id, rng.choice(TITLES), plan, draw.policy.words["plans"][plan],
        members, renewed, later(renewed, 30), rng.randrange(0, 8), draw.day(-260, -30), "active", 0,
    )  # fmt: skip


def _what(record: Subscription) -> str:
    return f"my subscription of {record.title}"


def _draft_refund(draw: Draw) -> Ask:
    rng = draw.rng
    record = _subscription(draw)._replace(renewed=draw.day(-20, -1))
    record = record._replace(next_charge=later(record.renewed, 30))
    reason = rng.choices(("forgot", "ill"), (7, 3))[0]
    says = {
        "forgot": ("I forgot to cancel it in time.", "I do not watch or read it anymore.", "I thought it was free."),
        "ill": ("I am in hospital and cannot use it.", "I am seriously ill at the moment."),
    }
    return Ask(
        record=record,
        opening="I want the last charge of {what} back.",
        what=_what(record),
        says={"reason": rng.choice(says[reason])},
        question="How many working days until I have the money?",
        lie=rng.choice(("I have not used it once.", "You charged me only yesterday.", "It says 60 days on your page.")),
        answers={"reason": reason},
    )


def _decide_refund(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record = ask.record
    if ask.answers["reason"] == "ill":
        return escalate(p, who, "care")
    if p.since(record.renewed) > p["window"]:
        return refuse("WINDOW", later(record.renewed, p["window"]), also=(record.renewed,))
    if record.uses > p["uses"]:
        return refuse("USED", record.uses, also=(p["uses"],))
    if record.price > p["limit"]:
        return escalate(p, who, "billing")
    kept = p["per_use"] * record.uses
    amount = max(0, record.price - kept)
    return grant(amount, p["money"], also=(record.price, record.uses, kept, p["per_use"]), amount=amount)


def _draft_pause(draw: Draw) -> Ask:
    rng = draw.rng
    record = _subscription(draw)
    ends, other = (draw.day(at, at) for at in rng.sample(range(10, 70), 2))
    reason = rng.choices(("travel", "work"), (7, 3))[0]
    says = {
        "travel": ("I am traveling.", "I have no time for it at the moment.", "I want to try something else."),
        "work": ("I have lost my job.", "I have lost my home in a fire."),
    }
    return Ask(
        record=record,
        opening="Can you pause {what} for me?",
        what=_what(record),
        says={"until": f"Until {ends}.", "reason": rng.choice(says[reason])},
        question="On which day is the next charge then?",
        lie=rng.choice(
            ("I have never paused it.", "A friend pauses every month.", "I paused it two years ago, not later.")
        ),
        answers={"reason": reason},
        wish={"until": ends},
        change=Change({"until": other}, f"Oh, one moment: until {other} is better."),
    )


def _decide_pause(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, until = ask.record, str(wish["until"])
    if ask.answers["reason"] == "work":
        return escalate(p, who, "care")
    if p.since(record.paused_until) < p["between"]:
        return refuse("PAUSED", later(record.paused_until, p["between"]), also=(record.paused_until,))
    charge = later(record.next_charge, -p.since(until))
    return grant(charge, also=(until, record.next_charge), until=until, next_charge=charge)


def _draft_plan(draw: Draw) -> Ask:
    rng = draw.rng
    record = _subscription(draw)
    plan, other = rng.sample([one for one in PLANS if one != record.plan], 2)
    school = rng.random() < 0.3
    return Ask(
        record=record,
        opening="I would like to have another plan for {what}.",
        what=_what(record),
        says={
            "plan": f"The plan {plan}.",
            "use": rng.choice(("It is for my class at school.", "My pupils use it."))
            if school
            else "No, just at home.",
        },
        question="What will I pay each month, and when is the next charge?",
        lie=rng.choice(
            ("I use it all alone.", "Gold customers pay half, and I am one.", "The old price stays, you said.")
        ),
        answers={"use": "school" if school else "home"},
        wish={"plan": plan},
        change=Change({"plan": other}, f"Wait, {other} is the one that I want."),
    )


def _decide_plan(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, plan = ask.record, str(wish["plan"])
    if ask.answers["use"] == "school":
        return escalate(p, who, "schools")
    size = p.words["sizes"][plan]
    if record.members > size:
        return refuse("MEMBERS", record.members - size, also=(record.members, size))
    full = p.words["plans"][plan]
    price = full * (100 - p["gold"]) // 100 if who.tier == "gold" else full
    return grant(price, record.next_charge, also=(full, record.price), plan=plan, price=price)


MEDIA: Final = Domain(
    name="media",
    company="{name} Media, which sells subscriptions",
    table="subscriptions",
    noun="subscription",
    label="title",
    id_parameter="subscription_id",
    tables={"subscriptions": Subscription},
    prefixes={"subscriptions": "S"},
    teams=TEAMS,
    codes=("WINDOW", "USED", "PAUSED", "MEMBERS"),
    effects={
        "refund_charge": Effect({"status": "refunded"}, {"refund": "amount"}),
        "pause_subscription": Effect({"status": "paused"}, {"paused_until": "until", "next_charge": "next_charge"}),
        "change_plan": Effect({}, {"plan": "plan", "price": "price"}),
    },
    draw_policy=_policy,
    rules=_rules,
    kinds=(
        Kind(
            "media/refund",
            "refund_charge",
            any_of((r"refund\w*", r"money back", r"pay(?:ing)? back", r"charge", r"reimburs\w+")),
            {"reason": _REASON},
            _draft_refund,
            _decide_refund,
            "reason",
        ),
        Kind(
            "media/pause",
            "pause_subscription",
            any_of((r"paus\w+", r"suspen\w+", r"hold")),
            {"until": questions.UNTIL, "reason": _REASON},
            _draft_pause,
            _decide_pause,
            "reason",
        ),
        Kind(
            "media/plan",
            "change_plan",
            any_of((r"plans?", r"chang\w+", r"switch\w*", r"upgrad\w+", r"downgrad\w+")),
            {"plan": questions.PLAN, "use": questions.USE},
            _draft_plan,
            _decide_plan,
            "use",
        ),
    ),
    filler=_subscription,
)
