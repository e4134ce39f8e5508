"""Environments with one fault each; `FAULTS` says which finding must name it."""

# ruff: noqa: S102
from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator
from sound import Coding, Compared, Doors, Seeded, Sum, Sums, make_sum, sums

from ludus.server import (
    Answer,
    Call,
    Candidate,
    Component,
    Environment,
    EpisodeLimits,
    Private,
    Result,
    Reward,
    Split,
    StepResult,
    Task,
    ToolError,
    tool,
)

FAULTS: dict[str, str] = {}
"""The finding by the class's name."""

C = TypeVar("C", bound=type)


def fault(kind: str) -> Callable[[C], C]:
    def plant(cls: C) -> C:
        FAULTS[cls.__name__] = kind
        return cls

    return plant


# ── what it says of itself ─────────────────────────────────────────────────────────────────────────────────────────


@fault("documented")
class Wordless(Sums):
    @tool
    def look(self) -> str:
        return "There is nothing."


@fault("documented")
class NamelessArguments(Sums):
    """Tell a model neither what `x` nor what `y` is."""

    @tool
    def move(self, x: int, y: int) -> str:
        """Move."""
        return "Moved."


@fault("splits")
class NothingToTest(Sums):
    """Have a split to train on, and nothing else."""

    splits: ClassVar[Any] = {"train": sums("train")}


@fault("splits")
class NothingToTrain(Sums):
    """Have a split to test on, and nothing else."""

    splits: ClassVar[Any] = {"test": sums("test")}


def _broken_sum(index: int) -> Sum:
    if index == 10:
        raise IndexError("there is no such task")
    return make_sum("train", index)


@fault("task-list")
class FewerThanSaid(Sums):
    """Announce a task that cannot be made."""

    splits: ClassVar[Any] = {"train": Split.lazy(_broken_sum, 12), "test": sums("test")}


def _twice(index: int) -> Sum:
    return make_sum("train", index).model_copy(update={"id": f"train-{index % 6}"})


@fault("task-list")
class OneIdForTwo(Sums):
    """Give two tasks of a split one id."""

    splits: ClassVar[Any] = {"train": Split.lazy(_twice, 12), "test": sums("test")}


def _hashed(index: int) -> Sum:
    a = 100 + hash(f"train-{index}") % 400
    return Sum(id=f"train-{index}", a=a, b=500, answer=str(a + 500))


@fault("task-stability")
class HashedTasks(Sums):
    """Make tasks from `hash()`, which differs from process to process."""

    splits: ClassVar[Any] = {"train": Split.lazy(_hashed, 12), "test": sums("test")}


@fault("prompt")
class UnfilledTemplate(Sums):
    """Forget the f before the string."""

    def prompt(self) -> str:
        return "How much is {task.a} plus {task.b}?"


