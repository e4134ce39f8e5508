"""Goods are to be moved so that a shelf holds a wanted number; the tools act on a stock that belongs to the episode."""

import json

import verifiers as vf
from datasets import Dataset

GOODS = ["bolts", "nuts", "screws", "nails", "washers", "hinges", "hooks", "clamps", "brackets", "rivets"]


def count(shelf: str, stock: dict) -> str:
    """Return how many pieces a shelf holds.

    Args:
        shelf: the shelf's name.
        stock: the stock of this episode.
    """
    return f"{shelf}: {stock[shelf]}"


def move(pieces: int, source: str, target: str, stock: dict) -> str:
    """Move pieces from one shelf to another.

    Args:
        pieces: how many.
        source: the shelf to take them from.
        target: the shelf to put them on.
        stock: the stock of this episode.
    """
    if stock[source] < pieces:
        raise ValueError(f"{source} holds {stock[source]} pieces only")
    stock[source] -= pieces
    stock[target] += pieces
    return json.dumps(stock)


class StockRoom(vf.StatefulToolEnv):
    """Gives each episode a stock of its own."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.add_tool(count, args_to_skip=["stock"])
        self.add_tool(move, args_to_skip=["stock"])

    async def setup_state(self, state, **kwargs):
        """Copy the stock of the task."""
        state["stock"] = dict(state["info"]["stock"])
        await super().setup_state(state, **kwargs)

    def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        """Add the stock of the episode to a call."""
        return {**tool_args, "stock": state["stock"]}


def full_shelf(state, info) -> float:
    """Return whether the shelf holds the wanted number."""
    return 1.0 if state["stock"]["front"] == info["wanted"] else 0.0


def reported(completion, info) -> float:
    """Return whether the last message says the number; without a message it raises, which verifiers counts as 0."""
    return 1.0 if str(info["wanted"]) in completion[-1].content else 0.0


def load_environment(max_turns: int = 5) -> vf.Environment:
    """Return the environment.

    Args:
        max_turns: how many messages and calls the agent has.
    """
    rows = []
    for number, name in enumerate(GOODS):
        wanted = 4 + 3 * number
        stock = {"front": number, "back": 40 - number, "cellar": 5}
        text = f"The shelf `front` must hold {wanted} {name}. There are also `back` and `cellar`."
        info = {"stock": stock, "wanted": wanted}
        rows.append({"prompt": [{"role": "user", "content": text}], "answer": str(wanted), "info": json.dumps(info)})
    return StockRoom(
        dataset=Dataset.from_list(rows),
        rubric=vf.Rubric(funcs=[full_shelf, reported], weights=[1.0, 0.2]),
        max_turns=max_turns,
    )
