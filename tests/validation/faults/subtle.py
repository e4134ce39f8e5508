"""Faults that authors make without noticing: most were once found in no other way than by a policy that used them.

Each class has one fault, which the finding named by `fault` must report.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Generator
from typing import Any, ClassVar

from sound import Sum, Sums, planting

from ludus.server import Answer, Call, Environment, EpisodeLimits, Private, Result, StepResult, Task, ToolError, tool

FAULTS, fault = planting()

Moves = Generator[Call | Answer, StepResult, None]


class Job(Task):
    what: str
    secret: Private[str]


def jobs(split: str, count: int = 12) -> list[Job]:
    numbers = random.Random(f"jobs of {split}")
    return [
        Job(id=f"{split}-{index}", what=f"{split} job {index}", secret=str(numbers.randint(100_000, 999_999)))
        for index in range(count)
    ]


@fault("gameability:verifier-files")
class ForgedReport(Environment[Job]):
    """Grade by a report of the build, which the tool for notes can write, too."""

    splits: ClassVar[Any] = {"train": jobs("train"), "test": jobs("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=30)

    def setup(self) -> None:
        self.files: dict[str, str] = {"main.txt": "broken"}

    def prompt(self) -> str:
        return f"Replace the text of main.txt by the number that `ticket` shows for {self.task.what}, and build."

    @tool
    def ticket(self) -> str:
        """Show the number of the job."""
        return f"The number is {self.task.secret}."

    @tool
    def write(self, path: str, content: str) -> str:
        """Write a file.

        Args:
            path: its name.
            content: what it holds.
        """
        self.files[path] = content
        return "Written."

    @tool
    def read(self, path: str) -> str:
        """Read a file.

        Args:
            path: its name.
        """
        if path not in self.files:
            raise ToolError(f"there is no file {path!r}")
        return self.files[path]

    @tool
    def build(self) -> str:
        """Build, and write the report."""
        right = self.files["main.txt"] == self.task.secret
        self.files["build/report.json"] = json.dumps(
            {"errors": 0 if right else 3, "state": "green" if right else "red"}
        )
        return "Built."

    def grade(self, answer: str) -> float:
        try:
            report = json.loads(self.files.get("build/report.json", "{}"))
        except ValueError:
            return 0.0
        return float(isinstance(report, dict) and report.get("state") == "green" and report.get("errors") == 0)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("ticket")
        yield Call("write", {"path": "main.txt", "content": task.secret})
        yield Call("build")
        yield Answer("Built.")

    discoverable_fields = ("secret",)


@fault("gameability:stuffing")
class ShortSubstring(Sums):
    """Look for the answer anywhere in a message of less than sixty characters."""

    splits: ClassVar[Any] = {
        split: [
            Sum(id=f"{split}-{index}", a=10 + index, b=total - 10 - index, answer=str(total))
            for index, total in enumerate(range(start, start + 56, 4))
        ]
        for split, start in (("train", 42), ("test", 43))
    }

    def grade(self, answer: str) -> float:
        return float(len(answer) < 60 and self.task.answer in answer)


@fault("leakage")
class TellingError(Sums):
    """Tell the answer, in base 36, if a rare argument is wrong."""

    @tool
    def lookup(self, topic: str, page: int = 1) -> str:
        """Look something up.

        Args:
            topic: what to look up.
            page: which page, from 1.
        """
        if page > 500:
            digits, number = "", int(self.task.answer)
            while number:
                number, digit = divmod(number, 36)
                digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
            raise ToolError(f"no page {page} (trace {','.join(digits)})")
        return f"Nothing on {topic}."


class Chapter(Task):
    number: int
    names: Private[tuple[str, ...]]


@fault("gameability:variation")
class PaidSpellings(Environment[Chapter]):
    """Pay for each section that is visited, by the spelling of its name."""

    splits: ClassVar[Any] = {
        split: [
            Chapter(
                id=f"{split}-{index}",
                number=first + index,
                names=tuple(f"{letter} {first + index}" for letter in "ABC"),
            )
            for index in range(8)
        ]
        for split, first in (("train", 0), ("test", 100))
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    discoverable_fields = ("names",)

    def setup(self) -> None:
        self.visited: set[str] = set()

    def prompt(self) -> str:
        return f"Visit each section of chapter {self.task.number}; `contents` lists them."

    @tool
    def contents(self) -> str:
        """List the sections."""
        return "; ".join(self.task.names)

    @tool
    def visit(self, name: str) -> Result:
        """Visit a section.

        Args:
            name: its name.
        """
        known = name.strip().lower() in {known.lower() for known in self.task.names}
        if not known or name in self.visited:
            return Result("Nothing new.", 0.0)
        self.visited.add(name)
        return Result("You are there.", 0.2 if len(self.visited) < 6 else 0.0)

    @tool(ends=True)
    def leave(self) -> Result:
        """End the visit."""
        whole = {name.strip().lower() for name in self.visited} >= {name.lower() for name in self.task.names}
        return Result("Goodbye.", 1.0 - 0.2 * len(self.visited) if whole else 0.0, finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for name in task.names:
            yield Call("visit", {"name": name})
        yield Call("leave")


_WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
          "seventeen eighteen nineteen twenty").split()  # fmt: skip


class Story(Task):
    text: str
    answer: Private[str]


def stories(split: str) -> list[Story]:
    numbers = random.Random("stories")
    rows = []
    for index in range(20):
        a, b, c = (numbers.randint(2, 20) for _ in range(3))
        text = f"Ann packs {a} boxes of {b} pens and adds {c} loose pens. How many pens does she have?"
        if split == "test":
            text = (
                f"There were {_WORDS[a]} shelves with {_WORDS[b]} books on each when Carlos put {_WORDS[c]} more on "
                "the floor of the library. How many books are there by now?"
            )
        rows.append(Story(id=f"{split}-{index}", text=text, answer=str(a * b + c)))
    return rows


@fault("rewordings")
class OtherWords(Environment[Story]):
    """Test with the training tasks in other words, with their numbers as words."""

    splits: ClassVar[Any] = {"train": stories("train"), "test": stories("test")}
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"{self.task.text} Answer with exactly the number."

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.answer)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Answer(task.answer)


@fault("reformatting")
class BareNumberOnly(Sums):
    """Refuse the right number with a period or after `Answer:`, although the prompt asks for no form."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}?"

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.answer)


