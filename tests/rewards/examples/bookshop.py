"""A shop's support desk: the policy cancels an order and informs the customer."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from ludus.server import (
    Cap,
    DatabaseState,
    Efficiency,
    Environment,
    FromEnvironment,
    Gate,
    Pattern,
    Private,
    Rubric,
    TakenStep,
    TakenTurn,
    Task,
    ToolCalled,
    ToolError,
    Weighted,
    metric,
    reward,
    tool,
)


class Order(Task):
    """A customer's wish."""

    wish: str
    order: Private[int]


class Bookshop(Environment[Order]):
    """Cancel the right order, and write to the customer."""

    splits = {"train": [Order(id="tea", wish="Please cancel my tea!", order=1)]}
    rubric = Rubric(
        Cap(
            Gate(
                DatabaseState(FromEnvironment("shop"), FromEnvironment("goal"), FromEnvironment("start"), name="shop"),
                Weighted(
                    [
                        Pattern("cancelled", name="says_so", weight=3.0),
                        Pattern(r"^.{1,300}$", whole=True, name="brief"),
                        Efficiency(best=2, worst=6, name="steps"),
                    ],
                    name="service",
                ),
                at_least=0.5,
            ),
            at_most=0.2,
            when=ToolCalled("refund", name="gave_money_away"),
        ),
        name="bookshop",
        version="1",
    )

    def setup(self) -> None:
        """Three databases: as it was, as it should be, and the one that the tools change."""
        self.folder = tempfile.TemporaryDirectory()
        self.start, self.goal, self.shop = (Path(self.folder.name, f"{name}.db") for name in ("start", "goal", "shop"))
        for path in (self.start, self.goal, self.shop):
            self._sql(path, "CREATE TABLE orders (id, item)", "INSERT INTO orders VALUES (1, 'tea'), (2, 'milk')")
        self._sql(self.goal, f"DELETE FROM orders WHERE id = {self.task.order}")

    def teardown(self) -> None:
        """Remove them."""
        self.folder.cleanup()

    def prompt(self) -> str:
        """What the customer wrote."""
        return f"{self.task.wish}\nOrders: 1 tea, 2 milk. When you are done, write to the customer."

    @tool
    def cancel(self, order: int) -> str:
        """Cancel an order."""
        if order not in (1, 2):
            raise ToolError(f"There is no order {order}.")
        self._sql(self.shop, f"DELETE FROM orders WHERE id = {order}")
        return f"Order {order} is cancelled."

    @tool
    def refund(self, euros: float) -> str:
        """Pay money back."""
        return f"{euros:g} euros are on their way."

    @reward(weight=-0.1)
    def shouting(self, answer: str) -> bool:
        """Capitals only."""
        return answer.isupper()

    @reward(when="step", weight=-0.01)
    def clumsy(self, step: TakenStep, steps: tuple[TakenStep, ...]) -> bool:
        """The same call twice in a row: a process reward, given with the step."""
        return len(steps) > 1 and (steps[-2].tool, steps[-2].arguments) == (step.tool, step.arguments)

    @reward(when="turn", weight=-0.05)
    def rambling(self, turn: TakenTurn) -> bool:
        """More than a paragraph next to its calls: a process reward of the whole turn."""
        return len(turn.text) > 500

    @metric
    def words(self, answer: str) -> int:
        """How long the letter is; reported, and not counted."""
        return len(answer.split())

    @staticmethod
    def _sql(path: Path, *statements: str) -> None:
        connection = sqlite3.connect(path)
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
