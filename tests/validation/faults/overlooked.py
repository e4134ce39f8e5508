"""Faults where they are easily overlooked, and what is easily mistaken for one; each is for one check.

`fault` names the check that finds the fault of a class, `sound` the check that finds nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel
from sound import Sum, planting, says, sums

from ludus.server import Answer, Call, Environment, EpisodeLimits, Result, StepResult, tool

FAULTS, fault = planting()
SOUND, sound = planting()

Moves = Generator[Call | Answer, StepResult, None]


class Bare(Environment[Sum]):
    """Add two numbers, without tools."""

    splits: ClassVar[Any] = {"train": sums("train"), "test": sums("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? Answer with the number alone."

    def grade(self, answer: str) -> Any:
        return float(says(answer, self.task.answer))

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Answer(task.answer)


# ── where answers go ──────────────────────────────────────────────────────────────────────────────────────────────────


@fault("gameability:stuffing")
class OwnTools(Bare):
    """Look for the answer in what is said to a tool that only the task has."""

    grade = Environment.grade

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        @tool(ends=True)
        def say(text: str) -> Result:
            """Say something."""
            return Result("Heard.", float(self.task.answer in text), finished=True)

        return [say]

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("say", {"text": task.answer})


class Remark(BaseModel):
    about: str
    text: str


@fault("gameability:stuffing")
class ListOfRemarks(Bare):
    """Look for the answer among remarks."""

    @tool(ends=True)
    def submit(self, remarks: list[Remark]) -> Result:
        """Hand in."""
        return Result("Over.", float(self.task.answer in [one.text for one in remarks]), finished=True)

    @tool
    def think(self, text: str) -> str:
        """Think."""
        return "Hm."

    def grade(self, answer: str) -> Any:
        return 0.0

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("submit", {"remarks": [{"about": "the sum", "text": task.answer}]})


@sound("gameability:stuffing")
class ThreeGuesses(Bare):
    """Take up to three guesses, as the prompt may say."""

    @tool(ends=True)
    def submit(self, guesses: list[str]) -> Result:
        """Hand in."""
        return Result("Over.", float(self.task.answer in guesses[:3]), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("submit", {"guesses": [task.answer]})


@fault("gameability:fragments")
class AnyPart(Bare):
    """Look for what was said in the answer."""

    def grade(self, answer: str) -> Any:
        return float(bool(answer.strip()) and answer.strip() in self.task.answer)


@fault("gameability:verifier-files")
class SaysWhere(Bare):
    """Compare two files, both of which the policy can write."""

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.files = Path(self.folder.name)
        (self.files / "expected.txt").write_text(self.task.answer)

    def teardown(self) -> None:
        self.folder.cleanup()

    @tool
    def save(self, dest: str, value: str) -> str:
        """Save a file."""
        (self.files / (Path(dest).name or "out.txt")).write_text(value.replace("\0", ""))
        return "Saved."

    @tool(ends=True)
    def submit(self) -> Result:
        """Hand in."""
        out = self.files / "out.txt"
        said = out.read_text() if out.exists() else ""
        return Result("Over.", float(said == (self.files / "expected.txt").read_text()), finished=True)

    def grade(self, answer: str) -> Any:
        return 0.0

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("save", {"dest": "out.txt", "value": task.answer})
        yield Call("submit")


# ── again and again ───────────────────────────────────────────────────────────────────────────────────────────────────


@fault("gameability:repetition")
class PaidLittle(Bare):
    """Pay a little for each note, of which there may be many."""

    reward_range = (0.0, 1.1)
    limits = EpisodeLimits(max_steps=200)

    @tool
    def note(self, text: str) -> Result:
        """Write something down."""
        return Result("Noted.", 0.05 if len(text) > 30 else 0.0)

    def grade(self, answer: str) -> Any:
        return 1.05 if answer == self.task.answer else 0.0

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("note", {"text": "I add the two numbers as I have learned to."})
        yield Answer(task.answer)


@sound("gameability:repetition")
class Corridor(Bare):
    """Go some steps the right way, each of which is worth its share."""

    limits = EpisodeLimits(max_steps=30)
    grade = Environment.grade

    def setup(self) -> None:
        self.at = 0

    @classmethod
    def way(cls, task: Any) -> tuple[int, str]:
        """How many steps, and in which direction."""
        return 5 + task.a % 5, ("north", "south", "east", "west")[task.b % 4]

    @tool
    def walk(self, direction: str) -> Result:
        """Walk a step."""
        goal, side = self.way(self.task)
        if direction != side:
            return Result("A pit!", 0.0, finished=True)
        self.at += 1
        return Result("Nearer.", 1 / goal, finished=self.at == goal)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        steps, direction = cls.way(task)
        for _ in range(steps):
            yield Call("walk", {"direction": direction})


@fault("endless")
class ListensForEver(Bare):
    """Let the policy talk forever, to a tool that only the task has."""

    limits = EpisodeLimits()

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        @tool
        def say(text: str) -> str:
            """Say something."""
            return "Go on."

        return [say]


@sound("determinism")
class Wavers(Bare):
    """Grade wrong answers by how often the task was graded before, so that one process differs from itself."""

    graded: ClassVar[Counter[str]] = Counter()

    def grade(self, answer: str) -> Any:
        if answer == self.task.answer:
            return 1.0
        self.graded[self.task.id] += 1
        return 0.01 if self.graded[self.task.id] % 4 in (3, 0) else 0.0


# ── next to others ────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("isolation")
class Race(Bare):
    """Keep something in one file for all episodes while another may write it."""

    @tool
    async def remember(self) -> str:
        """Say what the task is."""
        path = Path(tempfile.gettempdir()) / "remembered"
        path.write_text(self.task.id)
        await asyncio.sleep(0.03)
        return path.read_text()

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("remember")
        yield Answer(task.answer)


@fault("fork")
class ForkTakesOver(Bare):
    """Grade only the latest episode of a task, which the calls do not show."""

    forkable = True
    latest: ClassVar[dict[str, Any]] = {}

    def setup(self) -> None:
        self.latest[self.task.id] = self

    @tool
    def press(self, button: str) -> str:
        """Press a button."""
        return "Click."

    def grade(self, answer: str) -> Any:
        return float(answer == self.task.answer and self.latest[self.task.id] is self)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("press", {"button": "a"})
        yield Answer(task.answer)


@fault("blocking")
class HoldsTheStart(Bare):
    """Hold the event loop while an episode is set up."""

    async def setup(self) -> None:
        time.sleep(0.12)  # noqa: ASYNC251 (this is the fault)


@fault("teardown")
class LeavesWhenRight(Bare):
    """Leave a temporary folder behind, after right answers only."""

    def grade(self, answer: str) -> Any:
        if answer == self.task.answer:
            tempfile.mkdtemp()
        return super().grade(answer)


class BreaksLater(Bare):
    """Break once every sampled task was played by the oracle, and by a random policy twice."""

    graded: ClassVar[list[str]] = []

    def grade(self, answer: str) -> Any:
        self.graded.append(answer)
        if len(self.graded) > 24:
            raise RuntimeError("worn out")
        return super().grade(answer)
