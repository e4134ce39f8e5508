"""Tasks around the mailbox."""

from __future__ import annotations

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.world.words import EVENT_NAMES, PRODUCTS, SUBJECTS


@template("mail/latest-subject", "easy")
def latest_subject(case: Case) -> Goal:
    """Ask for the subject of the latest mail from a person, of several."""
    me = case.colleague()
    other = case.colleague(me)
    first, second = case.rng.sample(SUBJECTS, 2)
    number = case.rng.randrange(11, 99)
    case.mail(other.email, me, first, f"Hi,\n\nplease see my notes.\n\n{other.name}", f"{case.company.day(-4)} 10:02")
    latest = case.mail(other.email, me, f"{second} {number}", f"Hi,\n\nplease see my notes.\n\n{other.name}")
    return Goal(
        f"What is the subject of the latest mail that I got from {other.name}? Answer with the subject exactly.",
        me,
        (look("mail_search", latest.subject, query=other.email),),
        answer=latest.subject,
    )


@template("mail/archive", "easy")
def archive(case: Case) -> Goal:
    """Ask to archive one of several mails of a person."""
    me = case.colleague()
    other = case.colleague(me)
    first, second = case.rng.sample(SUBJECTS, 2)
    wanted = case.mail(
        other.email, me, first, f"Hi,\n\nfor your records.\n\n{other.name}", f"{case.company.day(-2)} 11:40"
    )
    case.mail(other.email, me, second, f"Hi,\n\nfor your records.\n\n{other.name}")
    return Goal(
        f'Move the mail "{first}" from {other.name} to the archive.',
        me,
        (
            look("mail_search", wanted.id, query=f"{other.email} {first}"),
            do("mail_move", mail_id=wanted.id, folder="archive"),
        ),
        (Update("mailboxes", f"{wanted.id}/{me.id}", {"folder": "archive"}),),
    )


@template("mail/send-news", "easy")
def send_news(case: Case) -> Goal:
    """Ask to mail a colleague the time of a meeting."""
    me = case.colleague()
    other = case.colleague(me)
    name, day = case.pick(EVENT_NAMES), case.day(2, 12)
    hour = f"{case.rng.randrange(9, 16):02d}:{case.pick(('00', '30'))}"
    return Goal(
        f'Send {other.name} ({other.department}) a mail with the subject "{name}" that says it takes place on {day} '
        f"at {hour}.",
        me,
        (
            look("people_search", other.email, query=other.name),
            do("mail_send", to=[other.email], subject=name, body=f"Hi,\n\nit takes place on {day} at {hour}."),
        ),
        (Insert("mails", {"recipients": other.email}, {"subject": name, "body": Facts((day, hour))}),),
    )


@template("mail/trash-newsletter", "easy")
def trash_newsletter(case: Case) -> Goal:
    """Ask to delete one issue of a newsletter and keep another one."""
    me = case.colleague()
    number = case.rng.randrange(400, 900)
    title = case.pick(("Harbor Letter", "Numbers Daily", "The Short Brief", "Field Notes"))
    sender = f"letters@{title.lower().replace(' ', '')}.example"
    old = case.mail(sender, me, f"{title} no. {number}", "Five short reads.", f"{case.company.day(-7)} 07:00")
    case.mail(sender, me, f"{title} no. {number + 1}", "Six short reads.")
    return Goal(
        f'Move "{title} no. {number}" in my inbox to the trash. I still want to read the later issue.',
        me,
        (look("mail_search", old.id, query=f"{title} {number}"), do("mail_move", mail_id=old.id, folder="trash")),
        (Update("mailboxes", f"{old.id}/{me.id}", {"folder": "trash"}),),
    )


@template("mail/forward-to-manager", "medium")
def forward_to_manager(case: Case) -> Goal:
    """Ask to forward a customer's mail to one's manager, who must be looked up."""
    me = case.seller()
    manager = case.company.person[me.manager]
    customer = case.pick([one for one in case.company.customers if one.owner == me.id])
    contact = case.pick(case.company.contacts_of[customer.id])
    product = case.pick(PRODUCTS)
    subject = f"Complaint about {product}"
    mail = case.mail(
        contact.email, me, subject,
        f"Dear {me.name},\n\nour last order of {product} was incomplete. Please tell me what you will do about "
        f"it.\n\n{contact.name}\n{customer.name}",
    )  # fmt: skip
    case.mail(
        contact.email, me, f"Question about {product}", "Which colors are there?", f"{case.company.day(-3)} 09:10"
    )
    return Goal(
        f"Forward the complaint of {contact.name} ({customer.name}) to my manager.",
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} complaint"),
            look("people_read", manager.email, employee=me.id),
            do("mail_forward", mail_id=mail.id, to=[manager.email]),
        ),
        (Insert("mails", {"forward_of": mail.id}, {"recipients": manager.email}),),
    )


