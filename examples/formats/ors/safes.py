"""An environment for ors-sdk: find the code of a safe from the sounds that it makes.

    ludus serve 'ors:examples/formats/ors/safes.py:Safes#python=PATH,deterministic=true'
"""

from collections.abc import Sequence

from ors import Environment, Split, TextBlock, ToolOutput, Toolset, tool
from pydantic import BaseModel, Field

CODES = {
    "train": ["042", "777", "190", "505", "318", "264", "981"],
    "test": ["650", "123", "409"],
}
"""The codes of the safes by split."""


class Code(BaseModel):
    """Three digits."""

    code: str = Field(pattern=r"^\d{3}$", description="Three digits, such as 123")


class Note(BaseModel):
    """A line of text."""

    text: str


class Notebook(Toolset):
    """Paper and a pen."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self.lines: list[str] = []

    @tool
    def write(self, note: Note) -> ToolOutput:
        """Write a line into the notebook."""
        self.lines.append(note.text)
        return ToolOutput(blocks=[TextBlock(text=f"{len(self.lines)} lines")])

    @tool
    def read(self) -> ToolOutput:
        """Read the notebook."""
        return ToolOutput(blocks=[TextBlock(text=line) for line in self.lines] or [TextBlock(text="It is empty.")])


class Safes(Environment):
    """Open a safe within six attempts; each attempt shows how many digits are right and in place."""

    toolsets = [Notebook]

    @classmethod
    def list_splits(cls) -> Sequence[Split]:
        return [Split(name="train", type="train"), Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{"id": f"{split}-{number}", "code": code} for number, code in enumerate(CODES[split])]

    def setup(self) -> None:
        self.attempts = 0
        self.best = 0

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="The safe has a code of three digits. You have six attempts.")]

    @tool
    async def attempt(self, given: Code) -> ToolOutput:
        """Try a code; a code with more digits in place than before earns a part of the reward."""
        self.attempts += 1
        right = sum(one == other for one, other in zip(given.code, self.task_spec["code"], strict=True))
        reward = max(0, right - self.best) / 3
        self.best = max(self.best, right)
        finished = right == 3 or self.attempts == 6
        text = "It opens." if right == 3 else f"{right} clicks."
        return ToolOutput(
            blocks=[TextBlock(text=text)], reward=reward, finished=finished, metadata={"attempt": self.attempts}
        )
