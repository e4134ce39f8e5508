"""Tasks whose true pass rate is known: a coin that shows heads as often as the task says."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from ludus.client import Call
from ludus.client.policies import Conversation
from ludus.server import Environment, Result, Split, Task, tool

RATES = (0.0, 0.3, 0.45, 1.0)
STALL = "COINS_STALL"
"""With this variable set, the policy stops forever at its tenth episode."""


class Coin(Task):
    """Which coin."""

    rate: float
    difficulty: str
    size: int


def coin(index: int) -> Coin:
    rate = RATES[index % len(RATES)]
    return Coin(id=f"coin-{index}", rate=rate, difficulty="hard" if rate < 0.4 else "easy", size=index)


class Coins(Environment[Coin]):
    """Say whether it is heads."""

    splits = {
        "train": [coin(index) for index in range(20)],
        "endless": Split.generated(coin, type="train"),
        "test": [coin(index) for index in range(8)],
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"A coin of {self.task.rate}."

    @tool(ends=True)
    def say(self, heads: bool) -> Result:
        """Say it."""
        return Result("said", reward=float(heads), components={"grace": float(self.task.size % 2)})

    @tool
    def crash(self) -> str:
        """Raise."""
        raise RuntimeError("no coin")


class Broken(Coins):
    """No episode can be had."""

    def setup(self) -> None:
        raise RuntimeError("no disk")


def heads(conversation: Conversation) -> bool:
    """Whether this episode is won: the same in every run of one seed."""
    chance = random.Random(f"{conversation.seed}/{conversation.task.id}/{conversation.sample}").random()
    return chance < RATES[conversation.task.index % len(RATES)]


class Flips:
    """A policy that wins as often as the coin shows heads."""

    name = "flips"

    def __init__(self) -> None:
        self._began = 0

    async def __call__(self, conversation: Conversation) -> Call:
        self._began += 1
        if self._began == 10 and os.environ.get(STALL):
            sys.stdout.write("stalled\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        return Call("say", {"heads": heads(conversation)})


async def clumsy(conversation: Conversation) -> Call:
    """Breaks the environment in every task of rate 0.3, and otherwise flips."""
    if conversation.task.index % 4 == 1:
        return Call("crash")
    return Call("say", {"heads": heads(conversation)})


async def sometimes_clumsy(conversation: Conversation) -> Call:
    """Breaks the environment in each task's first episode."""
    if conversation.sample == 0:
        return Call("crash")
    return Call("say", {"heads": heads(conversation)})


async def buggy(conversation: Conversation) -> Call:
    """Breaks itself."""
    raise ValueError("my bug")
