"""Ten small tasks for CUBE: pile up crates in order, with a crane that lifts one at a time.

ludus serve 'cube:examples/formats/cube/crates.py:CratesConfig#python=PATH'
"""

from typing import Any, ClassVar, Literal

from cube.benchmark import Benchmark, BenchmarkConfig, BenchmarkMetadata
from cube.container import Container
from cube.core import Observation
from cube.task import RuntimeContext, Task, TaskConfig, TaskMetadata
from cube.tool import Tool, ToolConfig, tool_action
from PIL import Image, ImageDraw

Place = Literal["left", "middle", "right"]
PLACES: tuple[Place, ...] = ("left", "middle", "right")
YARDS = {
    "two-crates": ["BA", "", ""],
    "two-apart": ["A", "B", ""],
    "three-crates": ["CBA", "", ""],
    "three-apart": ["A", "B", "C"],
    "three-mixed": ["BCA", "", ""],
    "four-crates": ["AC", "DB", ""],
    "four-mixed": ["CADB", "", ""],
    "four-apart": ["D", "A", "CB"],
    "five-crates": ["AEC", "BD", ""],
    "six-crates": ["FACE", "BD", ""],
}
"""The crates of each task by place, from the ground up. The right pile must become A, B, C, … from the ground up."""
TEST = ("four-apart", "five-crates", "six-crates")


class YardMetadata(TaskMetadata):
    """A task with the crates at its start."""

    piles: list[str]


class Crane(Tool):
    """A crane over three piles."""

    def __init__(self) -> None:
        self.piles: dict[Place, str] = {}

    @tool_action
    def move(self, source: Place, target: Place) -> str:
        """Lift the top crate of one pile onto another.

        Args:
            source: The pile that the crate is on.
            target: The pile that it is put on.
        """
        if not self.piles[source]:
            raise ValueError(f"there is no crate at the {source}")
        crate = self.piles[source][-1]
        self.piles[source] = self.piles[source][:-1]
        self.piles[target] += crate
        return self.seen()

    @tool_action
    def look(self) -> dict[str, str]:
        """List the crates of each pile from the ground up."""
        return dict(self.piles)

    @tool_action
    def photograph(self) -> Image.Image:
        """Take a picture of the yard."""
        picture = Image.new("RGB", (60, 70), "white")
        for column, pile in enumerate(self.piles.values()):
            for row, crate in enumerate(pile):
                shade = 60 + 25 * (ord(crate) - ord("A"))
                ImageDraw.Draw(picture).rectangle(
                    [20 * column, 60 - 10 * row, 20 * column + 15, 68 - 10 * row], fill=(shade, 80, 255 - shade)
                )
        return picture

    def seen(self) -> str:
        """Return the piles as text."""
        return ", ".join(f"{place}: {pile or 'empty'}" for place, pile in self.piles.items())


class CraneConfig(ToolConfig):
    """The crane of a task."""

    def make(self, container: Container | None = None) -> Crane:
        return Crane()


class Yard(Task[YardMetadata, Crane]):
    """A yard that is in order when the right pile has all crates, with A on the ground."""

    validate_per_step: bool = True

    def reset(self) -> tuple[Observation, dict[str, Any]]:
        self.tool.piles = dict(zip(PLACES, self.metadata.piles, strict=True))
        text = f"Pile up all crates at the right, with A on the ground, then B, and so on. {self.tool.seen()}"
        return Observation.from_text(text), {"crates": len(self.goal)}

    @property
    def goal(self) -> str:
        """The pile that is wanted."""
        return "".join(sorted("".join(self.metadata.piles)))

    def evaluate(self, obs: Observation | None = None) -> tuple[float, dict[str, Any]]:
        """Return the part of the goal that is piled up."""
        right = self.tool.piles["right"]
        placed = 0
        while placed < len(right) and right[: placed + 1] == self.goal[: placed + 1]:
            placed += 1
        return placed / len(self.goal), {"placed": placed}

    def finished(self, obs: Observation | None = None) -> bool:
        return self.tool.piles["right"] == self.goal


class YardConfig(TaskConfig[YardMetadata]):
    """Makes a yard."""

    def make(self, runtime_context: RuntimeContext | None = None) -> Yard:
        return Yard(
            metadata=self.metadata, tool_config=self.tool_config or CraneConfig(), runtime_context=runtime_context
        )


class Crates(Benchmark["CratesConfig"]):
    """Nothing is shared between tasks."""

    def _setup(self) -> None:
        pass

    def close(self) -> None:
        pass


class CratesConfig(BenchmarkConfig[YardMetadata]):
    """Ten yards."""

    benchmark_metadata: ClassVar[BenchmarkMetadata] = BenchmarkMetadata(
        name="crates",
        version="1",
        description="Pile up crates in order with a crane; the reward is the part that is piled up.",
        num_tasks=len(YARDS),
        named_subsets={"small": ("id", "t*-*")},
    )
    task_metadata: ClassVar[dict[str, TaskMetadata]] = {
        name: YardMetadata(id=name, split="test" if name in TEST else "train", piles=piles)
        for name, piles in YARDS.items()
    }
    task_config_class: ClassVar[type[TaskConfig]] = YardConfig
    benchmark_class: ClassVar[type[Benchmark]] = Crates
