"""Claims and leave: an employee asks, the manager decides by the rules, and both go on from there."""

from __future__ import annotations

from ludus.environments.company.story import Cast, found, story
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import EXPENSE, EXPENSE_LIMIT, LEAVE
from ludus.environments.workplace.world.schema import Expense, Leave
from ludus.server import Difficulty

_CATEGORIES = ("travel", "meals", "software", "equipment", "training")
_THINGS = ("train to the fair", "dinner with a customer", "editor license", "keyboard", "course on statistics", "taxi")


def cast(case: Case, level: Difficulty) -> Cast:
    """Draw the employee, the manager, the claims and the leave."""
    company = case.company
    manager = case.manager()
    finance = company.staff["Finance"][0]
    case.need(manager.id != finance.id)
    person = case.pick(company.reports[manager.id])
    case.need(person.id != finance.id and company.balances[person.id] >= 4)
    taken: list[Expense | Leave] = [*company.expenses, *company.leaves]
    case.need(not any(one.employee == person.id and one.status == "pending" for one in taken))
    amounts = [case.rng.randrange(40, EXPENSE_LIMIT), case.rng.randrange(40, EXPENSE_LIMIT)]
    if level != "easy":
        amounts.append(case.rng.randrange(EXPENSE_LIMIT + 1, 900))
    if level == "hard":
        amounts.append(case.rng.randrange(40, EXPENSE_LIMIT))
    things = case.rng.sample(_THINGS, len(amounts))
    numbers = case.rng.sample(range(100, 999), len(amounts))
    covered = level == "easy" or case.rng.random() < 0.5
    days = case.rng.randrange(2, 4) if covered else company.balances[person.id] + case.rng.randrange(1, 4)
    first = case.rng.randrange(20, 30)
    return {
        "level": level, "manager": manager.id, "person": person.id, "finance": finance.id,
        "claims": [
            (company.workday(-number - 1), amount, case.pick(_CATEGORIES), f"{thing} {mark}",
             "no" if number == 1 else "yes")
            for number, (amount, thing, mark) in enumerate(zip(amounts, things, numbers, strict=True))
        ],
        "first_day": company.workday(first), "last_day": company.workday(first + days - 1),
    }  # fmt: skip


def _claims(case: Case, cast: Cast) -> list[Expense]:
    """Return the claims of the story as they are now."""
    texts = [description for _, _, _, description, _ in cast["claims"]]
    claims: list[Expense] = found(
        [
            expense
            for expense in case.company.expenses
            if expense.employee == cast["person"] and expense.description in texts
        ]
    )
    return claims


def _leave(case: Case, cast: Cast, *status: str) -> Leave:
    """Return the leave of the story as it is now."""
    leave: Leave = found(
        [
            leaf for leaf in case.company.leaves
            if leaf.employee == cast["person"] and leaf.first_day == cast["first_day"] and leaf.status in status
        ]
    )[0]  # fmt: skip
    return leave


def claim(case: Case, cast: Cast) -> Goal:
    """Ask to claim the expenses."""
    lines = "; ".join(
        f'"{description}", {amount} euros, paid on {day}, category {category}, '
        + ("with a receipt" if receipt == "yes" else "without a receipt")
        for day, amount, category, description, receipt in cast["claims"]
    )
    return Goal(
        f"Claim these expenses for me: {lines}.",
        case.company.person[cast["person"]],
        tuple(
            do(
                "hr_claim_expense", day=day, amount=amount, category=category, description=description,
                receipt=receipt,
            )
            for day, amount, category, description, receipt in cast["claims"]
        ),
        tuple(
            Insert(
                "expenses", {"description": description},
                {"employee": cast["person"], "date": day, "amount": amount, "category": category, "receipt": receipt},
            )
            for day, amount, category, description, receipt in cast["claims"]
        ),
    )  # fmt: skip


def ask_for_leave(case: Case, cast: Cast) -> Goal:
    """Ask to request leave, and to tell the manager which claims are waiting."""
    person, manager = case.company.person[cast["person"]], case.company.person[cast["manager"]]
    waiting = found(tuple(sorted(one.id for one in _claims(case, cast) if one.status == "pending")))
    return Goal(
        f"Ask for vacation for me from {cast['first_day']} to {cast['last_day']}. Then mail my manager the ids of my "
        'claims of expenses that are pending, with the subject "My claims".',
        person,
        (
            look("hr_expenses", *waiting, employee=person.id, status="pending"),
            look("people_read", manager.email, employee=person.id),
            do("hr_request_leave", first_day=cast["first_day"], last_day=cast["last_day"], kind="vacation"),
            do("mail_send", to=[manager.email], subject="My claims", body=f"Pending: {', '.join(waiting)}."),
        ),
        (
            Insert(
                "leaves", {"employee": person.id},
                {"first_day": cast["first_day"], "last_day": cast["last_day"], "kind": "vacation"},
            ),
            Insert("mails", {"recipients": manager.email}, {"subject": "My claims", "body": Facts(waiting)}),
        ),
    )  # fmt: skip


