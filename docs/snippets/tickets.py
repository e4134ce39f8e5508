from collections.abc import Generator

from ludus.protocol import text_of
from ludus.server import Answer, Call, Environment, Private, Result, StepResult, Task, tool


class Ticket(Task):
    customer: str
    ticket: Private[int]


class Desk(Environment[Ticket]):
    """Assign the ticket of a customer."""

    splits = {
        "train": [Ticket(id=f"{n}", customer=f"c{n}", ticket=500 + n) for n in range(100, 170) if n % 7],
        "test": [Ticket(id=f"{n}", customer=f"c{n}", ticket=500 + n) for n in range(105, 170, 7)],
    }

    def prompt(self) -> str:
        return f"Assign the ticket of the customer {self.task.customer}."

    @tool
    def search(self, customer: str) -> str:
        """Search the tickets of a customer."""
        return f"ticket {self.task.ticket}" if customer == self.task.customer else "no ticket"

    @tool
    def assign(self, ticket: int) -> Result:
        """Assign a ticket, which ends the task."""
        return Result("assigned", reward=float(ticket == self.task.ticket), finished=True)

    @classmethod
    def oracle(cls, task: Ticket) -> Generator[Call | Answer, StepResult, None]:
        yield Call("assign", {"ticket": task.ticket})

    @classmethod
    def demonstrator(cls, prompt: str) -> Generator[Call | Answer, StepResult, None]:
        customer = prompt.split()[-1].strip(".")
        found = yield Call("search", {"customer": customer})
        yield Call("assign", {"ticket": int(text_of(found.content).split()[-1])})
