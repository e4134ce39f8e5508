"""Tasks across several applications, with names that need the data to be resolved."""

from __future__ import annotations

from ludus.environments.workplace.drafts import Case, template
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update, do, look
from ludus.environments.workplace.policies import SHARING
from ludus.environments.workplace.templates.contacts import account
from ludus.environments.workplace.templates.crm import open_deals
from ludus.environments.workplace.templates.files import OPEN_FOLDERS, document
from ludus.environments.workplace.templates.projects import add_ticket
from ludus.environments.workplace.world.schema import Customer, Deal
from ludus.environments.workplace.world.words import CITIES, CUSTOMER_HEADS, CUSTOMER_TAILS, EVENT_NAMES, SUBJECTS


@template("across/which-first-name", "hard")
def which_first_name(case: Case) -> Goal:
    """Ask to mail a document to a person named by the first name and a ticket, of several with that name."""
    company = case.company
    me = case.colleague(department=case.pick(("Engineering", "Product", "Support")))
    ticket = case.pick([one for one in company.tickets if one.assignee and one.status != "done"])
    person = company.person[ticket.assignee]
    first = person.name.split()[0]
    case.need(person is not me and sum(employee.name.startswith(f"{first} ") for employee in company.employees) > 1)
    title = f"{case.pick(SUBJECTS)} {case.rng.randrange(11, 99)}"
    folder = case.pick(OPEN_FOLDERS)
    document(case, folder, title, 1, "outdated", f"{title}, first.")
    wanted = document(case, folder, title, 2, "current", f"{title}, second.")
    return Goal(
        f'Mail the id of the current version of "{title}" to {first}: the one who works on the ticket '
        f'"{ticket.title}" of the project {ticket.project}. Use the title of the document as the subject.',
        me,
        (
            look("tickets_search", ticket.id, person.id, query=ticket.title, project=ticket.project),
            look("people_read", person.email, employee=person.id),
            look("files_search", wanted.id, query=title),
            do("mail_send", to=[person.email], subject=title, body=f"The current version is {wanted.id}."),
        ),
        (Insert("mails", {"recipients": person.email}, {"subject": title, "body": Facts((wanted.id,))}),),
        rules=(SHARING,),
    )


@template("across/leaving-engineer", "hard")
def leaving_engineer(case: Case) -> Goal:
    """Ask to hand over the tickets of a person who leaves, by project, and to report the number."""
    company = case.company
    person = company.person[case.pick([ticket.assignee for ticket in company.tickets if ticket.assignee])]
    me = company.person[person.manager]
    case.need(me.department in ("Engineering", "Product"))
    own = [ticket for ticket in company.tickets if ticket.assignee == person.id and ticket.status != "done"]
    tickets = [*own, add_ticket(case, case.pick(company.projects).id, person.id)]
    case.need(2 <= len(tickets) <= 9)
    lead = {project.id: project.lead for project in company.projects}
    case.need(all(lead[ticket.project] != person.id for ticket in tickets))
    hr = company.staff["HR"][0]
    ids = tuple(sorted(ticket.id for ticket in tickets))
    projects = sorted({ticket.project for ticket in tickets})
    return Goal(
        f"{person.name} ({person.id}) leaves the company. Assign each ticket that {person.name} has and that is not "
        "done to the lead of its project. Then mail the head of HR the ids of these tickets, with the subject "
        f'"Handover {person.id}".',
        me,
        (
            look("tickets_search", *ids, query=person.id, status="not done"),
            *(look("projects_list", lead[project], query=project) for project in projects),
            *(do("ticket_assign", ticket_id=ticket.id, assignee=lead[ticket.project]) for ticket in tickets),
            look("people_search", hr.email, query="Head of HR"),
            do("mail_send", to=[hr.email], subject=f"Handover {person.id}", body=f"Handed over: {', '.join(ids)}."),
        ),
        (
            *(Update("tickets", ticket.id, {"assignee": lead[ticket.project]}) for ticket in tickets),
            Insert("mails", {"recipients": hr.email}, {"subject": f"Handover {person.id}", "body": Facts(ids)}),
        ),
    )


@template("across/brief-a-colleague", "hard")
def brief_a_colleague(case: Case) -> Goal:
    """Ask to brief the other attendee of an event about the customer in its title."""
    company = case.company
    me, customer, contact = account(case)
    other = case.colleague(me)
    day = case.day(2, 14)
    deals = open_deals(company, customer.id)
    case.need(deals)
    total = sum(deal.amount for deal in deals)
    title = f"{customer.name} {case.pick(EVENT_NAMES).lower()}"
    event = case.event(title, [me, other], f"{day} 14:00", f"{day} 15:00")
    third = case.colleague(me, other)
    case.event(title, [me, third], f"{company.workday(-3)} 14:00", f"{company.workday(-3)} 15:00")
    return Goal(
        f"Brief the colleague who comes with me to the next meeting about {customer.name} in my calendar: send a mail "
        f'with the subject "{customer.name}" that states the phone number of {contact.name}, the tier of the '
        "customer, and the sum of its open deals (neither won nor lost) in euros.",
        me,
        (
            look("calendar_search", event.id, query=customer.name),
            look("calendar_read", other.email, event_id=event.id),
            look("crm_customers", customer.id, query=customer.name),
            look("crm_customer", customer.tier, *(str(deal.amount) for deal in deals), customer_id=customer.id),
            look("contacts_read", contact.phone, contact_id=contact.id),
            do(
                "mail_send", to=[other.email], subject=customer.name,
                body=f"{contact.name}: {contact.phone}. Tier {customer.tier}, open deals {total} EUR.",
            ),
        ),
        (
            Insert(
                "mails", {"recipients": other.email},
                {"subject": customer.name, "body": Facts((contact.phone, customer.tier, str(total)))},
            ),
        ),
        context=" ".join(str(deal.amount) for deal in deals),
    )  # fmt: skip


