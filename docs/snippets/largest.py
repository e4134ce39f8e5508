from collections.abc import Generator

from ludus.server import Answer, Call, Environment, Result, StepResult, Task, tool


class Numbers(Task):
    numbers: list[int]


TASKS = [Numbers(id=f"{n:03}", numbers=[n // 100, n // 10 % 10, n % 10]) for n in range(1000)]


class Largest(Environment[Numbers]):
    """Pick the largest of three numbers."""

    # Held out are tasks whose digits, in any order, make a multiple of 7. Of 5, all of them would have a 0 or a 5.
    splits = {
        "train": [task for task in TASKS if int("".join(sorted(task.id))) % 7],
        "test": [task for task in TASKS if not int("".join(sorted(task.id))) % 7],
    }

    def prompt(self) -> str:
        return "Which is the largest? " + " ".join(map(str, self.task.numbers))

    @tool
    def pick(self, number: int) -> Result:
        """Pick a number."""
        return Result("Thank you.", reward=float(number == max(self.task.numbers)), finished=True)

    @classmethod
    def oracle(cls, task: Numbers) -> Generator[Call | Answer, StepResult, None]:
        yield Call("pick", {"number": max(task.numbers)})
