"""Tickets of a project: they are created, assigned, handed over, finished and reported."""

from __future__ import annotations

from typing import Any

from ludus.environments.company.story import Cast, found, story
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.goals import Facts, Goal, Insert, Step, Update, do, look
from ludus.environments.workplace.world.schema import Ticket
from ludus.environments.workplace.world.words import TICKET_FAULTS, TICKET_THINGS
from ludus.server import Difficulty


def cast(case: Case, level: Difficulty) -> Cast:
    """Draw the project, the people and the tickets."""
    company = case.company
    project = case.pick(company.projects)
    lead = company.person[project.lead]
    me = case.colleague(lead, department="Product")
    people = [one for one in company.staff["Engineering"] if one.id not in (lead.id, me.id)]
    case.need(len(people) >= 3)
    leaves, stays, comes = case.rng.sample(people, 3)
    load = [one for one in company.tickets_of[project.id] if one.assignee == leaves.id and one.status != "done"]
    case.need(len(load) <= 3)
    count = {"easy": 2, "medium": 3, "hard": 4}[level]
    titles: list[str] = []
    while len(titles) < count:
        title = f"{case.pick(TICKET_THINGS).capitalize()} {case.pick(TICKET_FAULTS)} ({case.rng.randrange(100, 999)})"
        if title not in titles and all(title != ticket.title for ticket in company.tickets):
            titles.append(title)
    high = (count + 1) // 2
    return {
        "level": level, "project": project, "lead": lead.id, "me": me.id, "leaves": leaves.id, "stays": stays.id,
        "comes": comes.id,
        "tickets": [
            (title, "high" if number < high else "low", company.workday(case.rng.randrange(8, 30)))
            for number, title in enumerate(titles)
        ],
        "build": f"{case.rng.randrange(2, 9)}.{case.rng.randrange(1, 20)}.{case.rng.randrange(1, 20)}",
    }  # fmt: skip


def _listed(cast: Cast) -> str:
    return ", ".join(f'"{title}"' for title, _, _ in cast["tickets"])


def _ours(case: Case, cast: Cast) -> list[Ticket]:
    """Return the tickets of the story as they are now."""
    titles = [title for title, _, _ in cast["tickets"]]
    project = cast["project"].id
    tickets: list[Ticket] = found(
        [
            ticket for ticket in case.company.tickets
            if ticket.project == project and ticket.reporter == cast["me"] and ticket.title in titles
        ]
    )  # fmt: skip
    return tickets


def _person(case: Case, id: str) -> Any:
    return case.company.person[id]


def _seen(cast: Cast, ticket: Ticket) -> Step:
    return look("tickets_search", ticket.id, query=ticket.title, project=cast["project"].id)


def create(case: Case, cast: Cast) -> Goal:
    """Ask to create the tickets."""
    project = cast["project"].id
    lines = "; ".join(f'"{title}", priority {priority}, due on {due}' for title, priority, due in cast["tickets"])
    return Goal(
        f"Create these tickets in the project {project}, each with its title as the description, too: {lines}.",
        _person(case, cast["me"]),
        tuple(
            do("ticket_create", project=project, title=title, description=title, priority=priority, due=due)
            for title, priority, due in cast["tickets"]
        ),
        tuple(
            Insert(
                "tickets", {"title": title},
                {"project": project, "priority": priority, "due": due, "description": Facts((title,))},
            )
            for title, priority, due in cast["tickets"]
        ),
    )  # fmt: skip


def assign(case: Case, cast: Cast) -> Goal:
    """Ask to assign them by priority; in a hard story, there are tickets of the same names elsewhere."""
    ours = _ours(case, cast)
    if cast["level"] != "easy":
        other = case.pick([project for project in case.company.projects if project.id != cast["project"].id])
        for title, _, due in cast["tickets"]:
            case.add(Ticket(case.new_id("tickets"), other.id, title, title, "open", "high", "", other.lead, due))
    first, second = _person(case, cast["leaves"]), _person(case, cast["stays"])
    wanted = {one.id: first.id if one.priority == "high" else second.id for one in ours}
    waiting = found([one for one in ours if one.assignee != wanted[one.id]])
    return Goal(
        f"Yesterday you created tickets for me in the project {cast['project'].id}: {_listed(cast)}. Assign those with "
        f"priority high to {first.name} ({first.id}), and the others of them to {second.name} ({second.id}).",
        _person(case, cast["me"]),
        (
            *(_seen(cast, one) for one in waiting),
            *(do("ticket_assign", ticket_id=one.id, assignee=wanted[one.id]) for one in waiting),
        ),
        tuple(Update("tickets", one.id, {"assignee": wanted[one.id]}) for one in waiting),
    )


