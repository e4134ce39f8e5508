"""Environments in which nothing is wrong, from which the faulty ones are made."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ludus.server import (
    Answer,
    Call,
    Candidate,
    Environment,
    EpisodeLimits,
    Private,
    Result,
    StepResult,
    Task,
    ToolError,
    tool,
)

C = TypeVar("C", bound=type)


def planting() -> tuple[dict[str, str], Callable[[str], Callable[[C], C]]]:
    """Names of findings by names of faulty classes, and a decorator `fault(kind)` that adds to them."""
    found: dict[str, str] = {}

    def fault(kind: str) -> Callable[[C], C]:
        def plant(cls: C) -> C:
            found[cls.__name__] = kind
            return cls

        return plant

    return found, fault


def says(answer: str, right: str) -> bool:
    """Whether a message says an answer, in one of the usual forms."""
    text = re.sub(r"\\boxed\{(.*)\}", r"\1", answer.strip().rsplit("\n", 1)[-1].strip("*."))
    text = re.sub(r"(?i)^(?:the answer is|answer:)\s*", "", text).strip("*. ")
    return text.lower() == right.lower() or text.replace(",", "").removesuffix(".0") == right


class Sum(Task):
    a: int
    b: int
    answer: Private[str]


def make_sum(split: str, index: int) -> Sum:
    """No two have the same sum: answers that are alike by chance would look like a habit."""
    a = random.Random(f"{split}-{index}").randint(100, 499)
    total = 601 + 29 * index + 13 * (split == "test")
    return Sum(id=f"{split}-{index}", a=a, b=total - a, answer=str(total))


def sums(split: str, count: int = 12) -> list[Sum]:
    return [make_sum(split, index) for index in range(count)]


class Sums(Environment[Sum]):
    """Add two numbers, and say the sum."""

    splits: ClassVar[Any] = {"train": sums("train"), "test": sums("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? Answer with exactly the number."

    @tool
    def note(self, text: str) -> str:
        """Write something down, for later.

        Args:
            text: what to write.
        """
        return f"Noted, under number {self.rng.randint(1, 9)}."

    def grade(self, answer: str) -> Any:
        return float(says(answer, self.task.answer))

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Call("note", {"text": "I add them."})
        yield Answer(task.answer)


class Compared(Sums):
    """Add two numbers, and compare several answers with each other."""

    @classmethod
    def score_group(cls, task: Any, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [float(len(candidate.messages)) for candidate in candidates]


class Doors(Environment[Sum]):
    """Open the one door out of a thousand behind which the sum stands."""

    splits: ClassVar[Any] = {"train": sums("train"), "test": sums("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)
    forkable = True

    def prompt(self) -> str:
        return f"Open the door whose number is {self.task.a} plus {self.task.b}."

    @tool
    def look(self) -> str:
        """Look around."""
        return f"There are doors everywhere. A {self.rng.choice(['cat', 'dog', 'bird'])} watches you."

    @tool(ends=True)
    def open_listener(self, number: int) -> Result:
        """Open a door; this ends the game.

        Args:
            number: the door's number.
        """
        right = str(number) == self.task.answer
        return Result("It is behind it." if right else "It is empty.", float(right), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Call("look")
        yield Call("open_listener", {"number": int(task.answer)})


class Hidden(Task):
    size: int = 1000


class Seeded(Environment[Hidden]):
    """Find a number that the episode's seed has drawn."""

    splits: ClassVar[Any] = {
        "train": [Hidden(id=f"train-{index}") for index in range(4)],
        "test": [Hidden(id=f"test-{index}") for index in range(4)],
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=12)
    varies_by = "seed"

    def setup(self) -> None:
        self.number = self.rng.randint(1, self.task.size)

    def prompt(self) -> str:
        return f"Find my number, from 1 to {self.task.size}."

    @tool
    def guess(self, number: int) -> Result:
        """Guess the number.

        Args:
            number: the guess.
        """
        if number == self.number:
            return Result("Right.", 1.0, finished=True)
        return Result("Higher." if number < self.number else "Lower.")

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        low, high = 1, task.size
        while low <= high:
            middle = (low + high) // 2
            result = yield Call("guess", {"number": middle})
            if result.ended:
                return
            low, high = (middle + 1, high) if "Higher" in str(result.content) else (low, middle - 1)


class Coding(Environment[Sum]):
    """Write a function to a file; a verifier of its own runs it, in a process of its own."""

    splits: ClassVar[Any] = {"train": sums("train", 4), "test": sums("test", 4)}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=30)

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.files = Path(self.folder.name) / "work"
        self.files.mkdir()

    def teardown(self) -> None:
        self.folder.cleanup()

    def prompt(self) -> str:
        return f"Write `solution.py` with `def shift(number)` that adds {self.task.a} to its argument. Then submit."

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Write a file.

        Args:
            path: where, in the work folder.
            content: what it shall hold.
        """
        name = Path(path).name
        if not re.fullmatch(r"[\w.-]{1,100}", name) or name in (".", ".."):
            raise ToolError("Name a file.")
        (self.files / name).write_text(content)
        return "Written."

    @tool(ends=True)
    def submit(self) -> Result:
        """Hand in what was written."""
        return Result("Handed in.", float(self.verified()), finished=True)

    def verified(self) -> bool:
        """Compares values in this process; the code under test only prints them."""
        solution = self.files / "solution.py"
        if not solution.exists():
            return False
        program = "import sys, solution\nfor word in sys.argv[1:]:\n    print(solution.shift(int(word)))\n"
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(self.files)!r})\n{program}", "3", "40"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
        return done.stdout.split() == [str(self.task.a + 3), str(self.task.a + 40)]

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        program = f"def shift(number):\n    return number + {task.a}\n"
        yield Call("write_file", {"path": "solution.py", "content": program})
        yield Call("submit")


class Choice(Task):
    question: str
    choices: tuple[str, ...]
    answer: Private[str]


def choices(split: str) -> list[Choice]:
    found = []
    for index in range(12):
        rng = random.Random(f"{split}:{index}")
        towns = rng.sample(["Alexandria", "Bratislava", "Copenhagen", "Dusseldorf", "Eindhoven", "Fribourg"], 4)
        river = "".join(rng.choice("aeioulmnrst") for _ in range(9)).capitalize()
        found.append(Choice(id=f"{split}-{index}", question=f"Which town lies on the {river}?",
                            choices=tuple(towns), answer=rng.choice(towns)))  # fmt: skip
    return found


class Choices(Environment[Choice]):
    """Choose one of four towns. That the right one stands among the others is no leak, and guessing earns a quarter."""

    splits: ClassVar[Any] = {"train": choices("train"), "test": choices("test")}
    reward_range = (0.0, 1.0)
    random_baseline = 0.25

    def prompt(self) -> str:
        listed = "\n".join(f"{mark}. {town}" for mark, town in zip("ABCD", self.task.choices, strict=True))
        return f"{self.task.question}\n{listed}\nAnswer with exactly the town's name."

    def grade(self, answer: str) -> Any:
        return float(says(answer, self.task.answer))

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(task.answer)


class Unseeded(Sums):
    """Take no seed, and say so."""

    seedable = False

    @tool
    def note(self, text: str) -> str:
        """Write something down, for later.

        Args:
            text: what to write.
        """
        return f"Noted, under number {random.random()}."


SOUND = ("Sums", "Compared", "Doors", "Seeded", "Coding", "Choices", "Unseeded")
