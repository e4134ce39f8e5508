"""Generates a company from a seed: people first, then what they work on, then their mails and calendars.

Everything is drawn from one `random.Random`, so that a seed gives the same company on every machine. Later parts may
read what earlier parts made. What the drafts of tasks need in addition (a request by mail, a conflict) is not here:
tasks add it to the copy of one episode.
"""

from __future__ import annotations

import random
from datetime import date, timedelta

from ludus.environments._names import FIRST_NAMES, LAST_NAMES
from ludus.environments.workplace import policies
from ludus.environments.workplace.world import words
from ludus.environments.workplace.world.company import Company, clock
from ludus.environments.workplace.world.schema import (
    Activity,
    Attendee,
    Comment,
    Contact,
    Customer,
    Deal,
    Document,
    Employee,
    Event,
    Expense,
    Folder,
    Leave,
    LeaveBalance,
    Mail,
    MailboxEntry,
    Project,
    Room,
    Salary,
    Sales,
    SupportLoad,
    Ticket,
    WebTraffic,
)


def company_name(rng: random.Random) -> str:
    """Draw the name of a company."""
    return rng.choice(words.COMPANY_HEADS) + rng.choice(words.COMPANY_TAILS)


def generate(name: str, rng: random.Random) -> Company:
    """Return a company of that name, with everything in it."""
    today = date(2026, 1, 5) + timedelta(days=rng.randrange(200))
    while today.weekday() >= 5:
        today += timedelta(days=1)
    company = Company(name, today)
    _people(company, rng)
    _personnel(company, rng)
    _customers(company, rng)
    _projects(company, rng)
    _documents(company, rng)
    _calendar(company, rng)
    _mails(company, rng)
    _analytics(company, rng)
    return company


