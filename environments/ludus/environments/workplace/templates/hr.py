"""Tasks around leave and expenses."""

from __future__ import annotations

from datetime import date, timedelta

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import BOOKING, EXPENSE, EXPENSE_LIMIT, LEAVE, MEETINGS
from ludus.environments.workplace.templates.files import document
from ludus.environments.workplace.world.company import clock, free_slots
from ludus.environments.workplace.world.schema import Employee, Expense, Leave
from ludus.environments.workplace.world.words import CITIES, EXPENSE_CATEGORIES


def leave(case: Case, person: Employee, first: str, days: int, status: str = "pending") -> Leave:
    """Add a request for some workdays of vacation."""
    last, left = date.fromisoformat(first), days - 1
    while left:
        last += timedelta(days=1)
        left -= last.weekday() < 5
    made: Leave = case.add(
        Leave(case.new_id("leaves"), person.id, "vacation", first, last.isoformat(), days, status, "")
    )
    return made


def expense(case: Case, person: Employee, amount: int, receipt: str = "yes", city: str = "") -> Expense:
    """Add a pending claim."""
    category = case.pick(EXPENSE_CATEGORIES)
    day = case.company.day(-case.rng.randrange(1, 20))
    text = f"{category.capitalize()} {city or case.pick(CITIES)}"
    made: Expense = case.add(
        Expense(case.new_id("expenses"), person.id, day, amount, category, text, receipt, "pending")
    )
    return made


@template("hr/request-leave", "easy")
def request_leave(case: Case) -> Goal:
    """Ask to request leave."""
    me = case.colleague()
    first = case.day(5, 60)
    last = (date.fromisoformat(first) + timedelta(days=case.rng.randrange(0, 10))).isoformat()
    kind = case.pick(("vacation", "unpaid", "parental"))
    return Goal(
        f"Ask for {kind} leave for me from {first} to {last}.",
        me,
        (do("hr_request_leave", first_day=first, last_day=last, kind=kind),),
        (Insert("leaves", {"first_day": first, "employee": me.id}, {"last_day": last, "kind": kind}),),
    )


@template("hr/claim-expense", "easy")
def claim_expense(case: Case) -> Goal:
    """Ask to claim an expense."""
    me = case.colleague()
    amount, day = case.rng.randrange(21, 480), case.company.day(-case.rng.randrange(1, 15))
    category, city = case.pick(EXPENSE_CATEGORIES), case.pick(CITIES)
    text = f"{category.capitalize()} {city}"
    return Goal(
        f"Claim an expense for me: {amount} euros, category {category}, paid on {day}, with a receipt, description "
        f'"{text}".',
        me,
        (do("hr_claim_expense", day=day, amount=amount, category=category, description=text, receipt="yes"),),
        (
            Insert(
                "expenses", {"amount": amount, "employee": me.id},
                {"category": category, "date": day, "description": Facts((text,)), "receipt": "yes"},
            ),
        ),
    )  # fmt: skip


@template("hr/withdraw-leave", "easy")
def withdraw_leave(case: Case) -> Goal:
    """Ask to withdraw one of two requests for leave."""
    me = case.colleague()
    first, second = case.rng.sample(range(20, 80), 2)
    wanted = leave(case, me, case.company.workday(first), 2)
    leave(case, me, case.company.workday(second), 3)
    return Goal(
        f"Withdraw my request for leave that begins on {wanted.first_day}.",
        me,
        (
            look("hr_leaves", wanted.id, wanted.first_day, employee=me.id, status="pending"),
            do("hr_withdraw_leave", leave_id=wanted.id),
        ),
        (Update("leaves", wanted.id, {"status": "withdrawn"}),),
    )


@template("hr/decide-one", "medium")
def decide_one(case: Case) -> Goal:
    """Ask a manager to approve one request of a report, of several requests and reports."""
    company = case.company
    me = case.manager()
    person, other = case.rng.sample(company.reports[me.id], 2)
    case.need(company.balances[person.id] >= 6)
    first = case.rng.randrange(10, 40)
    wanted = leave(case, person, company.workday(first), case.rng.randrange(1, 4))
    leave(case, person, company.workday(first + 30), 2)
    leave(case, other, company.workday(first), 1)
    return Goal(
        f"Approve the leave of {person.name} that begins on {wanted.first_day}, and tell {person.name} by mail, with "
        'the subject "Your leave" and the id of the request.',
        me,
        (
            look("people_search", person.id, person.email, query=person.name),
            look("hr_leaves", wanted.id, employee=person.id, status="pending"),
            look("hr_balance", person.name, employee=person.id),
            do("hr_decide_leave", leave_id=wanted.id, decision="approved"),
            do("mail_send", to=[person.email], subject="Your leave", body=f"{wanted.id} is approved."),
        ),
        (
            Update("leaves", wanted.id, {"status": "approved"}, strict=True),
            Insert("mails", {"recipients": person.email}, {"subject": "Your leave", "body": Facts((wanted.id,))}),
        ),
        rules=(LEAVE,),
    )