def hand_over(case: Case, cast: Cast) -> Goal:
    """Ask to reassign the tickets of a person who leaves the project; by priority in a hard story."""
    project = cast["project"].id
    leaves, comes, lead = (_person(case, cast[one]) for one in ("leaves", "comes", "lead"))
    theirs = found(
        [ticket for ticket in case.company.tickets if ticket.project == project and ticket.assignee == leaves.id
         and ticket.status != "done"]
    )  # fmt: skip
    split = cast["level"] == "hard"
    wanted = {one.id: lead.id if split and one.priority != "high" else comes.id for one in theirs}
    whom = (
        f"those with priority high to {comes.name} ({comes.id}), and the others to the lead of the project"
        if split
        else f"them to {comes.name} ({comes.id})"
    )
    pages = (len(theirs) + 9) // 10
    return Goal(
        f"{leaves.name} ({leaves.id}) leaves the project {project}. Reassign all tickets of this project that are "
        f"assigned to {leaves.name} and not done: {whom}. Tickets that are done and other projects stay as they are.",
        _person(case, cast["me"]),
        (
            look("projects_list", lead.id, query=project),
            *(
                look("tickets_search", query=leaves.id, project=project, status="not done", page=page + 1)
                for page in range(pages)
            ),
            *(do("ticket_assign", ticket_id=one.id, assignee=wanted[one.id]) for one in theirs),
        ),
        tuple(Update("tickets", one.id, {"assignee": wanted[one.id]}) for one in theirs),
    )


def finish(case: Case, cast: Cast) -> Goal:
    """Ask to close those that a person has now, with a comment on each."""
    comes, build = _person(case, cast["comes"]), cast["build"]
    ready = found([one for one in _ours(case, cast) if one.assignee == comes.id and one.status != "done"])
    return Goal(
        f"Of the tickets {_listed(cast)} in the project {cast['project'].id}, those that are assigned to {comes.name} "
        f"({comes.id}) now are finished in version {build}. Set them to done, and write a comment with the version on "
        "each.",
        _person(case, cast["me"]),
        (
            *(_seen(cast, one) for one in ready),
            *(
                step
                for one in ready
                for step in (
                    do("ticket_update", ticket_id=one.id, status="done"),
                    do("ticket_comment", ticket_id=one.id, body=f"Finished in version {build}."),
                )
            ),
        ),
        (
            *(Update("tickets", one.id, {"status": "done"}) for one in ready),
            *(Insert("comments", {"ticket": one.id}, {"body": Facts((build,))}) for one in ready),
        ),
    )


def report(case: Case, cast: Cast) -> Goal:
    """Ask to mail the lead what is left."""
    project, lead = cast["project"].id, _person(case, cast["lead"])
    left = found([one for one in _ours(case, cast) if one.status != "done"])
    ids = tuple(sorted(one.id for one in left))
    subject = f"Status of {project}"
    return Goal(
        f"Mail the lead of the project {project} the ids of those of these tickets that are not done yet: "
        f'{_listed(cast)}. Use the subject "{subject}".',
        _person(case, cast["me"]),
        (
            look("projects_list", lead.email, query=project),
            *(_seen(cast, one) for one in left),
            do("mail_send", to=[lead.email], subject=subject, body=f"Not done yet: {', '.join(ids)}."),
        ),
        (Insert("mails", {"recipients": lead.email}, {"subject": subject, "body": Facts(ids)}),),
    )


story("chain/project", cast, create, assign, hand_over, finish, report)
