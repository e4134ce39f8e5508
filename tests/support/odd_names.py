"""An environment without a final message, whose tools have names that trainers use for themselves."""

from __future__ import annotations

from ludus.server import Environment, Result, Task, tool


class Lamp(Task):
    wanted: int


class OddNames(Environment[Lamp]):
    """Turn a lamp to a number."""

    splits = {"train": [Lamp(id=f"lamp-{wanted}", wanted=wanted) for wanted in range(4)]}

    def setup(self) -> None:
        self._at = 0

    def prompt(self) -> str:
        return f"Turn the lamp to {self.task.wanted}."

    @tool(name="reset")
    def back(self) -> str:
        """Turn the lamp to 0."""
        self._at = 0
        return "0"

    @tool(name="_turn")
    def turn(self, by: int) -> str:
        """Turn the lamp.

        Args:
            by: how far.
        """
        self._at += by
        return str(self._at)

    @tool(name="get_reward")
    def finish(self) -> Result:
        """Finish."""
        return Result("finished", reward=float(self._at == self.task.wanted), finished=True)
