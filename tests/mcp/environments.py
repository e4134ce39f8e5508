"""An environment whose secrets are easy to find when they leak."""

from __future__ import annotations

from typing import Any

from ludus.server import Environment, ImageBlock, Private, Result, Reward, Split, Task, ToolError, tool

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SECRET = "PRIVATE-9f3b"
"""Begins everything that no player may see."""
REWARD = 0.73128
"""A reward that nothing else looks like."""


class VaultTask(Task):
    clue: str
    combination: Private[str]


def _task(index: int) -> VaultTask:
    return VaultTask(id=f"{SECRET}-task-{index}", clue=f"clue {index}", combination=f"{SECRET}-combination-{index}")


class Vault(Environment[VaultTask]):
    """Open the vault."""

    blocking = False
    splits = {"train": Split.lazy(make=_task, count=50), "test": Split.lazy(make=lambda i: _task(i + 50), count=5)}

    def prompt(self) -> str:
        return f"Open the vault. Hint: {self.task.clue}."

    @tool
    def look(self) -> Result:
        """Look around."""
        return Result(
            ["You see a vault.", ImageBlock(data=PNG, mime_type="image/png")],
            reward=Reward.of(REWARD, {f"{SECRET}-component": REWARD}),
            metadata={f"{SECRET}-key": f"{SECRET}-metadata", "nested": [{"reward": REWARD}]},
        )

    @tool
    def dial(self, number: int, times: int = 1) -> Result:
        """Turn the dial.

        Args:
            number: where to.
            times: how often.
        """
        if number < 0:
            raise ToolError("the dial does not go below 0")
        return Result("click " * min(times, 3), reward=-REWARD)

    @tool
    def kick(self) -> str:
        """Kick it."""
        raise RuntimeError(f"{SECRET}-exception for {self.task.combination}")

    @tool
    def peek(self) -> Any:
        """Return what no tool may return."""
        return {"combination": self.task.combination}

    @tool(ends=True)
    def open(self, combination: str) -> Result:
        """Open the vault."""
        return Result("It opens.", reward=REWARD)

    def grade(self, answer: str) -> Reward:
        if answer == "boom":
            raise RuntimeError(f"{SECRET}-exception")
        return Reward.of(REWARD, {f"{SECRET}-component": REWARD}, reason=f"{SECRET}-reason")
