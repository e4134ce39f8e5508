"""Tasks around documents."""

from __future__ import annotations

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Delete, Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import RETENTION, SHARING
from ludus.environments.workplace.world.schema import Document
from ludus.environments.workplace.world.words import DOCUMENT_THINGS, PRODUCTS, SUBJECTS

OPEN_FOLDERS = ("/support", "/marketing", "/operations")
"""The folders that everybody may read."""


def document(
    case: Case,
    folder: str,
    title: str,
    version: int,
    status: str,
    body: str,
    *,
    access: str = "internal",
    keep: int = 300,
    owner: str = "",
) -> Document:
    """Add a document."""
    who = owner or case.pick(case.company.employees).id
    day = case.company.day(keep)
    made: Document = case.add(
        Document(case.new_id("documents"), folder, title, version, status, access, who, day, body)
    )
    return made


@template("files/owner", "easy")
def find_owner(case: Case) -> Goal:
    """Ask for the owner of the current version of a document."""
    company = case.company
    me = case.colleague()
    title = f"{case.pick(DOCUMENT_THINGS)} {case.pick(PRODUCTS)} {case.rng.randrange(2, 99)}"
    folder = case.pick(OPEN_FOLDERS)
    first, second = case.rng.sample(company.employees, 2)
    document(case, folder, title, 1, "outdated", f"{title}, first version.", owner=first.id)
    current = document(case, folder, title, 2, "current", f"{title}, second version.", owner=second.id)
    return Goal(
        f'Who owns the current version of the document "{title}"? Answer with the mail address.',
        me,
        (look("files_search", current.id, query=title), look("files_read", second.email, document_id=current.id)),
        answer=second.email,
    )


@template("files/archive-outdated", "easy")
def archive_outdated(case: Case) -> Goal:
    """Ask to move the outdated version of a document to the archive."""
    department = case.pick(("Marketing", "Support", "Engineering", "Finance"))
    me = case.colleague(department=department)
    folder = f"/{department.lower()}"
    title = f"{case.pick(DOCUMENT_THINGS)} {case.pick(SUBJECTS).split()[-1]}"
    old = document(case, folder, title, 4, "outdated", f"{title}, old.")
    document(case, folder, title, 5, "current", f"{title}, new.")
    return Goal(
        f'Move the outdated version of "{title}" from {folder} to /archive. The current one stays.',
        me,
        (
            look("files_search", old.id, query=title),
            do("files_move", document_id=old.id, folder="/archive"),
        ),
        (Update("documents", old.id, {"folder": "/archive"}),),
    )


@template("files/write-note", "easy")
def write_note(case: Case) -> Goal:
    """Ask to write a document."""
    me = case.colleague()
    subject = case.pick(SUBJECTS)
    amount, day = case.rng.randrange(1100, 9900), case.day(3, 30)
    return Goal(
        f'Write a document "{subject}" in /shared that says: the budget is {amount} euros, and the deadline is {day}.',
        me,
        (
            do(
                "files_create", folder="/shared", title=subject,
                body=f"The budget is {amount} euros, and the deadline is {day}.",
            ),
        ),
        (Insert("documents", {"title": subject}, {"folder": "/shared", "body": Facts((str(amount), day))}),),
    )  # fmt: skip


@template("files/share-current", "medium")
def share_current(case: Case) -> Goal:
    """Ask to share the current version of a document with a colleague who cannot read its folder."""
    department = case.pick(("Finance", "Legal"))
    me = case.colleague(department=department)
    other = case.colleague(me, department=case.pick(("Sales", "Support", "Marketing", "Operations")))
    folder = f"/{department.lower()}"
    title = f"{case.pick(DOCUMENT_THINGS)} {case.pick(SUBJECTS).split()[-1]}"
    versions = [
        document(case, folder, title, 1, "outdated", f"{title}, first."),
        document(case, folder, title, 2, "current", f"{title}, second."),
        document(case, folder, title, 3, "draft", f"{title}, third."),
    ]
    current = versions[1]
    return Goal(
        f'Share the current version of "{title}" with {other.name} ({other.department}), and mail its id with the '
        "title of the document as the subject.",
        me,
        (
            look("files_search", current.id, query=title),
            look("people_search", other.email, query=other.name),
            do("files_share", document_id=current.id, address=other.email),
            do("mail_send", to=[other.email], subject=title, body=f"You can read {current.id} now."),
        ),
        (
            Insert("shares", {"document": current.id, "address": other.email}, {}),
            Insert("mails", {"recipients": other.email}, {"subject": title, "body": Facts((current.id,))}),
        ),
        rules=(SHARING,),
    )