@template("across/customers-without-deals", "hard")
def customers_without_deals(case: Case) -> Goal:
    """Ask to create a deal for each of one's customers without an open deal, and to tell the manager."""
    company = case.company
    me = case.seller()
    known = {customer.name for customer in company.customers}
    quiet = [f"{case.pick(CUSTOMER_HEADS)} {case.pick(CUSTOMER_TAILS)[0]}" for _ in range(2)]
    case.need(len(known | set(quiet)) == len(known) + 2)
    new = []
    for name in quiet:
        domain = f"{name.lower().replace(' ', '-')}.example"
        new.append(
            case.add(Customer(case.new_id("customers"), name, "media", case.pick(CITIES), "standard", domain, me.id))
        )
    closed = (case.pick(("won", "lost")), 100 * case.rng.randrange(20, 90), 0, me.id, company.day(-40))
    case.add(Deal(case.new_id("deals"), new[0].id, f"{new[0].name}: pilot", *closed))
    mine = [*(customer for customer in company.customers if customer.owner == me.id), *new]
    wanted = [one for one in mine if not open_deals(company, one.id)]
    case.need(1 <= len(wanted) <= 4 and len(wanted) < len(mine) <= 10)
    amount, day = 100 * case.rng.randrange(15, 90), case.day(25, 60)
    manager = company.person[me.manager]
    names = tuple(one.name for one in wanted)
    return Goal(
        "For each of my customers without an open deal (all deals won or lost, or none at all), create a deal with "
        f'the subject "review", {amount} euros, closing on {day}. Then mail my manager the names of these customers, '
        'with the subject "New reviews".',
        me,
        (
            look("crm_customers", *(one.id for one in mine), query=me.name),
            *(look("crm_customer", one.name, customer_id=one.id) for one in mine),
            *(
                do("crm_create_deal", customer_id=one.id, subject="review", amount=amount, close_date=day)
                for one in wanted
            ),
            look("people_read", manager.email, employee=me.id),
            do("mail_send", to=[manager.email], subject="New reviews", body=f"New: {', '.join(names)}."),
        ),
        (
            *(
                Insert(
                    "deals", {"customer": one.id}, {"title": f"{one.name}: review", "amount": amount, "close_date": day}
                )
                for one in wanted
            ),
            Insert("mails", {"recipients": manager.email}, {"subject": "New reviews", "body": Facts(names)}),
        ),
    )


@template("across/project-status", "hard")
def project_status(case: Case) -> Goal:
    """Ask for a document about a project, a mail to its lead, and a comment on each blocked ticket."""
    company = case.company
    project = case.pick(company.projects)
    lead = company.person[project.lead]
    me = case.colleague(lead, department=case.pick(("Product", "Engineering", "Operations")))
    team = [one.assignee for one in company.tickets_of[project.id] if one.assignee]
    added = add_ticket(case, project.id, case.pick(team), status="blocked")
    blocked = [one for one in (*company.tickets_of[project.id], added) if one.status == "blocked"]
    case.need(2 <= len(blocked) <= 5)
    ids = tuple(sorted(one.id for one in blocked))
    title = f"Status of {project.id}"
    number = f"F-{company.next_number('documents')}"
    return Goal(
        f'Write a document "{title}" in /shared with the deadline of the project {project.id} and the ids of all its '
        "blocked tickets. Write a comment on each of these tickets that contains the id of the document. Then mail "
        f'the lead of the project the id of the document, with the subject "{title}".',
        me,
        (
            look("projects_list", lead.email, project.deadline, query=project.id),
            look("tickets_search", *ids, query="", project=project.id, status="blocked"),
            do(
                "files_create",
                folder="/shared",
                title=title,
                body=f"Deadline {project.deadline}. Blocked: {', '.join(ids)}.",
            ),
            *(do("ticket_comment", ticket_id=id_, body=f"Listed in {number}.") for id_ in ids),
            do("mail_send", to=[lead.email], subject=title, body=f"Please read {number}."),
        ),
        (
            Insert(
                "documents",
                {"title": title},
                {"folder": "/shared", "body": Facts((project.deadline, *ids))},
            ),
            *(Insert("comments", {"ticket": id_}, {"body": Facts((number,))}) for id_ in ids),
            Insert("mails", {"recipients": lead.email}, {"subject": title, "body": Facts((number,))}),
        ),
    )