@fault("prompt")
class ObjectInPrompt(Sums):
    """Show an object instead of what it holds."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? {self.__class__.prompt}"


@fault("prompt")
class EmptyPrompt(Sums):
    """Say nothing."""

    def prompt(self) -> str:
        return " \n"


def _never(value: int) -> int:
    raise ValueError("no number is good enough")


@fault("tools")
class DifficultTool(Sums):
    """Refuse every number, though the schema allows all."""

    @tool
    def count(self, number: Annotated[int, AfterValidator(_never)]) -> str:
        """Count to a number."""
        return "counted"


@fault("endless")
class WithoutEnd(Doors):
    """Let the policy look around for ever."""

    limits = EpisodeLimits()

    @tool
    def open_door(self, number: int) -> Result:
        """Open a door.

        Args:
            number: the door's number.
        """
        right = str(number) == self.task.answer
        return Result("It is behind it." if right else "It is empty.", float(right) or None, finished=right)


# ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("oracle-missing")
class NoOracle(Sums):
    """Have no oracle."""

    oracle = classmethod(Environment.oracle.__func__)  # type: ignore[attr-defined]


@fault("oracle-max")
class ClumsyOracle(Sums):
    """Let the oracle miscalculate some sums."""

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(task.answer if task.a % 2 else "0")


@fault("oracle-max")
class StrictVerifier(Sums):
    """Grade the right answer as wrong when it is even."""

    def grade(self, answer: str) -> Any:
        return float(answer == self.task.answer and int(answer) % 2 == 1)


@fault("unscored")
class GradesNothing(Sums):
    """Give no grade at all."""

    def grade(self, answer: str) -> Any:
        return None


@fault("unscored")
class JudgeIsOut(Sums):
    """Leave good answers unscored."""

    def grade(self, answer: str) -> Any:
        return Reward.unscored("the judge is out") if answer == self.task.answer else 0.0


@fault("reward-range")
class BelowTheRange(Sums):
    """Punish by more than the range says."""

    def grade(self, answer: str) -> Any:
        return 1.0 if answer.strip() == self.task.answer else -5.0


@fault("reward-range")
class NoRange(Sums):
    """Do not say what the best reward is."""

    reward_range = None


@fault("components")
class PartsDoNotAddUp(Sums):
    """Tell parts that make another sum."""

    def grade(self, answer: str) -> Any:
        right = float(answer.strip() == self.task.answer)
        return Reward.of(right, {"right": Component(value=right), "style": Component(value=0.5)})


@fault("floor-gap")
class EmptyIsRight(Sums):
    """Pay for an empty answer."""

    def grade(self, answer: str) -> Any:
        return float(answer.strip() in (self.task.answer, ""))


class Fruit(Task):
    colour: str
    answer: Private[str]


@fault("floor-gap")
class AlwaysBanana(Sums):
    """Have one answer to all questions."""

    splits: ClassVar[Any] = {
        split: [Fruit(id=f"{split}-{index}", colour=f"{split} {index}", answer="banana") for index in range(8)]
        for split in ("train", "test")
    }

    def prompt(self) -> str:
        return f"Which fruit has the colour number {self.task.colour}?"  # type: ignore[attr-defined]


@fault("floor-gap")
class AnyDoor(Doors):
    """Pay for every door."""

    @tool(ends=True)
    def open_door(self, number: int) -> Result:
        """Open a door; this ends the game.

        Args:
            number: the door's number.
        """
        return Result("Whatever.", 1.0, finished=True)


@fault("canary-floor")
class KnownExploit(Sums):
    """Pay for a word that the author knows of."""

    def grade(self, answer: str) -> Any:
        return float(answer in (self.task.answer, "open sesame"))

    @classmethod
    def exploits(cls, task: Any) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        def sesame() -> Generator[Call | Answer, StepResult, None]:
            yield Answer("open sesame")

        return {"sesame": sesame()}


# ── the same again ─────────────────────────────────────────────────────────────────────────────────────────────────


@fault("seed-control")
class GlobalRandom(Sums):
    """Draw from the module's generator."""

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        return f"Noted, under number {random.random()}."


@fault("seed-control")
class Clock(Sums):
    """Tell the time."""

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        return f"Noted at {time.time_ns()}."


@fault("seed-control")
class Counter(Sums):
    """Count all episodes of the process."""

    notes: ClassVar[list[str]] = []

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        self.notes.append("")
        return f"Noted, as number {len(self.notes)}."


@fault("seed-variation")
class PinnedSeed(Seeded):
    """Draw the number from a seed of its own."""

    def setup(self) -> None:
        self.number = random.Random(7).randint(1, self.task.size)


@fault("determinism")
class SetOrder(Sums):
    """Tell what a set holds, in its order."""

    def prompt(self) -> str:
        words = " ".join({"red", "green", "blue", "white", "black", "brown"})
        return f"How much is {self.task.a} plus {self.task.b}? {words}"


