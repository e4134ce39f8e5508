# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""An ORS server made with a peer's SDK, run by the peer's own Python: `python server.py {ors|openreward} PORT`.

`Echo` serves benchmarks; `Adder` is a small game with everything that our client has to cope with.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pydantic import BaseModel

KIND, PORT = sys.argv[1], int(sys.argv[2])
os.environ.setdefault("OPENREWARD_DISABLE_UPDATE_CHECK", "1")

if KIND == "ors":
    from ors import Environment, Server, Split, TextBlock, ToolOutput, tool
else:
    from openreward.environments import Environment, Server, Split, TextBlock, ToolOutput, tool


class Text(BaseModel):
    text: str


class Numbers(BaseModel):
    a: int
    b: int


class Guess(BaseModel):
    value: int


def output(text: str, *, reward: float | None = None, finished: bool = False, metadata: Any = None) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=finished, metadata=metadata)


class Echo(Environment):
    """Echoes."""

    @classmethod
    def list_splits(cls) -> list[Any]:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"id": "only", "question": "?"}]

    async def get_prompt(self) -> list[Any]:
        return [TextBlock(text="Call echo.")]

    @tool
    async def echo(self, params: Text) -> ToolOutput:
        """Say it back."""
        return output(params.text)


class Adder(Environment):
    """Add two numbers, then hand the sum in."""

    def __init__(self, task_spec: Any = {}, secrets: Any = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        self.secrets = dict(secrets)
        self.calls = 0

    @classmethod
    def list_splits(cls) -> list[Any]:
        return [Split(name="train", type="train"), Split(name="eval", type="validation")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"id": f"{split}-{n}", "a": n, "b": n + 1} for n in range(5 if split == "train" else 2)]

    async def get_prompt(self) -> list[Any]:
        return [TextBlock(text=f"What is {self.task_spec['a']} + {self.task_spec['b']}?")]

    @tool
    async def add(self, params: Numbers) -> ToolOutput:
        """Add two numbers."""
        self.calls += 1
        return output(str(params.a + params.b), reward=0.1, metadata={"calls": self.calls})

    @tool
    async def submit(self, params: Guess) -> ToolOutput:
        """Hand in the sum."""
        right = params.value == self.task_spec["a"] + self.task_spec["b"]
        return output("right" if right else "wrong", reward=float(right), finished=True)

    @tool
    async def secret(self) -> ToolOutput:
        """Tell which secrets arrived."""
        return output(",".join(f"{name}={value}" for name, value in sorted(self.secrets.items()) if name == "token"))

    @tool
    async def long(self, params: Guess) -> ToolOutput:
        """So many characters."""
        return output("ab  c\u3000" * params.value)

    @tool
    async def broken(self) -> ToolOutput:
        """Raise."""
        raise RuntimeError("kaboom\nline two")


if __name__ == "__main__":
    Server([Adder, Echo]).run(host="127.0.0.1", port=PORT)
