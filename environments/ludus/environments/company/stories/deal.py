"""A customer: a contact is added, a deal created, its terms asked for by mail, data changed, and the deal won."""

from __future__ import annotations

from ludus.environments._names import FIRST_NAMES, LAST_NAMES
from ludus.environments.company.story import Cast, found, story
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.goals import Facts, Goal, Insert, Step, Update, do, look
from ludus.environments.workplace.policies import DISCOUNT, LIMITS
from ludus.environments.workplace.templates.contacts import account, phone
from ludus.environments.workplace.world.schema import Contact, Deal
from ludus.environments.workplace.world.words import CONTACT_TITLES
from ludus.server import Difficulty

_SUBJECTS = ("night shift", "second site", "data migration", "training week", "spare parts", "test field")


def cast(case: Case, level: Difficulty) -> Cast:
    """Draw the account manager, the customer, the new contact and the deal."""
    me, customer, _ = account(case)
    first, last = case.pick(FIRST_NAMES), case.pick(LAST_NAMES)
    email = f"{first}.{last}@{customer.domain}".lower()
    case.need(all(email != contact.email and f"{first} {last}" != contact.name for contact in case.company.contacts))
    subject = f"{case.pick(_SUBJECTS)} {case.rng.randrange(11, 99)}"
    case.need(all(subject not in deal.title for deal in case.company.deals))
    limit = LIMITS[customer.tier]
    over = level != "easy" and case.rng.random() < 0.5
    return {
        "level": level, "me": me.id, "customer": customer, "name": f"{first} {last}", "email": email,
        "title": case.pick(CONTACT_TITLES), "phone": phone(case), "new_phone": phone(case), "subject": subject,
        "amount": 50 * case.rng.randrange(30, 900), "closes": case.company.workday(case.rng.randrange(20, 60)),
        "discount": limit + case.rng.randrange(1, 8) if over else max(1, limit - case.rng.randrange(0, 3)),
        "more": 100 * case.rng.randrange(2, 40), "order": f"PO-{case.rng.randrange(10_000, 99_999)}",
    }  # fmt: skip


def _contact(case: Case, cast: Cast) -> Contact:
    """Return the contact as it is now."""
    contacts = [
        one for one in case.company.contacts if one.customer == cast["customer"].id and one.name == cast["name"]
    ]  # fmt: skip
    contact: Contact = found(contacts)[0]
    return contact


def _deal(case: Case, cast: Cast) -> Deal:
    """Return the deal as it is now."""
    title = f"{cast['customer'].name}: {cast['subject']}"
    deal: Deal = found([one for one in case.company.deals if one.title == title and one.owner == cast["me"]])[0]
    return deal


def _seen(deal: Deal) -> Step:
    return look("crm_deals", deal.id, query=deal.title.replace(":", ""))


def add_contact(case: Case, cast: Cast) -> Goal:
    """Ask to add the contact."""
    customer = cast["customer"]
    return Goal(
        f"Add a contact at {customer.name}: {cast['name']}, {cast['title']}, {cast['email']}, {cast['phone']}.",
        case.company.person[cast["me"]],
        (
            look("crm_customers", customer.id, query=customer.name),
            do(
                "contacts_create", name=cast["name"], customer_id=customer.id, title=cast["title"],
                email=cast["email"], phone=cast["phone"],
            ),
        ),
        (
            Insert(
                "contacts", {"name": cast["name"]},
                {"customer": customer.id, "title": cast["title"], "email": cast["email"], "phone": cast["phone"]},
            ),
        ),
    )  # fmt: skip


def create_deal(case: Case, cast: Cast) -> Goal:
    """Ask to create the deal, and to mail the new contact its id."""
    customer, contact = cast["customer"], _contact(case, cast)
    number = f"D-{case.company.next_number('deals')}"
    mails = cast["level"] != "easy"
    told = (
        f' Then mail the id of the deal to {cast["name"]}, whom you added yesterday, with the subject "Our offer".'
        if mails
        else ""
    )
    return Goal(
        f"Create a deal with {customer.name}: {cast['subject']}, {cast['amount']} euros, expected to close on "
        f"{cast['closes']}.{told}",
        case.company.person[cast["me"]],
        (
            look("crm_customers", customer.id, query=customer.name),
            do(
                "crm_create_deal", customer_id=customer.id, subject=cast["subject"], amount=cast["amount"],
                close_date=cast["closes"],
            ),
            *(
                (
                    look("contacts_search", contact.id, query=f"{cast['name']} {customer.name}"),
                    do("mail_send", to=[contact.email], subject="Our offer", body=f"The deal has the id {number}."),
                )
                if mails
                else ()
            ),
        ),
        (
            Insert(
                "deals", {"customer": customer.id},
                {
                    "title": f"{customer.name}: {cast['subject']}", "amount": cast["amount"],
                    "close_date": cast["closes"],
                },
            ),
            *(
                (Insert("mails", {"recipients": contact.email}, {"subject": "Our offer", "body": Facts((number,))}),)
                if mails
                else ()
            ),
        ),
    )  # fmt: skip


