"""A phone company: plans, credits for outages and suspended lines."""

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

TEAMS: Final = ("contracts", "billing", "fraud")
PLANS: Final[tuple[str, ...]] = ("Start", "Flow", "Plus", "Max", "Ultra", "Prime")


class Line(NamedTuple):
    """A line; `starts` is the day on which the plan begins, `suspended_days` those of this year, `status` is active or
    suspended."""

    id: str
    customer: str
    number: str
    plan: str
    price: int
    starts: str
    contract_until: str
    next_bill: str
    suspended_days: int
    suspended_until: str
    status: str
    credit: int


class Outage(NamedTuple):
    """An outage of the network in a city."""

    id: str
    city: str
    day: str
    hours: int


_LOST: Final = questions.reason(r"stolen", r"lost", r"theft")


def _policy(rng: random.Random, today: date) -> Policy:
    prices = sorted(rng.sample(range(9, 60, 3), 5))
    plans: dict[str, int] = dict(zip(rng.sample(PLANS, 5), prices, strict=True))
    params = {
        "min_hours": rng.choice((6, 8, 12)), "rate": rng.choice((1, 2)), "most": rng.choice((24, 28, 32)),
        "suspend": rng.choice((60, 75, 90)), "hold": rng.choice((3, 4, 6)), **draw_days(rng, TEAMS),
    }  # fmt: skip
    return Policy(params, today, {"plans": plans})


def _rules(p: Policy) -> str:
    plans = ", ".join(f"{name} {price}" for name, price in p.words["plans"].items())
    return (
        f"Plans with their monthly prices: {plans}.\n"
        "Changes of the plan (change_plan). Ask which plan, and whether the line is used for a business.\n"
        "1. The line is used for a business: escalate to contracts.\n"
        "2. CONTRACT: refuse a cheaper plan before the day `contract_until`. Tell that day.\n"
        "3. Otherwise change it. A cheaper plan starts on the day of the next bill, a more expensive one "
        "today. Tell the "
        "new monthly price, and the day on which it starts.\n"
        "Credits for outages (credit_bill). Ask on which day it was, and look for the outage in the customer's city "
        "(find_outages).\n"
        f"1. SHORT: refuse if it lasted less than {p['min_hours']} hours. Tell how many hours it lasted by "
        f"the records.\n"
        f"2. The credit would be more than {p['most']}: escalate to billing.\n"
        f"3. Otherwise give a credit of {p['rate']} for each hour. Tell the day of the next bill, which shows it.\n"
        "Suspending a line (suspend_line). Ask for how many days, and whether the phone is lost or stolen, or "
        "what else "
        "the reason is.\n"
        "1. The phone has been stolen: escalate to fraud.\n"
        f"2. DAYS: refuse if the line would be suspended for more than {p['suspend']} days this year, those before "
        "included. Tell how many days are left.\n"
        "3. Otherwise suspend it from today: for 10 days that is until the day 10 days after today. Tell that day, and "
        f"that it costs {p['hold']} a month."
    )


def _line(draw: Draw) -> Line:
    rng = draw.rng
    plan = rng.choice(tuple(draw.policy.words["plans"]))
    number = f"+1 555 {rng.randrange(100, 1000)} {rng.randrange(1000, 10000)}"
    return Line(
        draw.new_id("lines"), draw.owner.id, number, plan, draw.policy.words["plans"][plan], draw.day(-900, -100),
        draw.day(-200, 200), draw.day(3, 27), rng.choice((0, 10, 20, 30, 40, 50)), "", "active", 0,
    )  # fmt: skip


def _what(record: Line) -> str:
    return f"the line with the number {record.number}"


def _draft_plan(draw: Draw) -> Ask:
    rng = draw.rng
    record = _line(draw)
    plan, other = rng.sample([one for one in draw.policy.words["plans"] if one != record.plan], 2)
    business = rng.random() < 0.3
    return Ask(
        record=record,
        opening="I would like to have another plan for {what}.",
        what=_what(record),
        says={
            "plan": f"I want the plan {plan}.",
            "use": rng.choice(("My company uses it.", "It is for my business.")) if business else "No, it is private.",
        },
        question="What will I pay each month, and from which day?",
        lie=rng.choice(
            (
                "My contract has ended long ago.",
                "You always let me change at once.",
                "The shop said that it is possible today.",
            )
        ),
        answers={"use": "business" if business else "private"},
        wish={"plan": plan},
        change=Change({"plan": other}, f"Hold on, I would rather have the plan {other}."),
    )


