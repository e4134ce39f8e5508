"""Tasks around colleagues and contacts."""

from __future__ import annotations

from ludus.environments._names import FIRST_NAMES, LAST_NAMES
from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Delete, Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import SENDER
from ludus.environments.workplace.world.schema import Contact, Customer, Employee
from ludus.environments.workplace.world.words import CONTACT_TITLES


def phone(case: Case) -> str:
    """Draw a phone number."""
    return f"+49 30 {case.rng.randrange(1_000_000, 9_999_999)}"


def account(case: Case, contacts: int = 1) -> tuple[Employee, Customer, Contact]:
    """Draw an account manager, one of the own customers, and a contact there."""
    me = case.seller()
    mine = [one for one in case.company.customers if one.owner == me.id]
    customer = case.pick([one for one in mine if len(case.company.contacts_of[one.id]) >= contacts])
    return me, customer, case.pick(case.company.contacts_of[customer.id])


@template("contacts/phone", "easy")
def find_phone(case: Case) -> Goal:
    """Ask for the phone number of a contact."""
    me, customer, contact = account(case)
    return Goal(
        f"What is the phone number of {contact.name} at {customer.name}?",
        me,
        (
            look("contacts_search", contact.id, query=f"{contact.name} {customer.name}"),
            look("contacts_read", contact.phone, contact_id=contact.id),
        ),
        answer=contact.phone,
    )


@template("contacts/new-title", "easy")
def new_title(case: Case) -> Goal:
    """Ask to change the title and phone of a contact."""
    me, customer, contact = account(case)
    title = case.pick([one for one in CONTACT_TITLES if one != contact.title])
    number = phone(case)
    return Goal(
        f'{contact.name} at {customer.name} now has the title "{title}" and the phone number {number}. Update the '
        "contact.",
        me,
        (
            look("contacts_search", contact.id, query=f"{contact.name} {customer.name}"),
            do("contacts_update", contact_id=contact.id, title=title, phone=number),
        ),
        (Update("contacts", contact.id, {"title": title, "phone": number}),),
    )


@template("contacts/add", "easy")
def add(case: Case) -> Goal:
    """Ask to add a contact at a customer."""
    me, customer, _ = account(case)
    first, last = case.pick(FIRST_NAMES), case.pick(LAST_NAMES)
    email = f"{first}.{last}@{customer.domain}".lower()
    case.need(all(email != contact.email for contact in case.company.contacts))
    title, number = case.pick(CONTACT_TITLES), phone(case)
    return Goal(
        f"Add a contact at {customer.name}: {first} {last}, {title}, {email}, {number}.",
        me,
        (
            look("crm_customers", customer.id, query=customer.name),
            do(
                "contacts_create",
                name=f"{first} {last}",
                customer_id=customer.id,
                title=title,
                email=email,
                phone=number,
            ),
        ),
        (
            Insert(
                "contacts",
                {"email": email},
                {"name": f"{first} {last}", "customer": customer.id, "title": title, "phone": number},
            ),
        ),
    )


@template("contacts/manager-of", "easy")
def manager_of(case: Case) -> Goal:
    """Ask for the manager of a colleague."""
    company = case.company
    me = case.colleague()
    other = case.colleague(me)
    case.need(other.manager and other.manager != me.id)
    manager = company.person[other.manager]
    return Goal(
        f"Who is the manager of {other.name} ({other.department})? Answer with the mail address of the manager.",
        me,
        (
            look("people_search", other.id, query=other.name),
            look("people_read", manager.email, employee=other.id),
        ),
        answer=manager.email,
    )


@template("contacts/change-by-mail", "medium")
def change_by_mail(case: Case) -> Goal:
    """Ask to apply the change of a phone number that a contact sent from the address on record."""
    me, customer, contact = account(case)
    number = phone(case)
    mail = case.mail(
        contact.email, me, "My new number",
        f"Dear {me.name},\n\nplease note my new phone number: {number}.\n\n{contact.name}\n{customer.name}",
    )  # fmt: skip
    return Goal(
        f"{contact.name} of {customer.name} sent me a new phone number by mail. Update the contact, and reply to the "
        "mail with the new number as a confirmation.",
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} number"),
            look("mail_read", number, mail_id=mail.id),
            look("contacts_search", contact.id, contact.email, query=f"{contact.name} {customer.name}"),
            do("contacts_update", contact_id=contact.id, phone=number),
            do("mail_reply", mail_id=mail.id, body=f"Thank you, we have noted {number}."),
        ),
        (
            Update("contacts", contact.id, {"phone": number}),
            Insert("mails", {"reply_to": mail.id}, {"body": Facts((number,))}),
        ),
        rules=(SENDER,),
    )


@template("contacts/remove-duplicate", "medium")
def remove_duplicate(case: Case) -> Goal:
    """Ask to delete the duplicate of a contact whose address is not of the customer's domain."""
    me, customer, contact = account(case)
    wrong: Contact = case.add(
        Contact(
            case.new_id("contacts"), contact.name, customer.id, contact.title,
            f"{contact.email.split('@')[0]}@old-{customer.domain}", phone(case),
        )
    )  # fmt: skip
    reader = case.company.person[me.manager]
    return Goal(
        f"{contact.name} is there twice among the contacts of {customer.name}. Delete the entry whose address does "
        f"not belong to the domain {customer.domain}, keep the other one, and mail my manager the id of the deleted "
        'entry, with the subject "Duplicate contact".',
        me,
        (
            look("contacts_search", wrong.id, wrong.email, contact.id, query=f"{contact.name} {customer.name}"),
            do("contacts_delete", contact_id=wrong.id),
            look("people_read", reader.email, employee=me.id),
            do("mail_send", to=[reader.email], subject="Duplicate contact", body=f"I deleted {wrong.id}."),
        ),
        (
            Delete("contacts", wrong.id),
            Insert("mails", {"recipients": reader.email}, {"subject": "Duplicate contact", "body": Facts((wrong.id,))}),
        ),
    )
