"""Fill a form from a message."""

from collections.abc import Generator
from itertools import product
from random import Random

from ludus.server import Answer, Call, Environment, Private, Result, StepResult, Task, tool

NAMES = ["Ana", "Ben", "Cem", "Dora", "Eli", "Fay", "Gus", "Hana"]
ITEMS = ["lamp", "chair", "desk", "shelf"]
DAYS = ["Monday", "Tuesday", "Friday"]


STYLES = ["Hi, {name} here. I need {count} {item}s by {day}.", "Please send {count} {item}s on {day}. Thanks, {name}"]
ORDERS = list(product(NAMES, ITEMS, range(2, 10), DAYS))
Random(0).shuffle(ORDERS)


class Order(Task):
    message: str
    name: Private[str]
    item: Private[str]
    count: Private[int]
    day: Private[str]


def make(index: int) -> Order:
    name, item, count, day = ORDERS[index]
    message = STYLES[index % 2].format(name=name, item=item, count=count, day=day)
    return Order(id=f"order-{index}", message=message, name=name, item=item, count=count, day=day)


class OrderForm(Environment[Order]):
    """Read a customer's message and fill in the order form."""

    splits = {"train": [make(i) for i in range(640)], "test": [make(i) for i in range(640, len(ORDERS))]}
    reward_range = (0.0, 1.0)
    waived_checks = {"leakage": "everything is in the message, and the task is to find it there"}

    def prompt(self) -> str:
        return self.task.message

    @tool
    def fill(self, name: str, item: str, count: int, day: str) -> Result:
        """Fill in the form and send it.

        Args:
            name: who writes.
            item: what is ordered, in the singular.
            count: how many.
            day: the day of the week.
        """
        t = self.task
        right = [name == t.name, item == t.item, count == t.count, day == t.day]
        return Result("Sent.", reward=float(all(right)), finished=True)

    @classmethod
    def oracle(cls, task: Order) -> Generator[Call | Answer, StepResult, None]:
        yield Call("fill", {"name": task.name, "item": task.item, "count": task.count, "day": task.day})
