"""A help desk: find the ticket of a customer and assign it to the right team."""

import json
import sqlite3
from collections.abc import Generator
from random import Random

from ludus.server import Answer, Call, Environment, Private, Result, Split, StepResult, Task, text_of, tool

NAMES = ["Ana", "Ben", "Cem", "Dora", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun"]
TEAMS = ["billing", "network", "hardware"]


class Ticket(Task):
    customer: str
    rows: Private[list[tuple[int, str, str]]]
    ticket: Private[int]
    team: Private[str]


def make(split: str, index: int) -> Ticket:
    rng = Random(f"{split}-{index}")
    names = rng.sample(NAMES, 4)
    ids = rng.sample(range(100, 1000), 4)
    rows = [(i, n, rng.choice(TEAMS)) for i, n in zip(ids, names, strict=True)]
    ticket, customer, team = rng.choice(rows)
    return Ticket(id=f"{split}-{index}", customer=customer, rows=rows, ticket=ticket, team=team)


class Tickets(Environment[Ticket]):
    """Find the ticket of a customer in the database and assign it to the team of its topic."""

    splits = {"train": Split.lazy(lambda i: make("train", i), 2000), "test": Split.lazy(lambda i: make("test", i), 200)}

    reward_range = (0.0, 1.0)

    def setup(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("create table tickets (id integer, customer text, topic text)")
        self.db.executemany("insert into tickets values (?, ?, ?)", self.task.rows)

    def teardown(self) -> None:
        self.db.close()

    def prompt(self) -> str:
        return f"Assign the ticket of {self.task.customer}."

    @tool
    def search(self, customer: str) -> list[dict[str, int | str]]:
        """Find the open tickets of a customer.

        Args:
            customer: the first name.
        """
        rows = self.db.execute("select id, topic from tickets where customer = ?", (customer,))
        return [{"ticket": i, "topic": t} for i, t in rows]

    @tool
    def assign(self, ticket: int, team: str) -> Result:
        """Assign a ticket to the team of its topic.

        Args:
            ticket: the number of the ticket.
            team: billing, network or hardware.
        """
        right = ticket == self.task.ticket and team == self.task.team
        return Result("Done.", reward=float(right), finished=True)

    @classmethod
    def oracle(cls, task: Ticket) -> Generator[Call | Answer, StepResult, None]:
        yield Call("assign", {"ticket": task.ticket, "team": task.team})

    @classmethod
    def demonstrator(cls, prompt: str) -> Generator[Call | Answer, StepResult, None]:
        customer = prompt.split()[-1].strip(".")
        found = yield Call("search", {"customer": customer})
        ticket = json.loads(text_of(found.content))[0]
        yield Call("assign", {"ticket": ticket["ticket"], "team": ticket["topic"]})