@template("hr/pending-total", "medium")
def pending_total(case: Case) -> Goal:
    """Ask a manager for the sum of the claims of a report, and to mail it."""
    company = case.company
    me = case.manager()
    person = case.pick(company.reports[me.id])
    old = [one for one in company.expenses if one.employee == person.id and one.status == "pending"]
    case.need(len(old) <= 3)
    new = [expense(case, person, case.rng.randrange(40, 450)) for _ in range(case.rng.randrange(2, 5))]
    total = sum(one.amount for one in (*old, *new))
    return Goal(
        f'Add up the pending expenses of {person.name}, and mail {person.name} the sum with the subject "Expenses". '
        "Do not decide on them. Answer with the sum in euros.",
        me,
        (
            look("people_search", person.email, query=person.name),
            look("hr_expenses", *(str(one.amount) for one in (*old, *new)), employee=person.id, status="pending"),
            do(
                "mail_send", to=[person.email], subject="Expenses", body=f"Your pending expenses add up to {total} EUR."
            ),
        ),
        (Insert("mails", {"recipients": person.email}, {"subject": "Expenses", "body": Facts((str(total),))}),),
        answer=str(total),
        context=" ".join(str(one.amount) for one in (*old, *new)),
    )


@template("hr/who-is-away", "medium")
def who_is_away(case: Case) -> Goal:
    """Ask a manager who of the reports is away on a day, and to decline nothing."""
    company = case.company
    me = case.manager()
    team = company.reports[me.id]
    case.need(len(team) >= 4)
    distance = case.rng.randrange(20, 38)
    day = company.workday(distance)
    chosen = case.rng.sample(team, 3)
    leave(case, chosen[0], day, 3, "approved")
    leave(case, chosen[1], company.workday(distance - 1), 2, "approved")
    leave(case, chosen[2], day, 2, case.pick(("rejected", "withdrawn", "pending")))
    ids = {one.id for one in team}
    away = {
        leaf.employee for leaf in company.leaves
        if leaf.employee in ids and leaf.status == "approved" and leaf.first_day <= day <= leaf.last_day
    } | {chosen[0].id, chosen[1].id}  # fmt: skip
    names = sorted(company.person[one].name for one in away)
    total = sum(leaf.employee in ids and leaf.status == "approved" for leaf in company.leaves) + 2
    pages = (total + 9) // 10
    return Goal(
        f"Who of my direct reports has approved leave on {day}? Answer with their full names, separated by commas.",
        me,
        tuple(look("hr_leaves", "found", employee="reports", status="approved", page=n + 1) for n in range(pages)),
        answer=", ".join(names),
    )


@template("hr/decide-expenses", "hard")
def decide_expenses(case: Case) -> Goal:
    """Ask a manager to decide on all pending expenses by the handbook."""
    company = case.company
    me = case.manager()
    team = company.reports[me.id]
    ids = {one.id for one in team}
    old = [one for one in company.expenses if one.employee in ids and one.status == "pending"]
    case.need(len(old) <= 3)
    amounts = (case.rng.randrange(501, 760), case.rng.randrange(50, 480), case.rng.randrange(50, 480))
    new = [expense(case, case.pick(team), amount) for amount in amounts]
    new.append(expense(case, case.pick(team), case.rng.randrange(40, 300), receipt="no"))
    claims = [*old, *new]
    missing = [claim for claim in claims if claim.receipt == "no"]
    large = [claim for claim in claims if claim.receipt == "yes" and claim.amount > EXPENSE_LIMIT]
    small = [claim for claim in claims if claim.receipt == "yes" and claim.amount <= EXPENSE_LIMIT]
    finance = company.staff["Finance"][0]
    case.need(me is not finance)
    found = tuple(sorted(one.id for one in large))
    return Goal(
        "Deal with all pending expenses of my direct reports as the company handbook says, including the mail that "
        'it asks for in some cases; use the subject "Expenses to decide" for it.',
        me,
        (
            look("files_search", "Company handbook", query="Company handbook"),
            look("hr_expenses", *(claim.id for claim in claims), employee="reports", status="pending"),
            *(do("hr_decide_expense", expense_id=one.id, decision="approved") for one in small),
            *(do("hr_decide_expense", expense_id=one.id, decision="rejected") for one in missing),
            look("people_search", finance.email, query="Head of Finance"),
            do(
                "mail_send",
                to=[finance.email],
                subject="Expenses to decide",
                body=f"Please decide on {', '.join(found)}.",
            ),
        ),
        (
            *(Update("expenses", one.id, {"status": "approved"}, strict=True) for one in small),
            *(Update("expenses", one.id, {"status": "rejected"}, strict=True) for one in missing),
            Insert("mails", {"recipients": finance.email}, {"subject": "Expenses to decide", "body": Facts(found)}),
        ),
        rules=(EXPENSE,),
    )