@template("mail/answer-closing-date", "medium")
def answer_closing_date(case: Case) -> Goal:
    """Ask to answer a customer's question about a deal from the CRM."""
    company = case.company
    me = case.seller()
    customer = case.pick([one for one in company.customers if one.owner == me.id and len(company.deals_of[one.id]) > 1])
    contact = case.pick(company.contacts_of[customer.id])
    deal = case.pick([one for one in company.deals_of[customer.id] if one.stage not in ("won", "lost")])
    thing = deal.title.split(": ")[1]
    mail = case.mail(
        contact.email, me, f"Our {thing}",
        f"Dear {me.name},\n\nwhen do you expect to close our {thing}, and what is the amount in your system?\n\n"
        f"{contact.name}\n{customer.name}",
    )  # fmt: skip
    return Goal(
        f"Reply to the mail of {contact.name} from {customer.name} about their {thing}: give the close date and the "
        "amount that the CRM has for this deal.",
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} {thing}"),
            look("mail_read", "close", mail_id=mail.id),
            look("crm_deals", deal.id, deal.close_date, str(deal.amount), query=deal.title.replace(":", "")),
            do(
                "mail_reply",
                mail_id=mail.id,
                body=f"We expect to close it on {deal.close_date}; the amount is {deal.amount} EUR.",
            ),
        ),
        (Insert("mails", {"reply_to": mail.id}, {"body": Facts((deal.close_date, str(deal.amount)))}),),
    )


@template("mail/number-of-two", "medium")
def number_of_two(case: Case) -> Goal:
    """Ask for a number in the corrected one of two mails."""
    me = case.colleague()
    other = case.colleague(me)
    subject = case.pick(SUBJECTS)
    wrong, right = case.rng.sample(range(1200, 9800), 2)
    case.mail(
        other.email, me, f"{subject}: final amount", f"Hi,\n\nthe final amount is {wrong} EUR.\n\n{other.name}",
        f"{case.company.day(-2)} 10:30",
    )  # fmt: skip
    mail = case.mail(
        other.email, me, f"{subject}: correction",
        f"Hi,\n\nsorry, my last mail was wrong. The right amount is {right} EUR.\n\n{other.name}",
    )  # fmt: skip
    reader = case.colleague(me, other)
    return Goal(
        f'{other.name} wrote to me about the amount for "{subject}". Send the amount that holds now to {reader.name} '
        f'({reader.department}), with the subject "{subject}", and answer with the amount.',
        me,
        (
            look("mail_search", mail.id, query=f"{other.email} {subject}"),
            look("mail_read", str(right), mail_id=mail.id),
            look("people_search", reader.email, query=reader.name),
            do("mail_send", to=[reader.email], subject=subject, body=f"The amount is {right} EUR."),
        ),
        (
            Insert(
                "mails", {"recipients": reader.email}, {"subject": subject, "body": Facts((str(right),), (str(wrong),))}
            ),
        ),
        answer=str(right),
    )


@template("mail/tidy-inbox", "hard")
def tidy_inbox(case: Case) -> Goal:
    """Ask to sort several kinds of mails by sender and date, and to forward one."""
    company = case.company
    me = case.colleague(department=case.pick(("Sales", "Marketing", "Operations")))
    other = case.colleague(me)
    support = company.staff["Support"][0]
    title = case.pick(("Harbor Letter", "Numbers Daily", "The Short Brief", "Field Notes"))
    sender = f"letters@{title.lower().replace(' ', '')}.example"
    limit = company.day(-10)
    number = case.rng.randrange(400, 900)
    old, recent = [], []
    for offset in sorted(case.rng.sample(range(1, 25), 5), reverse=True):
        group = old if offset > 10 else recent
        sent = f"{company.day(-offset)} 07:00"
        group.append(case.mail(sender, me, f"{title} no. {number}", "Five short reads.", sent))
        number += 1
    case.need(old and recent)
    known = [one for one in company.inbox.get(me.id, []) if one.sender == other.email]
    case.need(len(known) <= 2)
    theirs = [
        *known,
        *(case.mail(other.email, me, one, f"For you.\n\n{other.name}", f"{company.day(-n)} 12:00")
          for n, one in enumerate(case.rng.sample(SUBJECTS, 2), 3)),
    ]  # fmt: skip
    customer = case.pick(company.customers)
    contact = case.pick(company.contacts_of[customer.id])
    outage = case.mail(
        contact.email,
        me,
        f"Outage of {case.pick(PRODUCTS)}",
        f"Hello,\n\nnothing works since this morning.\n\n{contact.name}",
    )
    return Goal(
        f'Tidy my inbox: move all issues of "{title}" that came before {limit} to the trash, move all mails from '
        f"{other.name} to the archive, and forward the mail about an outage from {contact.name} ({customer.name}) to "
        "the head of Support. Leave everything else where it is.",
        me,
        (
            look("mail_search", *(one.id for one in (*old, *recent)), query=sender),
            *(do("mail_move", mail_id=one.id, folder="trash") for one in old),
            look("mail_search", *(one.id for one in theirs), query=other.email),
            *(do("mail_move", mail_id=one.id, folder="archive") for one in theirs),
            look("mail_search", outage.id, query=f"{contact.email} outage"),
            look("people_search", support.email, query="Head of Support"),
            do("mail_forward", mail_id=outage.id, to=[support.email]),
        ),
        (
            *(Update("mailboxes", f"{one.id}/{me.id}", {"folder": "trash"}) for one in old),
            *(Update("mailboxes", f"{one.id}/{me.id}", {"folder": "archive"}) for one in theirs),
            Insert("mails", {"forward_of": outage.id}, {"recipients": support.email}),
        ),
    )