def _decide_plan(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, plan = ask.record, str(wish["plan"])
    price = p.words["plans"][plan]
    if ask.answers["use"] == "business":
        return escalate(p, who, "contracts")
    cheaper = price < record.price
    if cheaper and record.contract_until > p.today.isoformat():
        return refuse("CONTRACT", record.contract_until)
    starts = record.next_bill if cheaper else p.today.isoformat()
    return grant(price, starts, also=(record.price,), plan=plan, starts=starts)


def _draft_credit(draw: Draw) -> Ask:
    rng = draw.rng
    record = _line(draw)
    first, second = rng.sample(range(-25, -1), 2)
    outages = [
        Outage(draw.new_id("outages"), draw.owner.city, draw.day(at, at), rng.randrange(2, 30))
        for at in (first, second)
    ]
    return Ask(
        record=record,
        opening="My network was down for a long time. I want money back for {what}.",
        what=_what(record),
        says={"day": f"It was on {outages[0].day}."},
        question="On which day comes the bill that shows it?",
        lie=rng.choice(
            (
                "It was down for three whole days.",
                "My neighbors all got their money back.",
                "It lasted 40 hours at least.",
            )
        ),
        answers={"outage": outages[0].id},
        rows=tuple(("outages", outage) for outage in outages),
    )


def _decide_credit(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    hours = next(one.hours for _, one in ask.rows if one.id == ask.answers["outage"])
    if hours < p["min_hours"]:
        return refuse("SHORT", hours, also=(p["min_hours"],))
    amount = hours * p["rate"]
    if amount > p["most"]:
        return escalate(p, who, "billing")
    return grant(amount, ask.record.next_bill, also=(hours, p["rate"]), amount=amount)


def _draft_suspend(draw: Draw) -> Ask:
    rng = draw.rng
    record = _line(draw)
    days, other = rng.sample((10, 14, 20, 25, 30, 35, 40, 45), 2)
    reason = rng.choices(("lost", "travel", "stolen"), (4, 3, 3))[0]
    says = {
        "lost": ("I have lost the phone.", "I cannot find my phone anymore."),
        "travel": ("I am traveling and do not need it.", "I am abroad for a while."),
        "stolen": ("The phone was stolen from my bag.", "It has been stolen."),
    }
    return Ask(
        record=record,
        opening="Please suspend {what} for some time.",
        what=_what(record),
        says={"days": f"For {days} days.", "reason": rng.choice(says[reason])},
        question="Until which day is it, and what does it cost each month?",
        lie=rng.choice(
            ("I have never suspended it before.", "It is free, I read.", "I could suspend it all year, it says.")
        ),
        answers={"reason": reason},
        wish={"days": days},
        change=Change({"days": other}, f"Hm, make it {other} days instead."),
    )


def _decide_suspend(p: Policy, who: Customer, ask: Ask, wish: Mapping[str, Value]) -> Decision:
    record, days = ask.record, int(wish["days"])
    if ask.answers["reason"] == "stolen":
        return escalate(p, who, "fraud")
    left = max(0, p["suspend"] - record.suspended_days)
    if days > left:
        return refuse("DAYS", left, also=(days, p["suspend"], record.suspended_days))
    return grant(later(p.today.isoformat(), days), p["hold"], also=(days,), until=later(p.today.isoformat(), days))


TELECOM: Final = Domain(
    name="telecom",
    company="{name} Mobile, a phone company",
    table="lines",
    noun="line",
    label="number",
    id_parameter="line_id",
    tables={"lines": Line, "outages": Outage},
    prefixes={"lines": "L", "outages": "U"},
    teams=TEAMS,
    codes=("CONTRACT", "SHORT", "DAYS"),
    effects={
        "change_plan": Effect({}, {"plan": "plan", "starts": "starts"}),
        "credit_bill": Effect({}, {"credit": "amount"}),
        "suspend_line": Effect({"status": "suspended"}, {"suspended_until": "until"}),
    },
    draw_policy=_policy,
    rules=_rules,
    kinds=(
        Kind(
            "telecom/plan",
            "change_plan",
            any_of((r"plans?", r"chang\w+", r"switch\w*", r"upgrad\w+", r"downgrad\w+")),
            {"plan": questions.PLAN, "use": questions.USE},
            _draft_plan,
            _decide_plan,
            "use",
        ),
        Kind(
            "telecom/credit",
            "credit_bill",
            any_of((r"credit\w*", r"refund\w*", r"compensat\w+", r"money back", r"reimburs\w+")),
            {"day": questions.WHEN},
            _draft_credit,
            _decide_credit,
            "day",
        ),
        Kind(
            "telecom/suspend",
            "suspend_line",
            any_of((r"suspen\w+", r"paus\w+", r"block\w*", r"hold")),
            {"days": questions.LENGTH, "reason": _LOST},
            _draft_suspend,
            _decide_suspend,
            "reason",
        ),
    ),
    filler=_line,
)
