"""An OpenEnv environment with tasks of its own: walk through an orchard and pick the fruit before the day ends.

ludus serve 'openenv:examples/formats/openenv/orchard.py:Orchard#python=PATH,deterministic=true'
"""

from typing import Any, Literal, Optional

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

ORCHARDS = {
    "train": [
        ("..3", ".1.", "2.."),
        ("9..", "...", "..9"),
        ("1.1", ".5.", "1.1"),
        (".7.", "3.3", ".7."),
        ("...4", ".2..", "..2.", "4..."),
        ("8888", "....", "....", "1111"),
        (".5..", "5.5.", ".5.5", "..5."),
    ],
    "test": [("2.2", "2.2", "2.2"), ("...", "6.6", "..."), ("1234", "5678", "....", "....")],
}
"""Rows of trees by split and task: a digit is the worth of a tree's fruit, a dot is a tree without fruit."""
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Walk(Action):
    """Walk to a neighboring tree and pick its fruit."""

    direction: Literal["up", "down", "left", "right"] = Field(description="Where to walk")


class View(Observation):
    """What you see after a walk."""

    rows: list[str] = Field(description="The orchard: digits are fruit, @ is you")
    steps_left: int


class Orchard(Environment[Walk, View, State]):
    """Pick as much of the fruit as the day allows; the reward is the share of all fruit that you pick."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._begin("train", 0)

    def list_splits(self) -> list[str]:
        return list(ORCHARDS)

    def num_tasks(self, split: str) -> int:
        return len(ORCHARDS[split])

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return {"id": f"{split}-{index}", "rows": list(ORCHARDS[split][index])}

    def reset(
        self,
        seed: Optional[int] = None,
        episode_id: Optional[str] = None,
        split: str = "train",
        index: int = 0,
        **kwargs: Any,
    ) -> View:
        self._begin(split, index)
        self._state = State(episode_id=episode_id)
        return self._view(0.0)

    def step(self, action: Walk, timeout_s: Optional[float] = None, **kwargs: Any) -> View:
        self._state.step_count += 1
        self._left -= 1
        down, right = MOVES[action.direction]
        row, column = self._place[0] + down, self._place[1] + right
        if 0 <= row < len(self._fruit) and 0 <= column < len(self._fruit[row]):
            self._place = (row, column)
        row, column = self._place
        picked, self._fruit[row][column] = self._fruit[row][column], 0
        return self._view(picked / self._total)

    @property
    def state(self) -> State:
        return self._state

    def _begin(self, split: str, index: int) -> None:
        rows = ORCHARDS[split][index]
        self._fruit = [[0 if char == "." else int(char) for char in row] for row in rows]
        self._total = sum(map(sum, self._fruit))
        self._place = (len(rows) // 2, len(rows[0]) // 2)
        self._fruit[self._place[0]][self._place[1]] = 0
        self._total = sum(map(sum, self._fruit))
        self._left = 2 * len(rows)
        self._state = State()

    def _view(self, reward: float) -> View:
        rows = ["".join("." if worth == 0 else str(worth) for worth in row) for row in self._fruit]
        row, column = self._place
        rows[row] = rows[row][:column] + "@" + rows[row][column + 1 :]
        done = self._left == 0 or not any(map(any, self._fruit))
        return View(rows=rows, steps_left=self._left, reward=reward, done=done, metadata={"place": [row, column]})