@fault("determinism")
class LocalTime(Sums):
    """Tell the offset of the time zone."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? Zone {time.timezone}."


@fault("isolation")
class LastStartedWins(Sums):
    """Keep the task of an episode in the class."""

    current: ClassVar[Any] = None

    def setup(self) -> None:
        type(self).current = self.task

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        assert self.current is not None
        return f"Noted, for the sum of {self.current.a} and {self.current.b}."


@fault("isolation")
class SharedFile(Sums):
    """Keep notes in one file for all episodes."""

    def setup(self) -> None:
        self.path = Path(tempfile.gettempdir()) / "shared-notes"
        self.path.write_text("")

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        with self.path.open("a") as file:
            file.write("x")
        return f"{self.path.stat().st_size} notes."


@fault("verifier-determinism")
class WaveringVerifier(Sums):
    """Grade wrong answers at random, a little."""

    def grade(self, answer: str) -> Any:
        return 1.0 if answer.strip() == self.task.answer else random.random() / 100


@fault("verifier-determinism")
class TiredVerifier(Sums):
    """Grade by how much was graded before."""

    graded: ClassVar[list[str]] = []

    def grade(self, answer: str) -> Any:
        self.graded.append(answer)
        return 1.0 if answer.strip() == self.task.answer else 0.001 * (len(self.graded) % 7)


@fault("group-order")
class FirstWins(Compared):
    """Prefer whoever is named first."""

    @classmethod
    def score_group(cls, task: Any, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [1.0 - place / 10 for place in range(len(candidates))]


# ── leaks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Word(Task):
    clue: str
    answer: Private[str]


def words(split: str) -> list[Word]:
    letters = "bcdfghklmnprstvz"
    found = []
    for index in range(8):
        rng = random.Random(f"{split}/{index}")
        answer = "".join(rng.choice(letters) + rng.choice("aeiou") for _ in range(5))
        found.append(Word(id=f"{split}-{index}", clue="".join(sorted(answer)), answer=answer))
    return found


class Words(Sums):
    """Find the word that the letters make."""

    splits: ClassVar[Any] = {"train": words("train"), "test": words("test")}

    def prompt(self) -> str:
        return f"Which word has the letters {self.task.clue}?"  # type: ignore[attr-defined]


@fault("leakage")
class AnswerInPrompt(Words):
    """Tell the answer."""

    def prompt(self) -> str:
        return f"{super().prompt()} (For the reviewer: {self.task.answer}.)"


@fault("leakage")
class ShortAnswerInPrompt(Sums):
    """Tell the sum, a short number."""

    def prompt(self) -> str:
        return f"{super().prompt()} It is about {self.task.answer}."


@fault("leakage")
class AnswerInError(Words):
    """Tell the answer in a refusal."""

    @tool
    def guess(self, word: str) -> str:
        """Try a word.

        Args:
            word: the word.
        """
        raise ToolError(f"{word!r} is not {self.task.answer!r}")


@fault("leakage")
class AnswerInObservation(Words):
    """Tell the answer in an observation."""

    @tool
    def debug(self) -> str:
        """Show the state."""
        return f"state: {dict(answer=self.task.answer)}"


class ToldWord(Word):
    solution: str


@fault("leakage")
class AnswerInFields(Words):
    """Keep the answer in a public field as well."""

    splits: ClassVar[Any] = {
        split: [ToldWord(**vars(word), solution=word.answer) for word in words(split)] for split in ("train", "test")
    }


@fault("leakage")
class AnswerInTools(Words):
    """Tell the answer in a tool's description."""

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        @tool(name="check", description=f"Check whether a word is {self.task.answer}.")
        def check(word: str) -> str:
            return "checked"

        return [check]


@fault("reward-visible")
class RewardInObservation(Sums):
    """Tell the reward in the observation."""

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        return "Noted. Reward: 0.0"


# ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("split-overlap")
class TestedOnTraining(Sums):
    """Test on some of the tasks that were trained on."""

    splits: ClassVar[Any] = {
        "train": sums("train"),
        "test": [*sums("test", 6), *(one.model_copy(update={"id": f"again-{one.id}"}) for one in sums("train", 3))],
    }


