"""Small environments that tests play: one that behaves, one that misbehaves in every way."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Generator, Sequence

from ludus.server import (
    Answer,
    Call,
    Candidate,
    Environment,
    EpisodeLimits,
    ImageBlock,
    Noise,
    Private,
    Result,
    Reward,
    Split,
    StepContext,
    StepResult,
    Task,
    ToolError,
    tool,
)

SECRET_ANSWER = "zq-private-zq"
SECRET_REMARK = "zq-metadata-zq"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)


class Riddle(Task):
    """A question with a hidden answer."""

    question: str
    answer: Private[str]


def riddle(index: int) -> Riddle:
    return Riddle(id=f"r-{index}", question=f"Say word {index}.", answer=f"{SECRET_ANSWER}-{index}")


class Playground(Environment[Riddle]):
    """Everything that can go right, and what an agent can do wrong."""

    version = "1.2.3"
    splits = {
        "train": [riddle(index) for index in range(12)],
        "validation": Split.lazy(riddle, 5),
        "test": [riddle(index) for index in range(100, 103)],
        "endless": Split.generated(riddle, type="train"),
    }
    forkable = True
    reward_range = (0.0, 2.0)

    def setup(self) -> None:
        self.count = 0
        self.dice = self.rng.randrange(10**9)

    def prompt(self) -> str:
        return self.task.question

    @tool
    async def add(self, amount: int = 1) -> Result:
        """Add to the counter.

        Args:
            amount: how much.
        """
        self.count += amount
        return Result(
            f"count {self.count}", reward=0.25, components={"added": amount}, metadata={"note": SECRET_REMARK}
        )

    @tool
    def roll(self) -> str:
        """A number that depends on the seed only."""
        return f"dice {self.dice}"

    @tool(inline=True)
    def say(self, text: str, title: str | None = None) -> str:
        """Say it back."""
        return text if title is None else f"{title}: {text}"

    @tool
    def look(self) -> list[str | ImageBlock]:
        """Text and an image."""
        return ["a picture", ImageBlock.of(PIXEL)]

    @tool
    def refuse(self) -> str:
        """Never allowed."""
        raise ToolError("you may not")

    @tool
    def where(self, ctx: StepContext) -> str:
        """Which step this is."""
        return f"step {ctx.step}"

    @tool(ends=True)
    def finish(self, word: str) -> Result:
        """Say the word; ends the episode."""
        return Result(
            "done", reward=Reward.of(1.0 if word == self.task.answer else 0.0, {"right": word == self.task.answer})
        )

    def grade(self, answer: str) -> Reward:
        return Reward.of(float(answer == self.task.answer), {"graded": 1.0})

    @classmethod
    def score_group(cls, task: Riddle, candidates: Sequence[Candidate]) -> list[float]:
        return [float(len(candidate.messages)) for candidate in candidates]

    @classmethod
    def oracle(cls, task: Riddle) -> Generator[Call | Answer, StepResult, None]:
        yield Call("finish", {"word": task.answer})


class Noisy(Playground):
    """A playground each of whose steps is disturbed."""

    noise = Noise(rate=1.0, kinds={"tool_error": 1.0, "lost_answer": 1.0, "truncation": 1.0}, seed=4)


class Tallying(Environment[Riddle]):
    """Its only tool returns an ordinary value, which MCP clients get as structured content."""

    splits = {"train": [riddle(index) for index in range(3)]}
    seedable = False

    def setup(self) -> None:
        self.count = 0

    def prompt(self) -> str:
        return self.task.question

    @tool(inline=True)
    def count_up(self) -> dict[str, int]:
        """Count."""
        self.count += 1
        return {"count": self.count}


class Crash(Exception):
    """What bad code raises."""


class Unspeakable(BaseException):
    """An exception that exits when it is shown."""

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class Troublesome(Environment[Riddle]):
    """Everything that environment code can do wrong."""

    splits = {"train": [riddle(0)]}
    limits = EpisodeLimits(tool_seconds=0.3)

    def prompt(self) -> str:
        return "Break it."

    @tool
    def crash(self) -> str:
        """Raise."""
        raise Crash(f"the cause {self.task.answer}")

    @tool
    async def crash_softly(self) -> str:
        """Raise in a coroutine."""
        raise Crash(f"the cause {self.task.answer}")

    @tool
    def exit(self) -> str:
        """Raise SystemExit in a thread."""
        raise SystemExit(3)

    @tool
    async def exit_here(self) -> str:
        """Raise SystemExit on the loop."""
        raise SystemExit(3)

    @tool
    async def cancel(self) -> str:
        """Raise CancelledError without having been canceled."""
        raise asyncio.CancelledError

    @tool
    def cancel_in_thread(self) -> str:
        """Raise CancelledError in a thread."""
        raise asyncio.CancelledError

    @tool
    def generator_exit(self) -> str:
        """Raise GeneratorExit in a thread."""
        raise GeneratorExit

    @tool
    async def generator_exit_here(self) -> str:
        """Raise GeneratorExit on the loop."""
        raise GeneratorExit

    @tool(inline=True)
    def base_exception(self) -> str:
        """Raise what is no Exception, on the loop."""
        raise Unspeakable

    @tool
    def unspeakable_refusal(self) -> Result:
        """Fail with an error whose text exits, for all that is known of it."""
        raise Unspeakable(1)

    @tool
    async def awaited_base_exception(self) -> str:
        """Raise what is no Exception, after a wait."""
        await asyncio.sleep(0)
        raise Unspeakable

    @tool
    def block(self) -> str:
        """Block a thread for good."""
        threading.Event().wait()
        return "never"

    @tool
    async def hang(self) -> str:
        """Never return."""
        await asyncio.Event().wait()
        return "never"

    @tool
    async def hang_stubbornly(self) -> str:
        """Never return, for any caller."""
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    @tool
    def wrong_type(self) -> object:
        """Return what may not be returned."""
        return {1, 2, 3}

    @tool
    def not_a_number(self) -> Result:
        """Reward NaN."""
        return Result("x", reward=float("nan"))

    @tool
    def infinite(self) -> Result:
        """Reward infinity."""
        return Result("x", reward=float("inf"))

    @tool
    def odd_metadata(self) -> Result:
        """Metadata that JSON cannot hold."""
        return Result("x", metadata={"what": object()})

    @tool
    def metadata_without_number(self) -> Result:
        """Metadata with NaN deep inside, and a reward that must not count."""
        return Result("x", reward=1.0, metadata={"scores": [{"mean": float("nan")}]})

    @tool
    def infinite_metadata(self) -> Result:
        """Metadata with an infinity."""
        return Result("x", reward=1.0, metadata={"size": float("inf")})


FAULTS = tuple(
    name for name in vars(Troublesome) if getattr(vars(Troublesome)[name], "__ludus_tool__", None) is not None
)
"""Every tool of `Troublesome`."""


class Counting(Environment[Riddle]):
    """Counts each execution of a step, across episodes."""

    splits = {"train": [riddle(index) for index in range(1000)]}
    runs: Counter[str] = Counter()
    torn_down: Counter[str] = Counter()

    def setup(self) -> None:
        self.name_of_episode = f"{self.seed}"

    def prompt(self) -> str:
        return "Count."

    def teardown(self) -> None:
        self.torn_down[self.name_of_episode] += 1

    @tool
    async def tick(self, mark: str) -> str:
        """Count one execution of `mark`."""
        self.runs[mark] += 1
        await asyncio.sleep(0)
        return f"{mark} {self.runs[mark]}"
