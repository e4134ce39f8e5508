"""An environment for openreward whose answer is the agent's final message: a question about a museum's rooms.

    ludus serve 'ors:examples/formats/ors/museum.py:Museum#python=PATH,deterministic=true'
"""

from collections.abc import Sequence

from openreward.environments import Environment, Split, TextBlock, ToolOutput, terminal, tool
from pydantic import BaseModel

ROOMS = {
    "north": {"vase": 2, "mask": 5},
    "south": {"vase": 4, "coin": 31},
    "east": {"mask": 1, "coin": 9, "fan": 6},
    "west": {"fan": 3, "bell": 8},
    "hall": {"bell": 1, "vase": 1},
}
QUESTIONS = [
    ("How many vases does the museum have?", "7"),
    ("How many masks does the museum have?", "6"),
    ("How many coins does the museum have?", "40"),
    ("How many fans does the museum have?", "9"),
    ("How many bells does the museum have?", "9"),
    ("Which room has the most coins?", "south"),
    ("Which room has both masks and coins?", "east"),
    ("Which room has both bells and vases?", "hall"),
    ("How many rooms have vases?", "3"),
    ("How many objects are in the west room?", "11"),
]


class Room(BaseModel):
    """A room of the museum."""

    name: str


class Reply(BaseModel):
    """The answer."""

    text: str


class Museum(Environment):
    """Answer a question after a walk through the museum; only the exact answer earns the reward."""

    @classmethod
    def list_splits(cls) -> Sequence[Split]:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{"question": question, "answer": answer} for question, answer in QUESTIONS]

    def get_prompt(self) -> list[TextBlock]:
        rooms = ", ".join(ROOMS)
        return [TextBlock(text=self.task_spec["question"]), TextBlock(text=f"The rooms are: {rooms}. Reply in one word.")]

    @tool
    async def visit(self, room: Room) -> ToolOutput:
        """List what a room shows."""
        if room.name not in ROOMS:
            return ToolOutput(blocks=[TextBlock(text="There is no such room.")], reward=-0.1)
        text = ", ".join(f"{count} of {thing}" for thing, count in ROOMS[room.name].items())
        return ToolOutput(blocks=[TextBlock(text=text)])

    @terminal
    @tool
    async def submit(self, reply: Reply) -> ToolOutput:
        """Check the answer."""
        right = reply.text.strip().strip(".").lower() == self.task_spec["answer"]
        return ToolOutput(blocks=[TextBlock(text="noted")], reward=float(right), finished=True)
