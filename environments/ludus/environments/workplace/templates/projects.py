"""Tasks around projects and tickets."""

from __future__ import annotations

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.templates.contacts import account
from ludus.environments.workplace.world.schema import Employee, Ticket
from ludus.environments.workplace.world.words import TICKET_FAULTS, TICKET_THINGS


def worker(case: Case) -> Employee:
    """Draw a person who may change tickets."""
    return case.colleague(department=case.pick(("Engineering", "Product", "Support")))


def add_ticket(
    case: Case, project: str, assignee: str = "", priority: str = "", due: str = "", status: str = "open"
) -> Ticket:
    """Add a ticket."""
    thing, fault = case.pick(TICKET_THINGS), case.pick(TICKET_FAULTS)
    day = due or case.company.workday(case.pick((-1, 1)) * case.rng.randrange(1, 30))
    made: Ticket = case.add(
        Ticket(
            case.new_id("tickets"), project, f"{thing.capitalize()} {fault} ({case.rng.randrange(10, 99)})",
            f"Reported by a customer. The {thing} {fault}.", status, priority or case.pick(("low", "medium", "high")),
            assignee, case.pick(case.company.employees).id, day,
        )
    )  # fmt: skip
    return made


@template("projects/assign", "easy")
def assign(case: Case) -> Goal:
    """Ask to assign a ticket."""
    me = worker(case)
    ticket = case.pick([one for one in case.company.tickets if one.status != "done"])
    other = case.pick([one for one in case.company.staff["Engineering"] if one.id != ticket.assignee])
    return Goal(
        f'Assign the ticket "{ticket.title}" of the project {ticket.project} to {other.name} ({other.id}).',
        me,
        (
            look("tickets_search", ticket.id, query=ticket.title, project=ticket.project),
            do("ticket_assign", ticket_id=ticket.id, assignee=other.id),
        ),
        (Update("tickets", ticket.id, {"assignee": other.id}),),
    )


@template("projects/comment", "easy")
def comment(case: Case) -> Goal:
    """Ask to comment on a ticket."""
    me = case.colleague()
    ticket = case.pick(case.company.tickets)
    build = f"{case.rng.randrange(2, 9)}.{case.rng.randrange(1, 20)}.{case.rng.randrange(1, 20)}"
    return Goal(
        f'Write a comment on the ticket "{ticket.title}" of the project {ticket.project}: it still happens in version '
        f"{build}.",
        me,
        (
            look("tickets_search", ticket.id, query=ticket.title, project=ticket.project),
            do("ticket_comment", ticket_id=ticket.id, body=f"It still happens in version {build}."),
        ),
        (Insert("comments", {"ticket": ticket.id}, {"body": Facts((build,))}),),
    )


@template("projects/create", "easy")
def create(case: Case) -> Goal:
    """Ask to create a ticket."""
    me = case.colleague()
    project = case.pick(case.company.projects)
    title = f"{case.pick(TICKET_THINGS).capitalize()} {case.pick(TICKET_FAULTS)} again"
    priority, due = case.pick(("low", "high")), case.day(5, 30)
    return Goal(
        f'Create a ticket in the project {project.id}: "{title}", priority {priority}, due on {due}. Use the title as '
        "the description, too.",
        me,
        (do("ticket_create", project=project.id, title=title, description=title, priority=priority, due=due),),
        (
            Insert(
                "tickets", {"title": title},
                {"project": project.id, "priority": priority, "due": due, "description": Facts((title,))},
            ),
        ),
    )  # fmt: skip


@template("projects/due-date", "easy")
def due_date(case: Case) -> Goal:
    """Ask for the due date of a ticket."""
    ticket = case.pick(case.company.tickets)
    return Goal(
        f'When is the ticket "{ticket.title}" of the project {ticket.project} due? Answer with the date.',
        case.colleague(),
        (look("tickets_search", ticket.id, ticket.due, query=ticket.title, project=ticket.project),),
        answer=ticket.due,
    )


@template("projects/ticket-from-mail", "medium")
def ticket_from_mail(case: Case) -> Goal:
    """Ask to turn a customer's report into a ticket, and to reply with its id."""
    _, customer, contact = account(case)
    me = case.colleague(department="Support")
    project = case.pick(case.company.projects)
    thing, fault = case.pick(TICKET_THINGS), case.pick(TICKET_FAULTS)
    code = f"ERR{case.rng.randrange(1000, 9999)}"
    mail = case.mail(
        contact.email, me, f"Problem with the {thing}",
        f"Hello,\n\nin {project.name} the {thing} {fault}. The message shows the code {code}.\n\n{contact.name}\n"
        f"{customer.name}",
    )  # fmt: skip
    number = f"T-{case.company.next_number('tickets')}"
    title = f"{thing.capitalize()} {fault}"
    return Goal(
        f"{contact.name} of {customer.name} reported a problem by mail. Create a ticket with priority high in the "
        f'project "{project.name}", with the title "{title}" and a description that contains the error code. Then '
        "reply to the mail with the id of the new ticket.",
        me,
        (
            look("mail_search", mail.id, query=f"{contact.email} problem"),
            look("mail_read", code, mail_id=mail.id),
            look("projects_list", project.id, query=project.name),
            do("ticket_create", project=project.id, title=title, description=f"Code {code}.", priority="high"),
            do("mail_reply", mail_id=mail.id, body=f"We track this as {number}."),
        ),
        (
            Insert(
                "tickets", {"title": title}, {"project": project.id, "priority": "high", "description": Facts((code,))}
            ),
            Insert("mails", {"reply_to": mail.id}, {"body": Facts((number,))}),
        ),
    )


