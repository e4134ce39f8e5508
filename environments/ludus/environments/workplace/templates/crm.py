"""Tasks around customers and deals."""

from __future__ import annotations

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.templates.contacts import account
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.schema import Customer, Deal
from ludus.environments.workplace.world.words import OPEN_STAGES


def open_deals(company: Company, customer: str) -> list[Deal]:
    """Return the deals with a customer that are neither won nor lost."""
    return [one for one in company.deals_of.get(customer, []) if one.stage in OPEN_STAGES]


def add_deal(case: Case, customer: Customer) -> Deal:
    """Add an open deal with a customer."""
    made: Deal = case.add(
        Deal(
            case.new_id("deals"),
            customer.id,
            f"{customer.name}: {case.pick(('archive', 'workshop', 'audit', 'hosting'))}",
            case.pick(OPEN_STAGES),
            50 * case.rng.randrange(31, 700),
            0,
            customer.owner,
            case.company.day(case.rng.randrange(5, 90)),
        )
    )
    return made


@template("crm/amount", "easy")
def amount(case: Case) -> Goal:
    """Ask for the amount of a deal."""
    deal = case.pick(case.company.deals)
    return Goal(
        f'What is the amount of the deal "{deal.title}" in euros? Answer with the number.',
        case.seller(),
        (look("crm_deals", deal.id, str(deal.amount), query=deal.title.replace(":", "")),),
        answer=str(deal.amount),
    )


@template("crm/set-stage", "easy")
def set_stage(case: Case) -> Goal:
    """Ask to set the stage of one of several deals of a customer."""
    me, customer, _ = account(case)
    deal = case.pick(open_deals(case.company, customer.id))
    stage = case.pick([one for one in (*OPEN_STAGES, "won", "lost") if one != deal.stage])
    return Goal(
        f'Set the deal "{deal.title}" to the stage {stage}.',
        me,
        (
            look("crm_deals", deal.id, query=deal.title.replace(":", "")),
            do("crm_set_stage", deal_id=deal.id, stage=stage),
        ),
        (Update("deals", deal.id, {"stage": stage}),),
    )


@template("crm/log-call", "easy")
def log_call(case: Case) -> Goal:
    """Ask to record a call about a deal."""
    me, customer, contact = account(case)
    deal = case.pick(open_deals(case.company, customer.id))
    seats = case.rng.randrange(120, 980)
    return Goal(
        f'I just called {contact.name} about the deal "{deal.title}": they need {seats} seats. Record the call for '
        "this deal, with the number of seats in the note.",
        me,
        (
            look("crm_deals", deal.id, query=deal.title.replace(":", "")),
            do("crm_log_activity", deal_id=deal.id, kind="call", note=f"{contact.name} needs {seats} seats."),
        ),
        (Insert("activities", {"deal": deal.id}, {"kind": "call", "note": Facts((str(seats),))}),),
    )


@template("crm/new-deal", "easy")
def new_deal(case: Case) -> Goal:
    """Ask to create a deal."""
    me, customer, _ = account(case)
    value = 50 * case.rng.randrange(30, 900)
    day = case.day(20, 60)
    subject = case.pick(("branch office", "analytics module", "data cleaning", "on-site week", "archive search"))
    return Goal(
        f"Create a deal with {customer.name}: {subject}, {value} euros, expected to close on {day}.",
        me,
        (
            look("crm_customers", customer.id, query=customer.name),
            do("crm_create_deal", customer_id=customer.id, subject=subject, amount=value, close_date=day),
        ),
        (
            Insert(
                "deals", {"customer": customer.id},
                {"title": f"{customer.name}: {subject}", "amount": value, "close_date": day},
            ),
        ),
    )  # fmt: skip


@template("crm/accepted-by-mail", "medium")
def accepted_by_mail(case: Case) -> Goal:
    """Ask to do what a mail of acceptance implies: the stage, the amount and an activity."""
    me, customer, contact = account(case)
    deal = case.pick([open_deal for open_deal in open_deals(case.company, customer.id) if open_deal.owner == me.id])
    thing = deal.title.split(": ")[1]
    value = deal.amount + 100 * case.rng.randrange(1, 40)
    order = f"PO-{case.rng.randrange(10_000, 99_999)}"
    mail = case.mail(
        contact.email, me, f"Your offer: {thing}",
        f"Dear {me.name},\n\nwe accept your offer for the {thing} at {value} EUR. Our order number is {order}.\n\n"
        f"{contact.name}\n{customer.name}",
    )  # fmt: skip
    return Goal(
        f"{contact.name} of {customer.name} accepted an offer by mail. Set the deal to won, set its amount to the "
        "accepted one, and log an activity of the kind mail with the order number.",
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} offer"),
            look("mail_read", str(value), order, mail_id=mail.id),
            look("crm_deals", deal.id, query=deal.title.replace(":", "")),
            do("crm_set_stage", deal_id=deal.id, stage="won"),
            do("crm_set_terms", deal_id=deal.id, amount=value),
            do("crm_log_activity", deal_id=deal.id, kind="mail", note=f"Accepted, order number {order}."),
        ),
        (
            Update("deals", deal.id, {"stage": "won", "amount": value}),
            Insert("activities", {"deal": deal.id}, {"kind": "mail", "note": Facts((order,))}),
        ),
    )