def _people(company: Company, rng: random.Random) -> None:
    taken: set[str] = set()

    def hire(title: str, department: str, manager: str) -> Employee:
        while True:
            first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
            if f"{first} {last}" not in taken:
                break
        taken.add(f"{first} {last}")
        started = date(2026, 1, 1) - timedelta(days=rng.randrange(60, 4000))
        return company.add(
            Employee(
                company.new_id("employees"), f"{first} {last}", f"{first}.{last}@{company.domain}".lower(), title,
                department, manager, rng.choice(words.OFFICES), f"+49 40 55{rng.randrange(10_000, 99_999)}",
                started.isoformat(),
            )
        )  # fmt: skip

    director = hire("Managing Director", "Management", "")
    for department, (least, title) in words.DEPARTMENTS.items():
        size = least + rng.randrange(least // 3 + 1)
        head = hire(words.HEADS[department], department, director.id)
        leads = [head]
        if size > 9:
            leads = [hire(f"{department} Team Lead", department, head.id) for _ in range(size // 8 + 1)]
        for number in range(size - len(leads)):
            hire(title, department, leads[number % len(leads)].id)


def _personnel(company: Company, rng: random.Random) -> None:
    for person in company.employees:
        managing = bool(company.reports.get(person.id))
        band = rng.choice("DE" if managing else "ABC")
        company.add(Salary(person.id, 1000 * rng.randrange(*((75, 140) if managing else (38, 80))), band))
        company.add(LeaveBalance(person.id, rng.randrange(3, 28)))
    for _ in range(len(company.employees) // 2):
        person = rng.choice(company.employees[1:])
        first = company.workday(rng.choice((-1, 1)) * rng.randrange(1, 40))
        days = rng.randrange(1, 6)
        last = (date.fromisoformat(first) + timedelta(days=days - 1)).isoformat()
        status = rng.choice(("approved", "approved", "pending", "rejected", "withdrawn"))
        if first <= company.day(0) and status == "pending":
            status = "approved"
        kind = rng.choice(words.LEAVE_KINDS[:2]) if first <= company.day(0) else "vacation"
        company.add(Leave(company.new_id("leaves"), person.id, kind, first, last, days, status, ""))
    for _ in range(len(company.employees)):
        person = rng.choice(company.employees[1:])
        category = rng.choice(words.EXPENSE_CATEGORIES)
        amount = rng.randrange(12, 900)
        text = f"{category.capitalize()} {rng.choice(words.CITIES)}"
        status = rng.choice(("approved", "approved", "pending", "rejected"))
        receipt = "yes" if rng.random() < 0.85 else "no"
        day = company.day(-rng.randrange(1, 60))
        company.add(Expense(company.new_id("expenses"), person.id, day, amount, category, text, receipt, status))


def _customers(company: Company, rng: random.Random) -> None:
    sellers = [one for one in company.staff["Sales"] if not company.reports.get(one.id)]
    names: set[str] = set()
    while len(names) < 36:
        names.add(f"{rng.choice(words.CUSTOMER_HEADS)} {rng.choice(words.CUSTOMER_TAILS)[0]}")
    industries = dict(words.CUSTOMER_TAILS)
    shuffled = sorted(names)
    rng.shuffle(shuffled)
    for number, name in enumerate(shuffled):
        domain = f"{name.lower().replace(' ', '-')}.example"
        owner = sellers[number % len(sellers)]
        tier = rng.choice(("standard", "standard", "silver", "gold"))
        customer = company.add(
            Customer(company.new_id("customers"), name, industries[name.split()[1]], rng.choice(words.CITIES), tier,
                     domain, owner.id)
        )  # fmt: skip
        known: set[str] = set()
        for _ in range(rng.randrange(2, 5)):
            first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
            if first in known:
                continue
            known.add(first)
            company.add(
                Contact(company.new_id("contacts"), f"{first} {last}", customer.id, rng.choice(words.CONTACT_TITLES),
                        f"{first}.{last}@{domain}".lower(), f"+43 1 {rng.randrange(100_000, 999_999)}")
            )  # fmt: skip
        for thing in rng.sample(words.DEAL_THINGS, rng.randrange(1, 5)):
            stage = rng.choice((*words.OPEN_STAGES, *words.STAGES))
            offset = rng.randrange(3, 120) if stage in words.OPEN_STAGES else -rng.randrange(3, 200)
            deal = company.add(
                Deal(company.new_id("deals"), customer.id, f"{name}: {thing}", stage, 100 * rng.randrange(20, 900),
                     rng.choice((0, 0, 0, 3, policies.LIMITS[tier])), owner.id, company.day(offset))
            )  # fmt: skip
            for _ in range(rng.randrange(3)):
                note = rng.choice(("Asked for a new offer.", "Sent the contract.", "No answer yet.", "Demo went well."))
                company.add(
                    Activity(company.new_id("activities"), deal.id, owner.id, rng.choice(("call", "mail", "meeting")),
                             company.day(-rng.randrange(1, 80)), note)
                )  # fmt: skip


def _projects(company: Company, rng: random.Random) -> None:
    engineers = company.staff["Engineering"] + company.staff["Product"]
    leads = rng.sample(company.staff["Product"], 6)
    for (key, title), lead in zip(rng.sample(words.PROJECTS, 6), leads, strict=True):
        company.add(Project(key, title, lead.id, company.workday(rng.randrange(20, 90))))
        team = rng.sample(engineers, 7)
        pairs = [(thing, fault) for thing in words.TICKET_THINGS for fault in words.TICKET_FAULTS]
        for thing, fault in rng.sample(pairs, 22):
            status = rng.choice(("open", "open", "in progress", "blocked", "done"))
            assignee = rng.choice(team).id if rng.random() < 0.85 or status != "open" else ""
            ticket = company.add(
                Ticket(company.new_id("tickets"), key, f"{thing.capitalize()} {fault}",
                       f"Seen in the test system. The {thing} {fault}.", status,
                       rng.choice(("low", "medium", "medium", "high")), assignee, rng.choice(company.employees).id,
                       company.workday(rng.choice((-1, 1, 1)) * rng.randrange(1, 40)))
            )  # fmt: skip
            if rng.random() < 0.3:
                company.add(
                    Comment(company.new_id("comments"), ticket.id, rng.choice(team).id,
                            rng.choice(("I can reproduce it.", "Waiting for the design.", "Needs more details.")))
                )  # fmt: skip


FOLDERS = (
    ("/handbook", "all", "HR, Legal"),
    ("/sales", "Sales, Marketing, Management", "Sales, Marketing"),
    ("/marketing", "all", "Marketing, Sales"),
    ("/engineering", "Engineering, Product, Support", "Engineering, Product"),
    ("/support", "all", "Support, Product"),
    ("/finance", "Finance, Management", "Finance"),
    ("/hr", "HR", "HR"),
    ("/legal", "Legal, Management", "Legal"),
    ("/operations", "all", "Operations, Finance"),
    ("/archive", "all", "all"),
    ("/shared", "all", "all"),
)
"""Path, readers and writers of each folder."""


def _documents(company: Company, rng: random.Random) -> None:
    for path, readers, writers in FOLDERS:
        company.add(Folder(path, readers, writers))
    staff = company.staff

    def write(
        folder: str, title: str, version: int, status: str, access: str, owner: str, keep: str, body: str
    ) -> None:
        company.add(Document(company.new_id("documents"), folder, title, version, status, access, owner, keep, body))

    head = staff["HR"][0].id
    write(
        "/handbook",
        "Company handbook",
        4,
        "current",
        "internal",
        head,
        company.day(3000),
        policies.handbook(company.name),
    )
    write(
        "/handbook",
        "Company handbook",
        3,
        "outdated",
        "internal",
        head,
        company.day(900),
        policies.old_handbook(company.name),
    )
    for folder, department in (
        ("/sales", "Sales"), ("/marketing", "Marketing"), ("/engineering", "Engineering"), ("/support", "Support"),
        ("/finance", "Finance"), ("/hr", "HR"), ("/legal", "Legal"), ("/operations", "Operations"),
    ):  # fmt: skip
        for thing in rng.sample(words.DOCUMENT_THINGS, 5):
            product = rng.choice(words.PRODUCTS)
            title = f"{thing} {product}"
            versions = rng.randrange(1, 4)
            for version in range(1, versions + 1):
                current = version == versions
                owner = rng.choice(staff[department]).id
                access = rng.choice(("public", "internal", "internal", "confidential"))
                keep = company.day(rng.choice((-1, 1)) * rng.randrange(20, 1500))
                body = (
                    f"{title}, version {version}. Prices from {10 * rng.randrange(10, 99)} euros. Contact: "
                    f"{department}. Reviewed by {rng.choice(company.employees).name}."
                )
                write(folder, title, version, "current" if current else "outdated", access, owner, keep, body)


def _calendar(company: Company, rng: random.Random) -> None:
    for name, seats, floor in words.ROOMS:
        company.add(Room(name, seats, floor))
    taken: dict[tuple[str, str], set[int]] = {}

    def place(title: str, people: list[Employee], day: str, room: str) -> None:
        length = rng.choice((1, 1, 2, 2, 3))
        start = rng.randrange(18, 34 - length)
        slots = set(range(start, start + length))
        keys = [(person.id, day) for person in people] + ([(room, day)] if room else [])
        if any(slots & taken.setdefault(key, set()) for key in keys):
            return
        for key in keys:
            taken[key] |= slots
        event = company.add(
            Event(
                company.new_id("events"),
                title,
                people[0].id,
                f"{day} {clock(start)}",
                f"{day} {clock(start + length)}",
                room,
                "confirmed",
            )
        )
        for number, person in enumerate(people):
            response = "accepted" if number == 0 else rng.choice(("accepted", "accepted", "none", "tentative"))
            company.add(Attendee(f"{event.id}/{person.id}", event.id, person.id, response))

    days = [company.workday(offset) for offset in range(-3, 15)]
    for department, people in company.staff.items():
        for day in days[2::5]:
            place(f"{department} weekly", people[:8], day, "Magnolia" if rng.random() < 0.5 else "")
    for day in days:
        for _ in range(12):
            title = rng.choice(words.MEETINGS)
            people = rng.sample(company.employees, rng.randrange(2, 6))
            place(title, people, day, rng.choice(("", "", *(name for name, _, _ in words.ROOMS))))


def _mails(company: Company, rng: random.Random) -> None:
    def send(sender: str, people: list[Employee], subject: str, body: str, folder: str = "inbox") -> None:
        sent = f"{company.day(-rng.randrange(0, 30))} {rng.randrange(7, 9):02d}:{rng.randrange(60):02d}"
        mail = company.add(
            Mail(
                company.new_id("mails"),
                sender,
                ", ".join(person.email for person in people),
                "",
                subject,
                body,
                sent,
                "",
                "",
            )
        )
        for person in people:
            company.add(MailboxEntry(f"{mail.id}/{person.id}", mail.id, person.id, folder))

    things = ("roadmap", "fair", "audit", "training", "move", "survey", "workshop", "summer party")
    weekdays = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    for person in company.employees:
        for _ in range(rng.randrange(2, 4)):
            other = rng.choice(company.employees)
            if other is person:
                continue
            subject, body = rng.choice(words.MAIL_TOPICS)
            texts = {
                "to": person.name.split()[0], "me": other.name, "thing": rng.choice(things), "day": rng.choice(weekdays)
            }  # fmt: skip
            send(other.email, [person], subject.format(**texts), body.format(**texts))
        if rng.random() < 0.6:
            title, address = rng.choice(words.NEWSLETTERS)
            number = rng.randrange(20, 400)
            send(address, [person], f"{title} no. {number}", f"{title} no. {number}: five short reads for your week.")
    for customer in company.customers:
        contact = rng.choice(company.contacts_of[customer.id])
        subject, body = rng.choice(words.CUSTOMER_TOPICS)
        owner = company.person[customer.owner]
        texts = {
            "to": owner.name, "me": contact.name, "company": customer.name, "product": rng.choice(words.PRODUCTS),
            "city": rng.choice(words.CITIES),
        }  # fmt: skip
        send(contact.email, [owner], subject.format(**texts), body.format(**texts))


def _analytics(company: Company, rng: random.Random) -> None:
    months = []
    first = company.today.replace(day=1)
    for _ in range(12):
        first = (first - timedelta(days=1)).replace(day=1)
        months.append(first.isoformat()[:7])
    for month in reversed(months):
        for product in words.PRODUCTS:
            for region in words.REGIONS:
                units = rng.randrange(20, 400)
                key = f"{month}/{region}/{product}"
                company.add(Sales(key, month, region, product, units, units * rng.randrange(2, 9)))
            opened = rng.randrange(40, 300)
            company.add(
                SupportLoad(f"{month}/{product}", month, product, opened, opened - rng.randrange(0, 30), opened * 2)
            )
        for channel in words.CHANNELS:
            visits = rng.randrange(800, 9000)
            company.add(WebTraffic(f"{month}/{channel}", month, channel, visits, visits // rng.randrange(15, 60)))