def set_discount(case: Case, cast: Cast) -> Goal:
    """Ask to give the discount that the contact asks for by mail, if the rules allow it."""
    contact, deal, wanted = _contact(case, cast), _deal(case, cast), cast["discount"]
    me = case.company.person[cast["me"]]
    found(deal.discount != wanted)
    if cast["level"] == "easy":
        return Goal(
            f'Set the discount of the deal "{deal.title}" to {wanted} %.', me,
            (_seen(deal), do("crm_set_terms", deal_id=deal.id, discount=wanted)),
            (Update("deals", deal.id, {"discount": wanted}),),
        )  # fmt: skip
    mail = case.mail(
        contact.email, me, f"Discount for the {cast['subject']}",
        f"Dear {me.name},\n\nwe would sign if you gave us a discount of {wanted} % on the {cast['subject']}.\n\n"
        f"{contact.name}\n{cast['customer'].name}",
    )  # fmt: skip
    limit, manager = LIMITS[cast["customer"].tier], case.company.person[me.manager]
    request = (
        f"{contact.name} of {cast['customer'].name} asks by mail for a discount on a deal. If the rules allow it, set "
        "it, and reply with the discount in percent. If not, leave the deal unchanged, do not reply, and mail my own "
        'manager, with the subject "Discount request", the id of the deal and the discount that was asked for.'
    )
    steps = (
        look("mail_search", mail.id, query=f"{contact.email} discount"),
        look("mail_read", str(wanted), mail_id=mail.id),
        _seen(deal),
        look("crm_customer", cast["customer"].tier, customer_id=cast["customer"].id),
    )
    context = f"{limit} {deal.amount} {deal.discount} {deal.id}"
    if wanted <= limit:
        return Goal(
            request, me,
            (
                *steps, do("crm_set_terms", deal_id=deal.id, discount=wanted),
                do("mail_reply", mail_id=mail.id, body=f"You get {wanted} %."),
            ),
            (
                Update("deals", deal.id, {"discount": wanted}, strict=True),
                Insert("mails", {"reply_to": mail.id}, {"body": Facts((str(wanted),))}),
            ),
            rules=(DISCOUNT,), context=context,
        )  # fmt: skip
    return Goal(
        request, me,
        (
            *steps, look("people_read", manager.email, employee=me.id),
            do(
                "mail_send", to=[manager.email], subject="Discount request", body=f"{deal.id}: they ask for {wanted} %."
            ),
        ),
        (
            Insert(
                "mails", {"recipients": manager.email},
                {"subject": "Discount request", "body": Facts((deal.id, str(wanted)))},
            ),
        ),
        answer=f"refused {DISCOUNT}", rules=(DISCOUNT,), context=context,
    )  # fmt: skip


def change_phone(case: Case, cast: Cast) -> Goal:
    """Ask to change the phone number of the contact; by mail in harder stories, next to one of a stranger."""
    contact, number = _contact(case, cast), cast["new_phone"]
    me, customer = case.company.person[cast["me"]], cast["customer"]
    found(contact.phone != number)
    seen = look("contacts_search", contact.id, query=f"{contact.name} {customer.name}")
    change = Update("contacts", contact.id, {"phone": number})
    if cast["level"] == "easy":
        return Goal(
            f"{contact.name} at {customer.name} has the phone number {number} now. Update the contact.", me,
            (seen, do("contacts_update", contact_id=contact.id, phone=number)), (change,),
        )  # fmt: skip
    if cast["level"] == "hard":
        case.mail(
            f"{contact.email.split('@')[0]}@{customer.name.split()[0].lower()}-mail.example", me, "My new number",
            f"Hello,\n\nmy phone number has changed to {phone(case)}.\n\n{contact.name}",
        )  # fmt: skip
    mail = case.mail(
        contact.email, me, "My number", f"Hello,\n\nmy phone number has changed to {number}.\n\n{contact.name}"
    )
    return Goal(
        f"{contact.name} at {customer.name} wrote that the phone number has changed. Update the contact to what came "
        "from the address that is on record. Do not reply to any mail.",
        me,
        (
            seen, look("contacts_read", contact.email, contact_id=contact.id),
            look("mail_search", mail.id, query=contact.email),
            look("mail_read", number, mail_id=mail.id), do("contacts_update", contact_id=contact.id, phone=number),
        ),
        (change,),
    )  # fmt: skip


def win(case: Case, cast: Cast) -> Goal:
    """Ask to win the deal and to tell the contact, with what earlier days have left."""
    contact, deal = _contact(case, cast), _deal(case, cast)
    found(deal.stage != "won")
    amount = deal.amount + cast["more"]
    return Goal(
        f'{cast["customer"].name} accepts the deal "{deal.title}" for {cast["more"]} euros more than its amount was. '
        f"Set its amount to the sum and its stage to won. Then mail {contact.name}, our contact there, the id of the "
        'deal, its new amount and its discount in percent, with the subject "Your order".',
        case.company.person[cast["me"]],
        (
            _seen(deal), look("contacts_search", contact.id, query=f"{contact.name} {cast['customer'].name}"),
            do("crm_set_terms", deal_id=deal.id, amount=amount),
            do("crm_set_stage", deal_id=deal.id, stage="won"),
            do(
                "mail_send", to=[contact.email], subject="Your order",
                body=f"{deal.id}: {amount} euros, discount {deal.discount} %.",
            ),
        ),
        (
            Update("deals", deal.id, {"amount": amount, "stage": "won"}),
            Insert(
                "mails", {"recipients": contact.email},
                {"subject": "Your order", "body": Facts((deal.id, str(amount), str(deal.discount)))},
            ),
        ),
    )  # fmt: skip


story("chain/deal", cast, add_contact, create_deal, set_discount, change_phone, win)
