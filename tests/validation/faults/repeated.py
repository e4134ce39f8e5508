"""Faults that show when an episode is played again, next to others, or very often.

Each class has one fault, which the finding named by `fault` must report.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sound import Compared, Seeded, Sums, planting, says

from ludus.server import (
    Answer,
    Call,
    Candidate,
    EpisodeLimits,
    StepResult,
    tool,
)

FAULTS, fault = planting()


# ── the same again ────────────────────────────────────────────────────────────────────────────────────────────────────


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
        return 1.0 if says(answer, self.task.answer) else random.random() / 100


@fault("verifier-determinism")
class TiredVerifier(Sums):
    """Grade by how much was graded before."""

    graded: ClassVar[list[str]] = []

    def grade(self, answer: str) -> Any:
        self.graded.append(answer)
        return 1.0 if says(answer, self.task.answer) else 0.001 * (len(self.graded) % 7)


@fault("group-order")
class FirstWins(Compared):
    """Prefer the one named first."""

    @classmethod
    def score_group(cls, task: Any, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [1.0 - place / 10 for place in range(len(candidates))]


# ── what breaks, and what stays ───────────────────────────────────────────────────────────────────────────────────────


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
        return 1.0 if says(answer, self.task.answer) else float("nan")


@fault("crash")
class ReadsNumbersOfAnyLength(Sums):
    """Read digits as a number, which Python refuses to do with thousands of them."""

    def grade(self, answer: str) -> Any:
        return float(answer.strip().isdecimal() and int(answer) == int(self.task.answer))


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
    async def ponder(self) -> str:
        """Ponder."""
        await asyncio.sleep(0.6)
        return "Pondered."


@fault("blocking")
class HoldsEverybodyUp(Sums):
    """Hold the event loop."""

    limits = EpisodeLimits(max_steps=2)

    @tool
    async def ponder(self) -> str:
        """Ponder."""
        time.sleep(0.15)  # noqa: ASYNC251 (this is the fault)
        return "Pondered."

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Call("ponder")
        yield Answer(task.answer)


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
