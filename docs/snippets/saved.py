"""An environment whose episodes come back from snapshots."""

import json
import secrets

from ludus.server import Environment, Task, tool


class Dealer(Environment[Task]):
    """Deals numbers that no repetition deals again."""

    splits = {"train": [Task(id="table")]}
    durable = "snapshot"
    forkable = True

    def setup(self) -> None:
        self.dealt: list[int] = []

    def snapshot(self) -> bytes:
        return json.dumps(self.dealt).encode()

    def restore(self, state: bytes) -> None:
        self.dealt = json.loads(state)

    def prompt(self) -> str:
        return "Call `deal`."

    @tool
    def deal(self) -> str:
        """Deal a number."""
        self.dealt.append(secrets.randbelow(100))
        return f"So far: {self.dealt}"
