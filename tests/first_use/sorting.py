"""Sort three numbers."""

from collections.abc import Generator

from ludus.server import Answer, Call, Environment, Result, StepResult, Task, tool


class Numbers(Task):
    numbers: list[int]


TASKS = [Numbers(id=f"{n:03}", numbers=[n // 100, n // 10 % 10, n % 10]) for n in range(1000)]


class Sorting(Environment[Numbers]):
    """Sort three numbers, the smallest first."""

    # The same numbers in another order belong to the same split.
    splits = {
        "train": [task for task in TASKS if int("".join(sorted(task.id))) % 7],
        "test": [task for task in TASKS if not int("".join(sorted(task.id))) % 7],
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return "Sort: " + " ".join(map(str, self.task.numbers))

    @tool
    def answer(self, numbers: list[int]) -> Result:
        """Give the numbers in order.

        Args:
            numbers: the three numbers, the smallest first.
        """
        return Result("Thank you.", reward=float(numbers == sorted(self.task.numbers)), finished=True)

    @classmethod
    def oracle(cls, task: Numbers) -> Generator[Call | Answer, StepResult, None]:
        yield Call("answer", {"numbers": sorted(task.numbers)})
