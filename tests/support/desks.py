"""A desk with tools that answer in several lines, and short words to play it with."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, ClassVar

from ludus.protocol import episodes as e
from ludus.server import Environment, EpisodeHost, Private, Result, Task, ToolError, tool
from ludus.server.auth.principal import Principal
from ludus.server.rewards import Check, Efficiency, NoErrors, TakenStep, check, reward

OPEN = Principal.open()
SECRET = "zq-private-zq"
PAGE = "\n".join(f"line {number}: {'abcdefgh' * 3}" for number in range(12))
KEYS = itertools.count()


class Order(Task):
    """What a customer wants."""

    wish: str
    answer: Private[str]


class Desk(Environment[Order]):
    """Read the page, buy something, write to the customer."""

    splits: ClassVar[Any] = {"train": [Order(id=f"o{n}", wish=f"Wish {n}", answer=SECRET) for n in range(4)]}
    forkable = True
    calls: Counter[str] = Counter()

    def setup(self) -> None:
        self.bought = 0

    def prompt(self) -> str:
        return self.task.wish

    @tool(inline=True)
    def page(self) -> Result:
        """Read the page."""
        self.calls["page"] += 1
        return Result(PAGE, reward=0.25, components={"read": 1.0}, metadata={"answer": self.task.answer})

    @tool(inline=True)
    def buy(self, amount: int = 1) -> str:
        """Buy something."""
        if amount > 9:
            raise ToolError("too many")
        self.calls["buy"] += 1
        self.bought += amount
        return f"bought {self.bought}"

    @tool(ends=True, inline=True)
    def stop(self) -> Result:
        """Stop."""
        return Result(PAGE, reward=1.0)


def whole(attempt: Any) -> bool:
    """Whether every page that was read is whole."""
    return all(step.text == PAGE for step in attempt.steps if step.tool == "page")


CHECKS: list[Check] = [check(whole, name="whole"), NoErrors(name="clean"), Efficiency(2, 6, name="quick")]


class Graded(Desk):
    """A desk whose rubric looks at the way, at the end."""

    name = "graded"
    rubric = CHECKS


class Judged(Graded):
    """A desk that looks at each step, too."""

    name = "judged"

    @reward(when="step", weight=0.5)
    def reading(self, step: TakenStep) -> bool:
        """A process reward that reads what the tool said."""
        return step.text == PAGE


class Player:
    """One episode on a host."""

    def __init__(self, host: EpisodeHost, started: e.StartedEpisode, group: str) -> None:
        self.host = host
        self.id = started.episode
        self.seed = started.seed
        self.group = group
        self.number = 0

    async def call(self, tool: str, /, **arguments: Any) -> e.StepResult:
        """The next step."""
        self.number += 1
        return await self.again(tool, **arguments)

    async def again(self, tool: str, /, **arguments: Any) -> e.StepResult:
        """The last step once more, under its key."""
        params = e.StepParams(
            episode=self.id, step=self.number, tool=tool, arguments=arguments, key=f"{self.id}/{self.number}"
        )
        return await self.host.step(params, OPEN)

    async def grade(self, answer: str = "done") -> e.GradeResult:
        return await self.host.grade(e.GradeParams(episode=self.id, answer=answer, key="grade"), OPEN)

    async def rewards(self) -> e.RewardsResult:
        return await self.host.rewards(e.RewardsParams(episode=self.id), OPEN)

    async def fork(self) -> Player:
        result = await self.host.fork(e.ForkParams(episode=self.id, key=f"fork-{next(KEYS)}"), OPEN)
        player = Player(self.host, result.episode, result.group)
        player.number = self.number
        return player