def decide_claims(case: Case, cast: Cast) -> Goal:
    """Ask the manager to decide on the claims by the handbook."""
    person, me = case.company.person[cast["person"]], case.company.person[cast["manager"]]
    finance = case.company.person[cast["finance"]]
    waiting = found(
        [expense for expense in case.company.expenses if expense.employee == person.id and expense.status == "pending"]
    )
    missing = [one for one in waiting if one.receipt != "yes"]
    large = tuple(sorted(one.id for one in waiting if one.receipt == "yes" and one.amount > EXPENSE_LIMIT))
    small = [one for one in waiting if one.receipt == "yes" and one.amount <= EXPENSE_LIMIT]
    found(missing or large or small)
    return Goal(
        f"Deal with all pending expenses of {person.name} ({person.id}) as the company handbook says, including the "
        'mail that it asks for in some cases; use the subject "Expenses to decide" for it.',
        me,
        (
            look("files_search", "Company handbook", query="Company handbook"),
            look("hr_expenses", *(one.id for one in waiting), employee=person.id, status="pending"),
            *(do("hr_decide_expense", expense_id=one.id, decision="approved") for one in small),
            *(do("hr_decide_expense", expense_id=one.id, decision="rejected") for one in missing),
            *(
                (
                    look("people_search", finance.email, query="Head of Finance"),
                    do(
                        "mail_send", to=[finance.email], subject="Expenses to decide",
                        body=f"Please decide on {', '.join(large)}.",
                    ),
                )
                if large
                else ()
            ),
        ),
        (
            *(Update("expenses", one.id, {"status": "approved"}, strict=True) for one in small),
            *(Update("expenses", one.id, {"status": "rejected"}, strict=True) for one in missing),
            *(
                Insert("mails", {"recipients": finance.email}, {"subject": "Expenses to decide", "body": Facts(large)})
                for _ in range(bool(large))
            ),
        ),
        rules=(EXPENSE,),
    )  # fmt: skip


def decide_leave(case: Case, cast: Cast) -> Goal:
    """Ask the manager to decide on the leave by the days that are left."""
    person, me = case.company.person[cast["person"]], case.company.person[cast["manager"]]
    leave = _leave(case, cast, "pending")
    balance = case.company.balances[person.id]
    decision = "approved" if leave.days <= balance else "rejected"
    mail = decision == "rejected"
    return Goal(
        f"Decide on the pending request of {person.name} ({person.id}) for leave from {leave.first_day} as the "
        f'company\'s rules say. If you reject it, mail {person.name}, with the subject "Leave" and the code of the '
        "rule in the text.",
        me,
        (
            look("hr_leaves", leave.id, employee=person.id, status="pending"),
            look("hr_balance", str(balance), employee=person.id),
            do("hr_decide_leave", leave_id=leave.id, decision=decision),
            *(
                (
                    look("people_read", person.email, employee=person.id),
                    do("mail_send", to=[person.email], subject="Leave", body=f"I cannot approve it: {LEAVE}."),
                )
                if mail
                else ()
            ),
        ),
        (
            Update("leaves", leave.id, {"status": decision}, strict=True),
            *(
                Insert("mails", {"recipients": person.email}, {"subject": "Leave", "body": Facts((LEAVE,))})
                for _ in range(mail)
            ),
        ),
        rules=(LEAVE,),
    )  # fmt: skip


def go_on(case: Case, cast: Cast) -> Goal:
    """Ask the employee to react to what the manager decided: shorter leave after a rejection, and claims made again."""
    person, manager = case.company.person[cast["person"]], case.company.person[cast["manager"]]
    leave = _leave(case, cast, "approved", "rejected")
    claims = _claims(case, cast)
    approved = found(tuple(sorted(one.id for one in claims if one.status == "approved")))
    again = [one for one in claims if one.status == "rejected"]
    shorter = leave.status == "rejected"
    until = leave.first_day
    return Goal(
        "Look at what became of my requests. If my leave was rejected, ask for vacation on its first day alone; if it "
        "was approved, do not. Claim each of my rejected expenses "
        f"({', '.join(f'{chr(34)}{text}{chr(34)}' for _, _, _, text, _ in cast['claims'])}) again with the same day, "
        "amount, category and description, now with a receipt. Then mail my manager the ids of those of these claims "
        'that were approved, with the subject "Thank you".',
        person,
        (
            look("hr_leaves", leave.id, employee=person.id),
            look("hr_expenses", *approved, employee=person.id),
            *((do("hr_request_leave", first_day=until, last_day=until, kind="vacation"),) if shorter else ()),
            *(
                do(
                    "hr_claim_expense", day=one.date, amount=one.amount, category=one.category,
                    description=one.description, receipt="yes",
                )
                for one in again
            ),
            look("people_read", manager.email, employee=person.id),
            do("mail_send", to=[manager.email], subject="Thank you", body=f"Approved: {', '.join(approved)}."),
        ),
        (
            *(
                Insert("leaves", {"employee": person.id}, {"first_day": until, "last_day": until, "kind": "vacation"})
                for _ in range(shorter)
            ),
            *(
                Insert(
                    "expenses", {"description": one.description},
                    {
                        "employee": person.id, "date": one.date, "amount": one.amount, "category": one.category,
                        "receipt": "yes",
                    },
                )
                for one in again
            ),
            Insert("mails", {"recipients": manager.email}, {"subject": "Thank you", "body": Facts(approved)}),
        ),
    )  # fmt: skip


story("chain/requests", cast, claim, ask_for_leave, decide_claims, decide_leave, go_on)
