"""Environments with worlds for tests: shops whose stock and books outlive an episode."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from ludus.protocol.episodes import EpisodeLimits
from ludus.server import Result, Split, Task, ToolError, WorldEnvironment, tool


class Errand(Task):
    """Something to sell, in a shop of a town."""

    goods: str
    town: str = "here"


class Stock(BaseModel):
    """What a shop has sold."""

    sold: list[str] = []
    opened_with: int = 0


class Shop(WorldEnvironment[Errand, Stock]):
    """Sell goods, in a shop that remembers."""

    world_class = Stock
    chain_length = 2
    forkable = True
    blocking = False
    splits: ClassVar = {
        "train": Split([Errand(id=f"e{n}", goods=f"apple{n}", town="there" if n > 5 else "here") for n in range(8)]),
        "test": Split([Errand(id=f"t{n}", goods=f"pear{n}") for n in range(2)]),
    }
    reward_range = (0.0, 1.0)

    def new_world(self) -> Stock:
        return Stock(opened_with=self.rng.randint(0, 99))

    @classmethod
    def world_of(cls, task: Errand) -> str:
        return task.town

    def setup(self) -> None:
        self.luck = self.rng.randint(0, 99)

    def prompt(self) -> str:
        return f"Sell {self.task.goods}. Sold so far: {', '.join(self.world.sold) or 'nothing'}. Luck {self.luck}."

    @tool
    def sell(self, goods: str) -> str:
        """Sell goods."""
        if not goods:
            raise ToolError("There is nothing to sell.")
        self.world.sold.append(goods)
        return ", ".join(self.world.sold)

    @tool
    def look(self) -> str:
        """See what was sold."""
        return f"{self.world.opened_with}: {', '.join(self.world.sold)}"

    @tool(ends=True)
    def close_shop(self) -> Result:
        """End the day."""
        return Result("Closed.", reward=float(self.task.goods in self.world.sold))

    @tool
    def burn(self) -> str:
        """Break."""
        self.world.sold.append("ashes")
        raise RuntimeError("the shop burns")

    @tool
    async def stall(self) -> None:
        """Take longer than any limit."""
        await asyncio.Event().wait()

    @tool
    def spoil(self) -> str:
        """Leave what cannot be written."""
        self.world.sold.append(object())  # type: ignore[arg-type]
        return "spoiled"

    @tool(ends=True)
    def close_in_fire(self) -> str:
        """End the day; the first time, the server dies meanwhile."""
        self.world.sold.append("ashes")
        fire = Path("fire")
        if not fire.exists():
            fire.touch()
            os.kill(os.getpid(), 9)
        return "Closed."

    def grade(self, answer: str) -> float:
        return float(answer == self.task.goods and answer in self.world.sold)


class Short(Shop):
    """A shop for two steps."""

    limits = EpisodeLimits(max_steps=2)


class Ledger(WorldEnvironment[Errand, sqlite3.Connection]):
    """Book goods, in a database that later episodes open."""

    splits: ClassVar = {"train": Split([Errand(id=f"b{n}", goods=f"book{n}") for n in range(3)])}

    def new_world(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", check_same_thread=False)
        database.execute("CREATE TABLE booked (goods TEXT)")
        return database

    def save_world(self) -> bytes:
        self.world.commit()
        return self.world.serialize()

    def load_world(self, saved: bytes) -> sqlite3.Connection:
        self.teardown()  # a new world is saved, and loaded in its place
        database = sqlite3.connect(":memory:", check_same_thread=False)
        database.deserialize(saved)
        return database

    def teardown(self) -> None:
        if "world" in self.__dict__:
            self.world.close()

    def prompt(self) -> str:
        return f"Book {self.task.goods}."

    @tool
    def book(self, goods: str) -> str:
        """Book goods."""
        self.world.execute("INSERT INTO booked VALUES (?)", (goods,))
        rows = self.world.execute("SELECT goods FROM booked ORDER BY rowid").fetchall()
        return ", ".join(one for (one,) in rows)

    def grade(self, answer: str) -> float:
        return 1.0


class Plain(WorldEnvironment[Errand, dict[str, Any]]):
    """A world that is a dict, as without `world_class`."""

    splits: ClassVar = {"train": [Errand(id="d", goods="d")]}

    def new_world(self) -> dict[str, Any]:
        return {"visits": 0}

    def setup(self) -> None:
        self.world["visits"] += 1

    def prompt(self) -> str:
        return f"Visit {self.world['visits']}."

    def grade(self, answer: str) -> float:
        return 1.0
