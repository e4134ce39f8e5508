"""Tasks around the monthly figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, do, look
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.schema import Sales
from ludus.environments.workplace.world.words import CHANNELS, PRODUCTS, REGIONS


def months(company: Company) -> list[str]:
    """Return the months that have figures, the earliest first."""
    return sorted({sale.month for sale in company.sales})


def totals(company: Company, group: Callable[[Sales], str], first: str, last: str) -> Counter[str]:
    """Return the revenue of some months by groups."""
    found: Counter[str] = Counter()
    for sale in company.sales:
        if first <= sale.month <= last:
            found[group(sale)] += sale.revenue
    return found


@template("analytics/revenue-of-month", "easy")
def revenue_of_month(case: Case) -> Goal:
    """Ask for the revenue of a product in a region and a month."""
    row = case.pick(case.company.sales)
    return Goal(
        f"What was the revenue of {row.product} in the region {row.region} in {row.month}, in thousands of euros? "
        "Answer with the number.",
        case.colleague(),
        (
            look(
                "analytics_sum", str(row.revenue), table="sales", figure="revenue", first_month=row.month,
                last_month=row.month, region=row.region, product=row.product,
            ),
        ),
        answer=str(row.revenue),
    )  # fmt: skip


@template("analytics/signups-of-quarter", "easy")
def signups_of_months(case: Case) -> Goal:
    """Ask for the sum of a figure over some months."""
    company = case.company
    channel, figure = case.pick(CHANNELS), case.pick(("visits", "signups"))
    known = months(company)
    start = case.rng.randrange(0, 9)
    first, last = known[start], known[start + case.rng.randrange(1, 4)]
    total = sum(
        getattr(one, figure) for one in company.traffic if one.channel == channel and first <= one.month <= last
    )
    return Goal(
        f"How many {figure} came from the channel {channel} from {first} to {last}, both included? Answer with the "
        "number.",
        case.colleague(),
        (
            look(
                "analytics_sum", str(total), table="traffic", figure=figure, first_month=first, last_month=last,
                channel=channel,
            ),
        ),
        answer=str(total),
    )  # fmt: skip


@template("analytics/best-month", "easy")
def best_month(case: Case) -> Goal:
    """Ask for the month in which a product had the most support tickets, and how many."""
    company = case.company
    product = case.pick(PRODUCTS)
    figure = case.pick(("opened", "closed", "hours"))
    known = months(company)
    start = case.rng.randrange(0, 7)
    first, last = known[start], known[start + case.rng.randrange(3, 6)]
    rows = sorted(
        (getattr(one, figure), one.month) for one in company.support
        if one.product == product and first <= one.month <= last
    )  # fmt: skip
    case.need(rows[-1][0] > rows[-2][0])
    value, month = rows[-1]
    words = {"opened": "the most opened tickets", "closed": "the most closed tickets", "hours": "the most hours"}[
        figure
    ]
    return Goal(
        f"In which month from {first} to {last} did the support of {product} have {words}, and how many? Answer with "
        "the month (YYYY-MM) and the number, separated by a comma.",
        case.colleague(),
        (
            look(
                "analytics_sum",
                f"{month} | {value}",
                table="support",
                figure=figure,
                group_by="month",
                product=product,
                first_month=first,
                last_month=last,
            ),
        ),
        answer=f"{month}, {value}",
    )


@template("analytics/top-to-colleague", "medium")
def top_to_colleague(case: Case) -> Goal:
    """Ask to mail a colleague the strongest product of a region in some months."""
    company = case.company
    me = case.colleague()
    other = case.colleague(me)
    region = case.pick(REGIONS)
    known = months(company)
    start = case.rng.randrange(0, 10)
    first, last = known[start], known[start + 2]
    found: Counter[str] = Counter()
    for sale in company.sales:
        if sale.region == region and first <= sale.month <= last:
            found[sale.product] += sale.revenue
    (product, value), (_, second) = found.most_common(2)
    case.need(value > second)
    subject = f"Sales {region}"
    return Goal(
        f"Which product had the highest revenue in the region {region} from {first} to {last}, both included? Mail "
        f"{other.name} ({other.department}) the product and its revenue in thousands of euros, with the subject "
        f'"{subject}".',
        me,
        (
            look(
                "analytics_sum", f"{product} | {value}", table="sales", figure="revenue", group_by="product",
                first_month=first, last_month=last, region=region,
            ),
            look("people_search", other.email, query=other.name),
            do("mail_send", to=[other.email], subject=subject, body=f"{product} with {value} thousand euros."),
        ),
        (Insert("mails", {"recipients": other.email}, {"subject": subject, "body": Facts((product, str(value)))}),),
    )  # fmt: skip


@template("analytics/note-with-total", "medium")
def note_with_total(case: Case) -> Goal:
    """Ask to write a figure into a document."""
    company = case.company
    me = case.colleague()
    region = case.pick(REGIONS)
    known = months(company)
    first, last = known[-3], known[-1]
    total = sum(sale.revenue for sale in company.sales if sale.region == region and first <= sale.month <= last)
    title = f"Quarter {region} {case.rng.randrange(100, 999)}"
    return Goal(
        f'Write a document "{title}" in /shared with the total revenue, in thousands of euros, of the region {region} '
        f"in the last three full months ({first} to {last}), and answer with this number.",
        me,
        (
            look(
                "analytics_sum", str(total), table="sales", figure="revenue", first_month=first, last_month=last,
                region=region,
            ),
            do("files_create", folder="/shared", title=title, body=f"The total is {total} thousand euros."),
        ),
        (Insert("documents", {"title": title}, {"folder": "/shared", "body": Facts((str(total),))}),),
        answer=str(total),
    )  # fmt: skip


@template("analytics/growth-report", "hard")
def growth_report(case: Case) -> Goal:
    """Ask for the region with the largest growth between two quarters, as a document that is shared and mailed."""
    company = case.company
    me = case.colleague(department=case.pick(("Marketing", "Sales")))
    manager = company.person[me.manager]
    known = months(company)
    start = case.rng.randrange(0, 7)
    span = known[start : start + 6]
    before = totals(company, lambda one: one.region, span[0], span[2])
    after = totals(company, lambda one: one.region, span[3], span[5])
    growth = sorted((after[region] - before[region], region) for region in REGIONS)
    case.need(growth[-1][0] > growth[-2][0] and growth[-1][0] >= 100)
    value, region = growth[-1]
    title = f"Growth {span[3]} to {span[5]}"
    number = f"F-{company.next_number('documents')}"
    return Goal(
        f"Compare the revenue of {span[3]} to {span[5]} with that of {span[0]} to {span[2]} for each region. Write a "
        f'document "{title}" in /marketing with the name of the region that grew most and its growth in thousands of '
        "euros. Then mail the id of the document and the name of the region to my manager, with the same title as "
        "the subject.",
        me,
        (
            look(
                "analytics_sum", f"{region} | {after[region]}", table="sales", figure="revenue", group_by="region",
                first_month=span[3], last_month=span[5],
            ),
            look(
                "analytics_sum", f"{region} | {before[region]}", table="sales", figure="revenue", group_by="region",
                first_month=span[0], last_month=span[2],
            ),
            do("files_create", folder="/marketing", title=title, body=f"{region} grew by {value} thousand euros."),
            look("people_read", manager.email, employee=me.id),
            do("mail_send", to=[manager.email], subject=title, body=f"Please read {number}: it is {region}."),
        ),
        (
            Insert("documents", {"title": title}, {"folder": "/marketing", "body": Facts((region, str(value)))}),
            Insert("mails", {"recipients": manager.email}, {"subject": title, "body": Facts((number, region))}),
        ),
        context=f"{value} {before[region]} {after[region]}",
    )  # fmt: skip
