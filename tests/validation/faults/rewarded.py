"""Faults in rewards: what earns too much, too little, or nothing.

Each class has one fault, which the finding named by `fault` must report.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from sound import Coding, Doors, Sums, planting, says

from ludus.server import (
    Answer,
    Call,
    Component,
    Environment,
    EpisodeLimits,
    Private,
    Result,
    Reward,
    StepResult,
    Task,
    tool,
)

FAULTS, fault = planting()


# ── rewards ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("oracle-missing")
class NoOracle(Sums):
    """Have no oracle."""

    oracle: Any = classmethod(Environment.oracle.__func__)  # type: ignore[attr-defined]


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


@fault("demonstrator")
class ForgetfulDemonstrator(Sums):
    """Let the demonstrator add one number only."""

    @classmethod
    def demonstrator(cls, prompt: str) -> Generator[Call | Answer, StepResult, None]:
        yield Answer(prompt.split()[0])


@fault("right-messages")
class OneForm(Sums):
    """Take one of two forms in which the author calls an answer right."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? Answer with exactly the number."

    def grade(self, answer: str) -> Any:
        return float(answer.strip() == self.task.answer)

    @classmethod
    def right_messages(cls, task: Any) -> list[str]:
        return [task.answer, f"{task.answer}."]


@fault("equivalents")
class PlainDigitsOnly(Sums):
    """Refuse the answer in a sentence, which the author calls right."""

    def prompt(self) -> str:
        return f"How much is {self.task.a} plus {self.task.b}? Answer with exactly the number."

    def grade(self, answer: str) -> Any:
        return float(answer.strip() == self.task.answer)

    @classmethod
    def equivalents(cls, task: Any) -> dict[str, Generator[Call | Answer, StepResult, None]]:
        def sentence() -> Generator[Call | Answer, StepResult, None]:
            yield Answer(f"The answer is {task.answer}.")

        return {"sentence": sentence()}


@fault("crash")
class GradesNothing(Sums):
    """Forget to return the grade."""

    def grade(self, answer: str) -> Any:
        return None


@fault("unscored")
class NeverPays(Doors):
    """Let the door that ends the episode give no reward."""

    @tool(ends=True)
    def open_listener(self, number: int) -> Result:
        """Open a door; this ends the game.

        Args:
            number: the door's number.
        """
        return Result("It is open.", finished=True)


@fault("unscored")
class JudgeIsOut(Sums):
    """Leave good answers unscored."""

    def grade(self, answer: str) -> Any:
        return Reward.unscored("the judge is out") if answer == self.task.answer else 0.0


@fault("reward-range")
class BelowTheRange(Sums):
    """Punish by more than the range says."""

    def grade(self, answer: str) -> Any:
        return 1.0 if says(answer, self.task.answer) else -5.0


@fault("reward-range")
class NoRange(Sums):
    """Do not say what the best reward is."""

    reward_range: ClassVar[Any] = None


@fault("components")
class PartsDoNotAddUp(Sums):
    """Tell parts that make another sum."""

    def grade(self, answer: str) -> Any:
        right = float(says(answer, self.task.answer))
        return Reward.of(right, {"right": Component(value=right), "style": Component(value=0.5)})


@fault("floor-gap")
class EmptyIsRight(Sums):
    """Pay for an empty answer."""

    def grade(self, answer: str) -> Any:
        return float(answer.strip() in (self.task.answer, ""))


class Fruit(Task):
    color: str
    answer: Private[str]


@fault("floor-gap")
class AlwaysBanana(Sums):
    """Have one answer to all questions."""

    splits: ClassVar[Any] = {
        split: [Fruit(id=f"{split}-{index}", color=f"{split} {index}", answer="banana") for index in range(8)]
        for split in ("train", "test")
    }

    def prompt(self) -> str:
        return f"Which fruit has the color number {self.task.color}?"  # type: ignore[attr-defined]


@fault("floor-gap")
class AnyDoor(Doors):
    """Pay for every door."""

    @tool(ends=True)
    def open_listener(self, number: int) -> Result:
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


# ── gameability ───────────────────────────────────────────────────────────────────────────────────────────────────────


@fault("gameability:stuffing")
class HoldsTheAnswer(Sums):
    """Look for the answer anywhere in the text."""

    def grade(self, answer: str) -> Any:
        return float(self.task.answer in re.findall(r"\d+", answer))


@fault("gameability:formatting")
class PaysForHeadings(Sums):
    """Pay half for a heading."""

    def grade(self, answer: str) -> Any:
        return 1.0 if says(answer, self.task.answer) else 0.5 * ("## Final answer" in answer)


@fault("gameability:echo")
class PaysForWords(Sums):
    """Pay for the words of the question."""

    def grade(self, answer: str) -> Any:
        told = all(str(number) in answer for number in (self.task.a, self.task.b))
        return float(says(answer, self.task.answer) or told)


@fault("gameability:injection")
class NaiveJudge(Sums):
    """Take the first score that appears in the judge's prompt."""

    def grade(self, answer: str) -> Any:
        found = re.search(r"score\W+(?:of )?(\d+)", answer, re.IGNORECASE)
        if says(answer, self.task.answer):
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
class TestsBesideTheCode(Coding):
    """Run asserts in the process that imports the policy's code, and take its exit code for the verdict."""

    def verified(self) -> bool:
        test = (
            f"from solution import shift\nassert shift(3) == {self.task.a + 3}\nassert shift(40) == {self.task.a + 40}"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(self.files)!r})\n{test}"],
            capture_output=True, timeout=10, check=False,
        )  # fmt: skip
        return (self.files / "solution.py").exists() and done.returncode == 0


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
    """Pay for each step forward."""

    limits = EpisodeLimits(max_steps=14)
    reward_range = (0.0, 1.25)
    random_baseline = 1.0

    @tool
    def step(self) -> Result:
        """Go a step forward."""
        return Result("There are doors everywhere.", 0.25)

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Call("step")
        yield Call("open_listener", {"number": int(task.answer)})


@fault("gameability:early-exit")
class PaysForGivingUp(Sums):
    """Pay for a refusal."""

    def grade(self, answer: str) -> Any:
        return float(says(answer, self.task.answer) or "give up" in answer)
