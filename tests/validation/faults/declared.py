"""Faults in what an environment says of itself, in its tasks, and in what it shows.

Each class has one fault, which the finding named by `fault` must report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel
from sound import Doors, Sum, Sums, make_sum, planting, says, sums

from ludus.server import (
    Answer,
    Call,
    EpisodeLimits,
    Private,
    Result,
    Split,
    StepResult,
    Task,
    ToolError,
    tool,
)

FAULTS, fault = planting()


# ── what it says of itself ────────────────────────────────────────────────────────────────────────────────────────────


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
class NoteInPrompt(Sums):
    """Show a note that the author left."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? TODO: say how to answer."


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
    """Let the policy look around forever."""

    limits = EpisodeLimits()

    @tool
    def open_listener(self, number: int) -> Result:
        """Open a door.

        Args:
            number: the door's number.
        """
        right = str(number) == self.task.answer
        return Result("It is behind it." if right else "It is empty.", float(right) or None, finished=right)


# ── leaks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


class Key(BaseModel):
    language: str
    solution: Private[str]


class Locked(Task):
    clue: str
    key: Key


@fault("leakage")
class NestedAnswerInPrompt(Words):
    """Tell an answer that is private in a model within the task."""

    splits: ClassVar[Any] = {
        split: [
            Locked(id=word.id, clue=word.clue, key=Key(language="none", solution=word.answer)) for word in words(split)
        ]
        for split in ("train", "test")
    }

    def prompt(self) -> str:
        key = self.task.key  # type: ignore[attr-defined]
        return f"Which word has the letters {self.task.clue}? {key.solution!r}"  # type: ignore[attr-defined]

    def grade(self, answer: str) -> Any:
        return float(says(answer, self.task.key.solution))  # type: ignore[attr-defined]

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(task.key.solution)


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
        def check(word: str) -> str:
            return "checked"

        check.__doc__ = f"Check whether a word is {self.task.answer}."
        return [tool(check)]


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


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
