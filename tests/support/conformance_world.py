"""The environments that the conformance tests are played against."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kept_world import Shop

from ludus.server import (
    Candidate,
    Environment,
    EpisodeLimits,
    ImageBlock,
    InfrastructureFailed,
    Private,
    Result,
    Reward,
    Split,
    StepContext,
    Task,
    ToolError,
    tool,
)

SECRET = "zq-secret-zq"
"""Appears in private fields, metadata, components and exceptions; must be seen where it may and nowhere else."""

RUNS: Counter[str] = Counter()
"""How often each marked thing was really done."""

GATES: dict[str, asyncio.Event] = {}
"""Tools that wait until a test lets them go."""

SECRETS_SEEN: list[dict[str, str]] = []
"""The secrets that each episode of the workshop was given."""


class Piece(Task):
    """A task with a hidden answer."""

    question: str
    answer: Private[str]


def piece(index: int) -> Piece:
    """The task of an index."""
    return Piece(id=f"p-{index}", question=f"Question {index}?", answer=f"{SECRET}-{index}")


class Workshop(Environment[Piece]):
    """Everything that an environment can do."""

    version = "1.0.0"
    splits = {
        "train": [piece(index) for index in range(7)],
        "validation": Split.lazy(piece, 3),
        "test": [piece(index) for index in range(100, 103)],
        "endless": Split.generated(piece, type="train"),
    }
    forkable = True
    reward_range = (0.0, 5.0)

    def setup(self) -> None:
        """Remember what was given."""
        self.log: list[str] = []
        SECRETS_SEEN.append(dict(self.secrets))
        RUNS["setup"] += 1

    def teardown(self) -> None:
        """Count."""
        RUNS["teardown"] += 1

    def prompt(self) -> str:
        """The question."""
        return self.task.question

    @tool(inline=True)
    def earn(self, amount: float = 1.0, mark: str = "earn") -> Result:
        """Earn a reward.

        Args:
            amount: how much.
            mark: what to count.
        """
        RUNS[mark] += 1
        self.log.append(mark)
        return Result(
            f"done {len(self.log)}", reward=amount, components={f"{SECRET}-part": amount}, metadata={"note": SECRET}
        )

    @tool(inline=True)
    def judge(self) -> Result:
        """Earn what could not be judged."""
        return Result("judged", reward=Reward.unscored("the judge gave no verdict"))

    @tool(inline=True)
    def say(self, text: str) -> str:
        """Say it back."""
        RUNS["say"] += 1
        return text

    @tool(inline=True)
    def roll(self) -> str:
        """A number that depends on the seed alone."""
        return str(self.rng.randrange(10**12))

    @tool(inline=True)
    def look(self) -> list[str | ImageBlock]:
        """Text and an image."""
        return ["look", ImageBlock.of(b"\x89PNG\r\n\x1a\n")]

    @tool
    async def wait(self, gate: str) -> Result:
        """Wait until a gate opens."""
        RUNS[f"begin {gate}"] += 1
        await GATES.setdefault(gate, asyncio.Event()).wait()
        RUNS[f"end {gate}"] += 1
        return Result(gate, reward=1.0)

    @tool(concurrent=True)
    async def overlap(self, gate: str) -> str:
        """Wait, together with others."""
        RUNS[f"begin {gate}"] += 1
        await GATES.setdefault(gate, asyncio.Event()).wait()
        return gate

    @tool(inline=True)
    def refuse(self) -> str:
        """Not allowed."""
        RUNS["refuse"] += 1
        raise ToolError("you may not do that here")

    @tool(inline=True)
    def which(self, ctx: StepContext) -> str:
        """The step's number."""
        return str(ctx.step)

    @tool(ends=True, inline=True)
    def finish(self, word: str) -> Result:
        """Say the word and end the episode."""
        return Result("finished", reward=float(word == self.task.answer))

    async def grade(self, answer: str) -> Reward:
        """Whether the answer is right; one that names a gate waits until it opens."""
        RUNS["grade"] += 1
        if answer.startswith("wait for "):
            await GATES.setdefault(answer.removeprefix("wait for "), asyncio.Event()).wait()
        return Reward.of(float(answer == self.task.answer), {"right": float(answer == self.task.answer)})

    @classmethod
    def score_group(cls, task: Piece, candidates: Sequence[Candidate]) -> list[float]:
        """The more messages the better; SECRET breaks it."""
        RUNS["score_group"] += 1
        if any("broken" in candidate.metadata for candidate in candidates):
            raise RuntimeError(SECRET)
        return [float(len(candidate.messages)) for candidate in candidates]


class Plain(Environment[Piece]):
    """Nothing that an environment may leave out."""

    splits = {"train": [piece(0)]}
    seedable = False

    def prompt(self) -> str:
        """A question."""
        return "Plain."

    @tool(inline=True)
    def act(self) -> Result:
        """Do it."""
        return Result("acted", reward=0.5)


class Faulty(Environment[Piece]):
    """Everything that an environment can do wrong."""

    splits = {"train": [piece(0), piece(1), piece(2)]}
    limits = EpisodeLimits(tool_seconds=0.2)

    def setup(self) -> None:
        """Fail for one task, and for every second episode of another."""
        RUNS["faulty setup"] += 1
        if self.task.id == "p-1":
            raise RuntimeError(f"setup {self.task.answer}")
        if self.task.id == "p-2" and RUNS["faulty setup"] % 2 == 0:
            raise RuntimeError("every second one")

    def teardown(self) -> None:
        """Count."""
        RUNS["faulty teardown"] += 1

    def prompt(self) -> str:
        """A question."""
        return "Faulty."

    @tool
    def crash(self) -> str:
        """Raise."""
        RUNS["crash"] += 1
        raise RuntimeError(f"the cause {self.task.answer}")

    @tool
    async def hang(self) -> str:
        """Never come back."""
        await asyncio.Event().wait()
        return "never"

    @tool
    def wrong_type(self) -> Any:
        """Return what may not be returned."""
        return {1, 2}

    @tool
    def not_a_number(self) -> Result:
        """NaN."""
        return Result("x", reward=float("nan"))

    @tool
    def infinite(self) -> Result:
        """Infinity."""
        return Result("x", reward=float("inf"))

    @tool
    def below(self) -> str:
        """What the environment runs on breaks."""
        raise InfrastructureFailed(f"the sandbox is gone {self.task.answer}")

    @tool
    def block(self) -> str:
        """Block a thread for a while."""
        time.sleep(0.5)
        return "late"

    @tool(inline=True)
    def fine(self) -> Result:
        """Nothing wrong."""
        return Result("fine", reward=1.0)


WORLD = (Workshop, Plain, Faulty, Shop)
