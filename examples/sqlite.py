"""A stateful environment: the policy works in a shop's SQLite database, and the final state of the database is scored.

Each episode has a database of its own. The reward is the share of the required changes that were made; each other
change lowers it. SQL of a policy is untrusted: an authorizer lets it read and change rows and nothing else, such as
ATTACH, and a progress handler stops statements that run for long.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from ludus.server import (
    Answer,
    Call,
    DatabaseState,
    Environment,
    EpisodeLimits,
    FromEnvironment,
    Private,
    Result,
    Rubric,
    Split,
    StepResult,
    Task,
    ToolError,
    tool,
)

CUSTOMERS: Final = {
    "train": ("Ada", "Boris", "Chen", "Dora", "Emre", "Fay"),
    "validation": ("Gita", "Hugo", "Ines", "Jomo"),
    "test": ("Kofi", "Lena", "Milo", "Nora"),
}
ITEMS: Final = ("kettle", "lamp", "mirror", "notebook", "umbrella")
COUNTS: Final = {"train": 2_000, "validation": 100, "test": 100}
ALLOWED: Final = frozenset(
    getattr(sqlite3, f"SQLITE_{action}")
    for action in ("SELECT", "READ", "FUNCTION", "RECURSIVE", "INSERT", "UPDATE", "DELETE", "TRANSACTION")
)


class Request(Task):
    """A request of the shop's owner."""

    request: str
    level: int  # the number of conditions; `ludus run` groups its results by it
    rows: Private[int]  # the seed of the rows in the database
    solution: Private[str]  # the SQL that carries out the request


def make_orders(split: str, rows: int) -> list[tuple[int, str, str, int, str]]:
    """Return the rows of a database."""
    rng, names = Random(rows), CUSTOMERS[split]
    return [
        (number, rng.choice(names), rng.choice(ITEMS), rng.randint(1, 9), rng.choice(("open", "open", "shipped")))
        for number in rng.sample(range(100, 1000), 20)
    ]


def make_request(split: str, index: int) -> Request:
    """Return the task at an index. The levels 1, 2 and 3 take turns."""
    rng, level = Random(f"{split}/{index}"), 1 + index % 3
    rows = rng.randrange(2**40)
    # The request is about one of the open orders, so that there is something to change.
    _, name, item, quantity, _ = rng.choice([order for order in make_orders(split, rows) if order[4] == "open"])
    request, where = {
        1: (f"{name} wants all open orders cancelled.", f"customer = '{name}'"),
        2: (f"Cancel every open order of {name} for the {item}.", f"customer = '{name}' AND item = '{item}'"),
        3: (
            f"Cancel every open order of {name} for {quantity} or more of the {item}.",
            f"customer = '{name}' AND item = '{item}' AND quantity >= {quantity}",
        ),
    }[level]
    solution = f"UPDATE orders SET status = 'cancelled' WHERE status = 'open' AND {where}"
    return Request(id=f"{split}-{index}", request=request, level=level, rows=rows, solution=solution)


class Shop(Environment[Request]):
    """Carry out a request in a shop's database."""

    version = "1.0.0"
    splits = {split: Split.lazy(partial(make_request, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    rubric = Rubric(
        DatabaseState(FromEnvironment("shop"), FromEnvironment("goal"), FromEnvironment("initial"), name="changes")
    )

    def setup(self) -> None:
        """Create the initial state, the database of the policy, and the state that the request asks for."""
        self._folder = tempfile.TemporaryDirectory()
        self.initial, self.shop, self.goal = (Path(self._folder.name, name) for name in ("initial", "shop", "goal"))
        with closing(sqlite3.connect(self.initial)) as connection, connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer, item, quantity, status)")
            rows = make_orders(self.task.id.partition("-")[0], self.task.rows)
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        for copy in (self.shop, self.goal):
            shutil.copy(self.initial, copy)
        with closing(sqlite3.connect(self.goal)) as connection, connection:
            connection.execute(self.task.solution)

    def teardown(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def prompt(self) -> str:
        """Return the request and the schema."""
        return (
            f"{self.task.request}\nThe SQLite database has the table orders (id, customer, item, quantity, status); a "
            "status is 'open', 'shipped' or 'cancelled'. Change nothing else, then call `finish`."
        )

    @tool
    def execute(self, sql: str) -> str:
        """Run one SQL statement, and show at most 50 rows of its result.

        Args:
            sql: the statement, such as SELECT * FROM orders WHERE quantity > 3.
        """
        work = iter(range(200))  # in units of 10,000 instructions
        with closing(sqlite3.connect(self.shop)) as connection, connection:
            connection.set_authorizer(lambda action, *_: 0 if action in ALLOWED else sqlite3.SQLITE_DENY)
            connection.set_progress_handler(lambda: next(work, None) is None, 10_000)
            try:
                cursor = connection.execute(sql)
                rows = cursor.fetchmany(50)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                raise ToolError(f"SQLite refused the statement: {error}") from None
        if cursor.rowcount >= 0:
            return f"{cursor.rowcount} rows changed"
        return "\n".join(" | ".join(map(str, row)) for row in rows) or "no rows"

    @tool(ends=True)
    def finish(self) -> Result:
        """Say that the request is carried out. This ends the episode."""
        return Result("Thank you.", finished=True)

    @classmethod
    def oracle(cls, task: Request) -> Generator[Call | Answer, StepResult, None]:
        """Run the SQL of the solution."""
        yield Call("execute", {"sql": task.solution})
        yield Call("finish")
