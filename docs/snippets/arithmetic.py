from ludus.server import Environment, Private, Result, Task, tool


class Sum(Task):
    answer: Private[int]


class Arithmetic(Environment[Sum]):
    """Add two numbers."""

    splits = {"train": [Sum(id=f"{n}+{n}", answer=2 * n) for n in range(100)]}

    def prompt(self) -> str:
        return f"What is {self.task.id}?"

    @tool
    def submit(self, value: int) -> Result:
        """Give the answer."""
        return Result("Thank you.", reward=float(value == self.task.answer), finished=True)
