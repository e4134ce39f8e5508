"""Plant seeds today, and harvest tomorrow what was planted."""

from ludus.server import Result, Split, Task, ToolError, WorldEnvironment, tool


class Day(Task):
    number: int


class Garden(WorldEnvironment[Day, dict[str, int]]):
    """Grow carrots over two days."""

    chain_length = 2
    splits = {"train": Split([Day(id=f"day-{n}", number=n % 2) for n in range(10)])}

    def new_world(self) -> dict[str, int]:
        return {"planted": 0}

    def prompt(self) -> str:
        return ["Plant up to three carrots.", "Harvest all carrots."][self.task.number]

    @tool
    def plant(self) -> str:
        """Plant a carrot."""
        if self.task.number or self.world["planted"] == 3:
            raise ToolError("There is no room, or no seed.")
        self.world["planted"] += 1
        return f"{self.world['planted']} planted."

    @tool(ends=True)
    def harvest(self) -> Result:
        """Pull out all carrots."""
        carrots, self.world["planted"] = self.world["planted"], 0
        return Result(f"{carrots} carrots.", reward=carrots / 3 if self.task.number else 0.0)

    def grade(self, answer: str) -> float:
        return 0.0