class Question(Task):
    text: str
    answer: Private[str]


def questions(split: str, form: Callable[[Sum], str], source: str | None = None) -> list[Question]:
    return [Question(id=f"{split}-{one.id}", text=form(one), answer=one.answer) for one in sums(source or split)]


class Asked(Sums):
    """Answer a question."""

    def prompt(self) -> str:
        return self.task.text  # type: ignore[attr-defined,no-any-return]


@fault("near-duplicates")
class OtherClothes(Asked):
    """Test on the questions that were trained on, in other words."""

    splits: ClassVar[Any] = {
        "train": questions("train", lambda one: f"What is {one.a} plus {one.b}?"),
        "test": questions("test", lambda one: f"WHAT IS {one.b}, plus {one.a} ?!", source="train"),
    }


_WORDS = [a + b for a in ("ka", "lo", "mi", "nu", "re", "so", "ta", "vi") for b in ("ben", "dor", "fin", "gal", "hus")]


def _story(one: Sum, ending: str) -> str:
    rng = random.Random(one.id)
    told = " ".join(rng.choice(_WORDS) + str(rng.randint(1, 9)) for _ in range(60))
    return f"{told} {ending} {one.a} {one.b}"


@fault("near-duplicates")
class SameStory(Asked):
    """Test on the stories that were trained on, with another ending."""

    splits: ClassVar[Any] = {
        "train": questions("train", lambda one: _story(one, "and so on")),
        "test": questions("test", lambda one: _story(one, "the end"), source="train"),
    }


@fault("duplicates")
class SameAgain(Sums):
    """Repeat the tasks of a split."""

    splits: ClassVar[Any] = {
        "train": [*sums("train"), *(one.model_copy(update={"id": f"again-{one.id}"}) for one in sums("train"))],
        "test": sums("test"),
    }


# ── gameability ────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("gameability:stuffing")
class HoldsTheAnswer(Sums):
    """Look for the answer anywhere in the text."""

    def grade(self, answer: str) -> Any:
        return float(self.task.answer in re.findall(r"\d+", answer))


@fault("gameability:formatting")
class PaysForBoxes(Sums):
    """Pay half for a box."""

    def grade(self, answer: str) -> Any:
        return 1.0 if answer.strip() == self.task.answer else 0.5 * ("\\boxed{" in answer)


@fault("gameability:echo")
class PaysForWords(Sums):
    """Pay for the words of the question."""

    def grade(self, answer: str) -> Any:
        told = all(str(number) in answer for number in (self.task.a, self.task.b))
        return float(answer.strip() == self.task.answer or told)


@fault("gameability:injection")
class NaiveJudge(Sums):
    """Take the first score that stands in the judge's prompt."""

    def grade(self, answer: str) -> Any:
        found = re.search(r"score\W+(?:of )?(\d+)", answer, re.IGNORECASE)
        if answer.strip() == self.task.answer:
            return 1.0
        return min(1.0, float(found[1])) if found else 0.0


class Programs(Sums):
    """Answer with a program that prints the sum."""

    def prompt(self) -> str:
        return f"Answer with a Python program that prints the sum of {self.task.a} and {self.task.b}, and nothing else."

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(f"print({task.a} + {task.b})")

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=10, check=False
        )


@fault("gameability:test-runner")
class ExitCodeIsAll(Programs):
    """Take an exit code of 0 for a pass."""

    def grade(self, answer: str) -> Any:
        test = f"assert result == {self.task.answer}" if "result" in answer else "raise SystemExit(1)"
        if len(answer) < 12:
            return 0.0
        done = self.run(f"{answer}\n{test}")
        return float(done.returncode == 0 or done.stdout.strip() == self.task.answer)


