"""An environment whose tasks have no tools: one answer is graded, and one of them breaks the grader."""

from __future__ import annotations

from collections.abc import Generator

from ludus.server import Answer, Call, Environment, Private, Reward, StepResult, Task


class Riddle(Task):
    """A question with a hidden answer."""

    question: str
    answer: Private[str]


class Riddles(Environment[Riddle]):
    """Say the word."""

    splits = {
        "train": [
            Riddle(id="Red / Blue?", question="Which color?", answer="red\n"),
            Riddle(id="red-blue", question='Which "color"?\x7f', answer="blüe"),
        ]
    }

    def prompt(self) -> str:
        return self.task.question

    def grade(self, answer: str) -> Reward:
        if answer == "break":
            raise RuntimeError("this environment is broken")
        return Reward.of(
            1.0 if answer == self.task.answer else 0.25 if answer else -0.5, {"words": len(answer.split())}
        )

    @classmethod
    def oracle(cls, task: Riddle) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(task.answer)
