"""Ten small tasks for Aviary: settle the debts of friends with few transfers.

ludus serve aviary:examples/formats/aviary/ledger.py:LedgerTasks
"""

from __future__ import annotations

from aviary.core import Environment, Message, TaskDataset, Tool, ToolRequestMessage
from pydantic import BaseModel

TASKS: tuple[dict[str, int], ...] = (
    {"Ada": 10, "Ben": -10},
    {"Ada": 30, "Ben": -10, "Cleo": -20},
    {"Ada": 5, "Ben": 15, "Cleo": -20},
    {"Ada": -40, "Ben": 25, "Cleo": 15},
    {"Ada": 12, "Ben": -7, "Cleo": -5},
    {"Ada": 50, "Ben": -20, "Cleo": -20, "Dan": -10},
    {"Ada": 9, "Ben": 8, "Cleo": -9, "Dan": -8},
    {"Ada": 100, "Ben": -60, "Cleo": 20, "Dan": -60},
    {"Ada": 3, "Ben": 4, "Cleo": -5, "Dan": -2},
    {"Ada": 75, "Ben": -25, "Cleo": -25, "Dan": -25},
)
LONGEST = 8


class State(BaseModel):
    """Who is owed how much (or owes, if negative), and what happened so far."""

    balances: dict[str, int]
    transfers: int = 0
    reward: float = 0.0
    done: bool = False


class Ledger(Environment[State]):
    """Settle the debts of friends: each useful transfer earns 0.1, a settled ledger 1, a wrong claim costs 0.5."""

    def __init__(self, balances: dict[str, int]) -> None:
        self.start = balances

    async def reset(self) -> tuple[list[Message], list[Tool]]:
        """Return the balances and the tools."""
        self.state = State(balances=dict(self.start))

        async def transfer(payer: str, receiver: str, amount: int, state: State) -> str:
            """Pay from one friend to another.

            Args:
                payer: who pays.
                receiver: who gets the money.
                amount: how much, at least 1.
                state: the ledger.
            """
            if amount < 1 or payer == receiver or {payer, receiver} - set(state.balances):
                return "There is no such transfer."
            before = sum(map(abs, state.balances.values()))
            state.balances[payer] += amount
            state.balances[receiver] -= amount
            state.transfers += 1
            useful = sum(map(abs, state.balances.values())) < before
            state.reward = 0.1 if useful else -0.1
            return written(state.balances)

        def finish(state: State) -> str:
            """Say that the ledger is settled."""
            settled = not any(state.balances.values())
            state.reward, state.done = (1.0 if settled else -0.5), True
            return "Settled." if settled else "Debts are left."

        self.tools = [Tool.from_function(transfer), Tool.from_function(finish)]
        messages = [
            Message(role="system", content="Positive: is owed money. Negative: owes money."),
            Message(content=f"Settle this ledger, then call finish: {written(self.state.balances)}"),
        ]
        return messages, self.tools

    async def step(self, action: Message) -> tuple[list[Message], float, bool, bool]:
        """Carry out the calls of a message."""
        if not isinstance(action, ToolRequestMessage) or not action.tool_calls:
            return [Message(content="Call a tool.")], -0.25, False, False
        self.state.reward = 0.0
        messages = list(await self.exec_tool_calls(action, state=self.state))
        truncated = not self.state.done and self.state.transfers >= LONGEST
        return messages, self.state.reward, self.state.done, truncated


class LedgerTasks(TaskDataset[Ledger]):
    """Ten ledgers.

    Args:
        first: the first task.
    """

    def __init__(self, first: int = 0) -> None:
        self.tasks = TASKS[first:]

    def __len__(self) -> int:
        return len(self.tasks)

    def get_new_env_by_idx(self, idx: int) -> Ledger:
        """Return a ledger."""
        return Ledger(self.tasks[idx])


def written(balances: dict[str, int]) -> str:
    """Return balances as text."""
    return ", ".join(f"{name} {amount:+d}" for name, amount in balances.items())