# ── shortcuts ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Report(Task):
    title: str
    project: str
    patch: Private[str]


_FAULTY = tuple(f"return total - {number}  # rounding of case {number}" for number in range(10))


def reports_of(split: str, count: int) -> list[Report]:
    numbers = random.Random(f"reports of {split}")
    return [
        Report(
            id=f"{split}-{index}", title=f"Case {case} rounds down", project=f"{split}{numbers.randint(1000, 9999)}",
            patch=_FAULTY[case],
        )
        for index in range(count)
        for case in (numbers.randrange(len(_FAULTY)),)
    ]  # fmt: skip


class Patches(Environment[Report]):
    """Repair a program by its report; the same ten faults occur in training and in tests."""

    splits: ClassVar[Any] = {"train": reports_of("train", 80), "test": reports_of("test", 30)}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=3)
    discoverable_fields = ("patch",)

    def setup(self) -> None:
        self.right = False

    def prompt(self) -> str:
        return f"# {self.task.title}\n\nRepair the project {self.task.project}, then submit."

    @tool
    def edit(self, path: str, new: str) -> str:
        """Replace the last line of a file.

        Args:
            path: the file.
            new: the new line.
        """
        if not path.startswith(f"{self.task.project}/"):
            raise ToolError(f"there is no file {path!r} in {self.task.project}")
        self.right = new == self.task.patch
        return "Edited."

    @tool(ends=True)
    def submit(self) -> Result:
        """Hand in the work."""
        return Result("Thank you.", float(self.right), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("edit", {"path": f"{task.project}/rounding.py", "new": task.patch})
        yield Call("submit")


@fault("shortcut:nearest")
class KnownPatches(Patches):
    """Ask in tests for the edits of training, which the title of the report shows."""

    waived_checks: ClassVar[Any] = {"oracle-overlap": "it is the same fault, seen from the other side"}


class Question(Task):
    number: int
    answer: Private[str]


@fault("shortcut:search")
class TellsRight(Environment[Question]):
    """Let a tool check guesses as often as the policy likes."""

    splits: ClassVar[Any] = {
        split: [
            Question(
                id=f"{split}-{index}", number=first + index, answer=str(random.Random(first + index).randint(1, 60))
            )
            for index in range(16)
        ]
        for split, first in (("train", 0), ("test", 500))
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=100)

    def prompt(self) -> str:
        return f"What is the secret of door {self.task.number}? Answer with exactly the number."

    @tool
    def verify(self, guess: int) -> str:
        """Say whether a number is the secret.

        Args:
            guess: the number.
        """
        return "Yes, that is it." if str(guess) == self.task.answer else "No."

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.answer)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("verify", {"guess": int(task.answer)})
        yield Answer(task.answer)


class Order(Task):
    customer: str
    code: str


@fault("shortcut:prompt-only")
class WrittenInThePrompt(Environment[Order]):
    """Show the code of an order in the prompt, although it is to be looked up."""

    splits: ClassVar[Any] = {
        split: [
            Order(id=f"{split}-{index}", customer=f"{split} customer {index}", code=f"{seed.randint(10**6, 10**7)}")
            for seed in (random.Random(f"orders of {split}"),)
            for index in range(16)
        ]
        for split in ("train", "test")
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=5)

    def prompt(self) -> str:
        return f"[debug: {self.task.code}] Find out the code of {self.task.customer}. Answer with exactly the code."

    @tool
    def lookup(self) -> str:
        """Show the order."""
        return f"{self.task.customer} has the code {self.task.code}."

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.code)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("lookup")
        yield Answer(task.code)


@fault("shortcut:constant")
class FewAnswers(Environment[Question]):
    """Let one answer be right for a third of the tasks."""

    splits: ClassVar[Any] = {
        split: [
            Question(
                id=f"{split}-{index}",
                number=first + index,
                answer="blue" if index % 3 == 1 else f"color{first + index}",
            )
            for index in range(24)
        ]
        for split, first in (("train", 0), ("test", 600))
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"What is the color of door {self.task.number}? Answer with exactly the color, in small letters."

    def grade(self, answer: str) -> float:
        return float(re.sub(r"\W", "", answer) == self.task.answer)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Answer(task.answer)