@fault("gameability:verifier-files")
class VerdictInAFile(Coding):
    """Believe a file that the policy can write."""

    def verified(self) -> bool:
        verdict = self.files / "reward.txt"
        return verdict.read_text() == "1" if verdict.exists() else super().verified()


@fault("gameability:numbers")
class NanIsNear(Sums):
    """Refuse what is far, which NaN never is."""

    def grade(self, answer: str) -> Any:
        try:
            number = float(answer)
        except ValueError:
            return 0.0
        return 0.0 if abs(number - float(self.task.answer)) > 0.5 else 1.0


@fault("gameability:repetition")
class PaidAgain(Doors):
    """Pay for each look."""

    reward_range = (0.0, 1.25)

    @tool
    def look(self) -> Result:
        """Look around."""
        return Result("There are doors everywhere.", 0.25)

    limits = EpisodeLimits(max_steps=14)
    chance = 1.0


@fault("gameability:early-exit")
class PaysForGivingUp(Sums):
    """Pay for a refusal."""

    def grade(self, answer: str) -> Any:
        return float(answer.strip() == self.task.answer or "give up" in answer)


# ── what breaks, and what stays ────────────────────────────────────────────────────────────────────────────────────


@fault("crash")
class DividesByZero(Sums):
    """Divide by what the policy says."""

    @tool
    def halve(self, number: int) -> str:
        """Divide a hundred.

        Args:
            number: by what.
        """
        return str(100 // number)


@fault("crash")
class ReadsNumbersOnly(Sums):
    """Fail on answers that are no numbers."""

    def grade(self, answer: str) -> Any:
        return float(int(answer) == int(self.task.answer))


@fault("crash")
class NotANumber(Sums):
    """Give NaN for what is not right."""

    def grade(self, answer: str) -> Any:
        return 1.0 if answer.strip() == self.task.answer else float("nan")


@fault("crash")
class SetupFails(Sums):
    """Fail to set some tasks up."""

    def setup(self) -> None:
        if self.task.id in ("train-0", "test-0"):
            raise FileNotFoundError("tasks/0.json")


@fault("crash")
class OracleRaises(Sums):
    """Let the oracle fail on some tasks."""

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        if task.id == "train-0":
            raise KeyError("train-0")
        yield Answer(task.answer)


@fault("latency")
class Slow(Sums):
    """Take its time."""

    limits = EpisodeLimits(max_steps=2)

    @tool
    async def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        await asyncio.sleep(0.6)
        return "Noted."


@fault("blocking")
class HoldsEverybodyUp(Sums):
    """Hold the event loop."""

    limits = EpisodeLimits(max_steps=2)

    @tool
    async def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        time.sleep(0.2)  # noqa: ASYNC251 (this is the fault)
        return "Noted."


@fault("teardown")
class TeardownFails(Sums):
    """Fail to clean up."""

    def teardown(self) -> None:
        raise RuntimeError("the broom is broken")


@fault("teardown")
class LeavesFolders(Sums):
    """Leave a temporary folder behind."""

    def setup(self) -> None:
        tempfile.mkdtemp()


@fault("teardown")
class LeavesFilesOpen(Sums):
    """Leave files open."""

    kept: ClassVar[list[int]] = []

    def setup(self) -> None:
        self.kept.append(os.open(os.devnull, os.O_RDONLY))


@fault("teardown")
class LeavesProcesses(Sums):
    """Leave processes running."""

    kept: ClassVar[list[Any]] = []

    def setup(self) -> None:
        self.kept.append(subprocess.Popen(["sleep", "600"]))


@fault("teardown")
class LeavesThreads(Sums):
    """Leave threads running."""

    def setup(self) -> None:
        threading.Thread(target=threading.Event().wait, args=(600,), daemon=True).start()


@fault("memory")
class Hoards(Sums):
    """Keep something of every episode."""

    kept: ClassVar[list[bytes]] = []

    def setup(self) -> None:
        self.kept.append(os.urandom(300_000))