@template("crm/largest-open", "medium")
def largest_open(case: Case) -> Goal:
    """Ask to mail the account manager of a customer about its largest open deal."""
    company = case.company
    customer = case.pick([one for one in company.customers if len(open_deals(company, one.id)) > 1])
    deals = sorted(open_deals(company, customer.id), key=lambda one: one.amount)
    case.need(deals[-1].amount != deals[-2].amount)
    deal = deals[-1]
    owner = company.person[customer.owner]
    me = case.colleague(owner, department=case.pick(("Marketing", "Legal", "Finance")))
    return Goal(
        f"Find the largest open deal (neither won nor lost) with {customer.name}, and send its account manager a mail "
        'with the subject "Reference wanted" that states the id and the amount of the deal.',
        me,
        (
            look("crm_customers", customer.id, owner.id, query=customer.name),
            look("crm_customer", deal.id, str(deal.amount), owner.email, customer_id=customer.id),
            do(
                "mail_send",
                to=[owner.email],
                subject="Reference wanted",
                body=f"Is {deal.id} ({deal.amount} EUR) a reference?",
            ),
        ),
        (
            Insert(
                "mails",
                {"recipients": owner.email},
                {"subject": "Reference wanted", "body": Facts((deal.id, str(deal.amount)))},
            ),
        ),
    )


@template("crm/total-open", "medium")
def total_open(case: Case) -> Goal:
    """Ask for the sum of the open deals of an account manager."""
    company = case.company
    seller = case.seller()
    old = [deal for deal in company.deals if deal.owner == seller.id and deal.stage in OPEN_STAGES]
    mine = [customer for customer in company.customers if customer.owner == seller.id]
    deals = [*old, add_deal(case, case.pick(mine)), add_deal(case, case.pick(mine))]
    case.need(3 <= len(deals) <= 10)
    total = sum(deal.amount for deal in deals)
    me = company.person[seller.manager]
    return Goal(
        f"Add up the amounts of all open deals (neither won nor lost) of {seller.name}, and mail {seller.name} the "
        'sum, with the subject "Your pipeline". Answer with the sum in euros.',
        me,
        (
            look("people_search", seller.email, query=seller.name),
            look("crm_deals", *(str(deal.amount) for deal in deals), query=seller.id, stage="open"),
            do("mail_send", to=[seller.email], subject="Your pipeline", body=f"Your open deals add up to {total} EUR."),
        ),
        (Insert("mails", {"recipients": seller.email}, {"subject": "Your pipeline", "body": Facts((str(total),))}),),
        answer=str(total),
        context=" ".join(str(deal.amount) for deal in deals),
    )


@template("crm/handover", "medium")
def handover(case: Case) -> Goal:
    """Ask a manager to give all open deals of a customer to another account manager."""
    company = case.company
    customer = case.pick([one for one in company.customers if len(open_deals(company, one.id)) > 1])
    owner = company.person[customer.owner]
    me = company.person[owner.manager]
    other = case.colleague(owner, me, department="Sales")
    deals = open_deals(company, customer.id)
    return Goal(
        f"{other.name} takes over {customer.name} from {owner.name}. Assign all open deals (neither won nor lost) "
        f"with this customer to {other.name}; closed deals stay as they are.",
        me,
        (
            look("people_search", other.id, query=other.name),
            look("crm_customers", customer.id, query=customer.name),
            look("crm_customer", *(deal.id for deal in deals), customer_id=customer.id),
            *(do("crm_assign_deal", deal_id=deal.id, owner=other.id) for deal in deals),
        ),
        tuple(Update("deals", deal.id, {"owner": other.id}) for deal in deals),
    )


@template("crm/quiet-deals", "hard")
def quiet_deals(case: Case) -> Goal:
    """Ask to move late deals: those past a date without a recent activity go back a stage, with a note."""
    company = case.company
    me = case.seller()
    deals = [deal for deal in company.deals if deal.owner == me.id and deal.stage in OPEN_STAGES]
    case.need(3 <= len(deals) <= 10)
    active = {row.deal for row in company.rows["activities"]}
    wanted = [deal for deal in deals if deal.id not in active and deal.stage != "lead"]
    case.need(1 <= len(wanted) <= 4 and len(wanted) < len(deals))
    day = case.day(5, 20)
    case.need(all(one.close_date != day for one in wanted))
    manager = company.person[me.manager]
    ids = sorted(one.id for one in wanted)
    return Goal(
        "Look at my open deals (neither won nor lost) that are not in the stage lead. For each of them without any "
        f"recorded activity, set the close date to {day} and log an activity of the kind note that contains this "
        "date. Leave all other deals alone. Then mail my manager the ids of the changed deals, with the subject "
        '"Quiet deals".',
        me,
        (
            look("crm_deals", *(deal.id for deal in deals), query=me.id, stage="open"),
            *(look("crm_deal", "Activities", deal_id=deal.id) for deal in deals if deal.stage != "lead"),
            *(
                step
                for one in wanted
                for step in (
                    do("crm_set_terms", deal_id=one.id, close_date=day),
                    do("crm_log_activity", deal_id=one.id, kind="note", note=f"New close date {day}."),
                )
            ),
            look("people_read", manager.email, employee=me.id),
            do("mail_send", to=[manager.email], subject="Quiet deals", body=f"I moved {', '.join(ids)}."),
        ),
        (
            *(Update("deals", one.id, {"close_date": day}) for one in wanted),
            *(Insert("activities", {"deal": one.id}, {"kind": "note", "note": Facts((day,))}) for one in wanted),
            Insert("mails", {"recipients": manager.email}, {"subject": "Quiet deals", "body": Facts(tuple(ids))}),
        ),
    )