@template("projects/hand-over", "medium")
def hand_over(case: Case) -> Goal:
    """Ask to reassign the unfinished tickets of a person in one project."""
    company = case.company
    me = worker(case)
    project = case.pick(company.projects)
    tickets = company.tickets_of[project.id]
    owner = company.person[case.pick([ticket.assignee for ticket in tickets if ticket.assignee])]
    wanted = [ticket for ticket in tickets if ticket.assignee == owner.id and ticket.status != "done"]
    case.need(2 <= len(wanted) <= 8)
    other = case.colleague(owner, me, department="Engineering")
    return Goal(
        f"{owner.name} leaves the project {project.id}. Assign all tickets of this project that are assigned to "
        f"{owner.name} and not done to {other.name} ({other.id}). Tickets that are done and other projects stay as "
        "they are.",
        me,
        (
            look(
                "tickets_search", *(one.id for one in wanted), query=owner.name, project=project.id, status="not done"
            ),
            *(do("ticket_assign", ticket_id=one.id, assignee=other.id) for one in wanted),
        ),
        tuple(Update("tickets", one.id, {"assignee": other.id}) for one in wanted),
    )


@template("projects/overdue-to-lead", "medium")
def overdue_to_lead(case: Case) -> Goal:
    """Ask to mail the lead of a project the overdue tickets of high priority."""
    company = case.company
    me = worker(case)
    project = case.pick([one for one in company.projects if one.lead != me.id])
    lead = company.person[project.lead]
    today = company.today.isoformat()
    team = [one.assignee for one in company.tickets_of[project.id] if one.assignee]
    added = [add_ticket(case, project.id, case.pick(team)) for _ in range(case.rng.randrange(2, 5))]
    tickets = [*company.tickets_of[project.id], *added]
    late = [
        ticket for ticket in tickets
        if ticket.due < today and ticket.status != "done" and ticket.priority == "high"
    ]  # fmt: skip
    case.need(1 <= len(late) <= 6)
    unfinished = [ticket for ticket in tickets if ticket.status != "done"]
    pages = (len(unfinished) + 9) // 10
    ids = sorted(one.id for one in late)
    return Goal(
        f"Mail the lead of the project {project.id} the ids of all its tickets with priority high that are overdue "
        '(due before today) and not done. Use the subject "Overdue tickets".',
        me,
        (
            look("projects_list", lead.email, query=project.id),
            *(
                look("tickets_search", "found", query="", project=project.id, status="not done", page=n + 1)
                for n in range(pages)
            ),
            do("mail_send", to=[lead.email], subject="Overdue tickets", body=f"Overdue: {', '.join(ids)}."),
        ),
        (Insert("mails", {"recipients": lead.email}, {"subject": "Overdue tickets", "body": Facts(tuple(ids))}),),
    )


@template("projects/due-by-event", "medium")
def due_by_event(case: Case) -> Goal:
    """Ask to set a ticket due on the workday before an event in the calendar."""
    company = case.company
    me = worker(case)
    other = case.colleague(me)
    project = case.pick(company.projects)
    ticket = case.pick([one for one in company.tickets_of[project.id] if one.status != "done"])
    distance = case.rng.randrange(6, 18)
    day, before = company.workday(distance), company.workday(distance - 1)
    case.need(ticket.due != before)
    title = f"{project.id} release"
    event = case.event(title, [other, me], f"{day} 15:00", f"{day} 16:00")
    return Goal(
        f'Set the due date of the ticket "{ticket.title}" ({project.id}) to the last workday (Monday to Friday) '
        f'before the day of the "{title}" in my calendar.',
        me,
        (
            look("calendar_search", event.id, day, query=title),
            look("tickets_search", ticket.id, query=ticket.title, project=project.id),
            do("ticket_update", ticket_id=ticket.id, due=before),
        ),
        (Update("tickets", ticket.id, {"due": before}),),
    )


@template("projects/triage", "hard")
def triage(case: Case) -> Goal:
    """Ask to sort the tickets without an assignee by rules, with a comment on each."""
    company = case.company
    project = case.pick(company.projects)
    lead = company.person[project.lead]
    me = case.colleague(lead, department="Product")
    added = [add_ticket(case, project.id) for _ in range(3)]
    tickets = [*company.tickets_of[project.id], *added]
    waiting = [ticket for ticket in tickets if not ticket.assignee and ticket.status == "open"]
    case.need(3 <= len(waiting) <= 6)
    late = company.day(10)
    urgent = [one for one in waiting if one.priority == "high" or one.due < company.today.isoformat()]
    others = [one for one in waiting if one not in urgent and one.due != late]
    case.need(urgent and len(urgent) + len(others) == len(waiting))
    unfinished = [ticket for ticket in tickets if ticket.status == "open"]
    pages = (len(unfinished) + 9) // 10
    return Goal(
        f"Sort the open tickets without an assignee in the project {project.id}. Those with priority high, and those "
        "due before today: assign them to the lead of the project, and write a comment on each that contains the "
        f'word "urgent". All others of them: set the due date to {late}, without a comment.',
        me,
        (
            look("projects_list", lead.id, query=project.id),
            *(
                look("tickets_search", "found", query="", project=project.id, status="open", page=n + 1)
                for n in range(pages)
            ),
            *(
                step
                for one in urgent
                for step in (
                    do("ticket_assign", ticket_id=one.id, assignee=lead.id),
                    do("ticket_comment", ticket_id=one.id, body="This is urgent."),
                )
            ),
            *(do("ticket_update", ticket_id=one.id, due=late) for one in others),
        ),
        (
            *(Update("tickets", one.id, {"assignee": lead.id}) for one in urgent),
            *(Insert("comments", {"ticket": one.id}, {"body": Facts(("urgent",))}) for one in urgent),
            *(Update("tickets", one.id, {"due": late}) for one in others),
        ),
    )