@template("hr/decide-leaves", "hard")
def decide_leaves(case: Case) -> Goal:
    """Ask a manager to decide on the pending leave of the reports by the days they have left."""
    company = case.company
    me = case.manager()
    team = company.reports[me.id]
    ids = {one.id for one in team}
    case.need(not any(leaf.employee in ids and leaf.status == "pending" for leaf in company.leaves))
    chosen = case.rng.sample(team, 3)
    days = [min(16, company.balances[chosen[0].id] + case.rng.randrange(1, 4)), 0, 0]
    case.need(days[0] > company.balances[chosen[0].id])
    for number in (1, 2):
        days[number] = case.rng.randrange(1, min(8, company.balances[chosen[number].id]) + 1)
    asked = [
        leave(case, person, company.workday(case.rng.randrange(15, 40)), count)
        for person, count in zip(chosen, days, strict=True)
    ]
    granted = [one for one in asked if one.days <= company.balances[one.employee]]
    denied = [one for one in asked if one not in granted]
    rejected = chosen[0]
    return Goal(
        "Decide on all pending requests for leave of my direct reports as the company's rules say. Then mail each "
        'person whose request you reject, with the subject "Leave" and the code of the rule in the text.',
        me,
        (
            look("hr_leaves", *(one.id for one in asked), employee="reports", status="pending"),
            *(look("hr_balance", str(company.balances[one.id]), employee=one.id) for one in chosen),
            *(do("hr_decide_leave", leave_id=one.id, decision="approved") for one in granted),
            *(do("hr_decide_leave", leave_id=one.id, decision="rejected") for one in denied),
            look("people_read", rejected.email, employee=rejected.id),
            do("mail_send", to=[rejected.email], subject="Leave", body=f"I cannot approve it: {LEAVE}."),
        ),
        (
            *(Update("leaves", one.id, {"status": "approved"}, strict=True) for one in granted),
            *(Update("leaves", one.id, {"status": "rejected"}, strict=True) for one in denied),
            Insert("mails", {"recipients": rejected.email}, {"subject": "Leave", "body": Facts((LEAVE,))}),
        ),
        rules=(LEAVE,),
    )


@template("hr/welcome", "hard")
def welcome(case: Case) -> Goal:
    """Ask HR to prepare the first day of a colleague: a meeting with the manager, a document, and a mail."""
    company = case.company
    me = case.colleague(department="HR")
    person = case.colleague(me, department=case.pick(("Sales", "Support", "Engineering", "Marketing", "Operations")))
    manager = company.person[person.manager]
    case.need(manager is not me and manager.manager)
    day = case.day(2, 12)
    starts = free_slots(company, [me.id, person.id, manager.id], day, 60)
    case.need(starts)
    start, end = starts[0], clock(int(starts[0][:2]) * 2 + (starts[0][3:] == "30") + 2)
    title = f"Starter guide {case.rng.randrange(11, 99)}"
    document(case, "/hr", title, 1, "outdated", f"{title}, first.")
    guide = document(case, "/hr", title, 2, "current", f"{title}, second.")
    meeting = f"Welcome {person.name}"
    return Goal(
        f'Prepare the welcome of {person.name} ({person.department}) on {day}: create "{meeting}" for one hour with '
        f"{person.name} and the manager of {person.name}, at the earliest time of the day when the three of us are "
        f'free; share the current "{title}" with {person.name}; and mail the manager, with the subject "{meeting}", '
        "the id of the document and the start time.",
        me,
        (
            look("people_search", person.id, query=person.name),
            look("people_read", manager.email, person.email, employee=person.id),
            look("calendar_free", f"at: {start}", people=[person.id, manager.id], day=day, minutes=60),
            do(
                "calendar_create", title=meeting, starts=f"{day} {start}", ends=f"{day} {end}",
                attendees=[person.id, manager.id],
            ),
            look("files_search", guide.id, query=title),
            do("files_share", document_id=guide.id, address=person.email),
            do("mail_send", to=[manager.email], subject=meeting, body=f"We meet at {start}; please read {guide.id}."),
        ),
        (
            Insert(
                "events", {"title": meeting, "people": ", ".join(sorted((me.id, person.id, manager.id)))},
                {
                    "starts": f"{day} {start}", "ends": f"{day} {end}",
                },
            ),
            Insert("shares", {"document": guide.id, "address": person.email}, {}),
            Insert("mails", {"recipients": manager.email}, {"subject": meeting, "body": Facts((guide.id, start))}),
        ),
        rules=(BOOKING, MEETINGS),
        context=end,
    )  # fmt: skip