@template("files/price-for-customer", "medium")
def price_for_customer(case: Case) -> Goal:
    """Ask to answer a customer with a price of the current price list, of several versions."""
    company = case.company
    me = case.seller()
    customer = case.pick([one for one in company.customers if one.owner == me.id])
    contact = case.pick(company.contacts_of[customer.id])
    product = case.pick(PRODUCTS)
    prices = case.rng.sample(range(210, 980), 3)
    title = f"Seat prices {product}"
    document(case, "/sales", title, 7, "outdated", f"{product}: {prices[0]} euros a seat.", access="public")
    current = document(case, "/sales", title, 8, "current", f"{product}: {prices[1]} euros a seat.", access="public")
    document(case, "/sales", title, 9, "draft", f"{product}: {prices[2]} euros a seat.")
    mail = case.mail(
        contact.email, me, f"Price of {product}",
        f"Dear {me.name},\n\nwhat does a seat of {product} cost?\n\n{contact.name}\n{customer.name}",
    )  # fmt: skip
    return Goal(
        f"{contact.name} ({customer.name}) asks by mail for a price. Reply with the price of a seat from the current "
        f'document "{title}".',
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} price"),
            look("files_search", current.id, query=title),
            look("files_read", str(prices[1]), document_id=current.id),
            do("mail_reply", mail_id=mail.id, body=f"A seat of {product} costs {prices[1]} euros."),
        ),
        (
            Insert(
                "mails", {"reply_to": mail.id},
                {"body": Facts((str(prices[1]),), (str(prices[0]), str(prices[2])))},
            ),
        ),
        context="version 8",
        rules=(SHARING,),
    )  # fmt: skip


@template("files/clear-folder", "hard")
def clear_folder(case: Case) -> Goal:
    """Ask to delete the outdated documents of a folder whose retention has ended, and no others."""
    company = case.company
    department = case.pick(("Marketing", "Engineering", "Finance", "Legal"))
    me = case.colleague(department=department)
    folder = f"/{department.lower()}"
    topic = case.pick(SUBJECTS)
    made = []
    for number in range(case.rng.randrange(4, 7)):
        keep = case.pick((-400, -30, -1, 0, 1, 45, 500))
        status = case.pick(("outdated", "outdated", "current"))
        made.append(document(case, folder, f"{topic} {2015 + number}", 1, status, f"{topic}.", keep=keep))
    today = company.today.isoformat()
    wanted = [one for one in made if one.status == "outdated" and one.retain_until < today]
    kept = [one for one in made if one.status == "outdated" and one.retain_until >= today]
    case.need(wanted and kept)
    head = company.staff[department][0]
    case.need(head is not me)
    ids = tuple(one.id for one in kept)
    return Goal(
        f'Clean up {folder}: delete all outdated documents with "{topic}" in the title whose retention has ended. '
        f"Those that are outdated but must still be kept: mail their ids to the head of {department}, with the "
        'subject "Retention".',
        me,
        (
            look("files_search", *(one.id for one in made), query=topic),
            *(do("files_delete", document_id=one.id) for one in wanted),
            look("people_search", head.email, query=head.title),
            do("mail_send", to=[head.email], subject="Retention", body=f"Still to be kept: {', '.join(ids)}."),
        ),
        (
            *(Delete("documents", one.id) for one in wanted),
            Insert("mails", {"recipients": head.email}, {"subject": "Retention", "body": Facts(ids)}),
        ),
        rules=(RETENTION,),
    )
