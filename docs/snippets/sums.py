from collections.abc import Generator

from ludus.server import (
    Answer,
    Call,
    Difficulty,
    Private,
    ProceduralEnvironment,
    StepResult,
    Task,
    TaskDraw,
    final_answer,
    split_of,
)

NUMBERS = {"easy": range(10, 100), "medium": range(100, 1000), "hard": range(1000, 10_000)}


class Sum(Task):
    numbers: list[int]
    difficulty: Difficulty
    solution: Private[int]


class Sums(ProceduralEnvironment[Sum]):
    """Add two numbers."""

    counts = {"validation": 100, "test": 100}

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> Sum:
        while True:
            numbers = sorted(draw.rng.choices(NUMBERS[draw.difficulty], k=2))
            if split_of(f"{numbers}") == draw.split:
                return Sum(id=draw.id, numbers=numbers, difficulty=draw.difficulty, solution=sum(numbers))

    @classmethod
    def task_identity(cls, task: Sum, draw: TaskDraw[Difficulty]) -> str:
        return f"{task.numbers}"

    def prompt(self) -> str:
        return f"What is {' + '.join(map(str, self.task.numbers))}? End with a line in this form:\nAnswer: NUMBER"

    def grade(self, answer: str) -> float:
        return float(final_answer(answer) == str(self.task.solution))

    @classmethod
    def oracle(cls, task: Sum) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(f"Answer: {task.solution}")
