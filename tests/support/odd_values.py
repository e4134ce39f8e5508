"""An environment that says what no wire can carry: half a surrogate pair, wherever it may put text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AllowInfNan, BaseModel, BeforeValidator, ConfigDict, Field

from ludus.protocol.rewards import Component
from ludus.server import (
    Candidate,
    Environment,
    ImageBlock,
    Message,
    Reward,
    Split,
    Task,
    TextBlock,
    ToolError,
    tool,
)
from ludus.server import Result as ToolResult

HALF = "\udcff"
"""What `b"\\xff".decode(errors="surrogateescape")` is."""
WHOLE = "\ufffd"
"""What arrives in its place."""


class OddTask(Task):
    """A task with odd text."""

    question: str
    notes: dict[str, str]


def odd_task(index: int) -> OddTask:
    return OddTask(id=f"odd-{index}", question=f"a{HALF}b", notes={f"k{HALF}": f"v{HALF}"})


class Odd(Environment[OddTask]):
    """Odd text."""

    version = f"1{HALF}"
    splits = {"train": [odd_task(0)], "lazy": Split.lazy(odd_task, 3, type="train")}
    heard: Counter[str] = Counter()

    def prompt(self) -> list[Message]:
        return [Message(role="user", content=(TextBlock(text=f"prompt {HALF}"),))]

    @tool
    def show(self) -> str:
        """Show text."""
        return f"a{HALF}b"

    @tool
    def show_blocks(self) -> list[str | TextBlock | ImageBlock]:
        """Show blocks."""
        return [f"one {HALF}", TextBlock(text=f"two {HALF}"), ImageBlock.of(b"x", f"image/{HALF}")]

    @tool
    def remark(self) -> ToolResult:
        return ToolResult(
            f"seen {HALF}",
            reward=Reward(
                value=0.5,
                components={f"c{HALF}": Component(value=0.5, evidence=f"e{HALF}")},
                missing={f"m{HALF}": f"why {HALF}"},
                reason=f"r{HALF}",
            ),
            metadata={f"k{HALF}": [f"v{HALF}", {"in": (f"w{HALF}",)}]},
        )

    remark.__doc__ = f"Remark {HALF}."

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError(f"no {HALF}")

    @tool
    def hear(self, text: str, more: Any = None) -> str:
        """Take text."""
        self.heard[text] += 1
        return f"heard {len(text)}"

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError(f"cause {HALF}")

    def grade(self, answer: str) -> Reward:
        return Reward.of(1.0, {f"g{HALF}": Component(value=1.0, evidence=f"e{HALF}")}, reason=f"r{HALF}")

    @classmethod
    def score_group(cls, task: OddTask, candidates: Sequence[Candidate]) -> list[Reward]:
        return [Reward.of(1.0, reason=f"s{HALF}") for _ in candidates]


class Loose(BaseModel):
    """A model that says nothing about its numbers."""

    value: float = 0.0


class Open(BaseModel):
    """A model that allows every number."""

    model_config = ConfigDict(allow_inf_nan=True)
    value: float = 0.0


@dataclass
class Pair:
    """A plain dataclass."""

    left: float
    right: float = 0.0


class Guess(Environment[Task]):
    """Pays for a number near the answer, as authors write it."""

    splits = {"train": [Task(id="guess")]}
    got: list[Any] = []

    def prompt(self) -> str:
        return "Guess the number."

    def pay(self, value: Any) -> ToolResult:
        self.got.append(value)
        return ToolResult(repr(value), reward=0.0 if abs(_number(value) - 3.5) > 0.1 else 1.0)

    @tool
    def plain(self, x: float) -> ToolResult:
        """A float."""
        return self.pay(x)

    @tool
    def optional(self, x: float | int | None = None) -> ToolResult:
        """A union."""
        return self.pay(x)

    @tool
    def anything(self, x: Any) -> ToolResult:
        """Any JSON."""
        return self.pay(x)

    @tool
    def listed(self, x: list[float]) -> ToolResult:
        """A list."""
        return self.pay(x)

    @tool
    def mapped(self, x: dict[str, Any]) -> ToolResult:
        """A mapping."""
        return self.pay(x)

    @tool
    def nested(self, x: Loose, other: int = 0) -> ToolResult:
        """A model among others."""
        return self.pay(x)

    @tool
    def whole(self, x: Loose) -> ToolResult:
        """A model that is the whole schema."""
        return self.pay(x)

    @tool
    def paired(self, x: Pair, other: int = 0) -> ToolResult:
        """A dataclass."""
        return self.pay(x)

    @tool
    def decimal(self, x: Decimal) -> ToolResult:
        """A decimal."""
        return self.pay(x)

    @tool
    def converted(self, x: Annotated[Any, BeforeValidator(float)]) -> ToolResult:
        """A conversion of the author's."""
        return self.pay(x)

    @tool
    def open_model(self, x: Open, other: int = 0) -> ToolResult:
        """A model that allows every number."""
        return self.pay(x)

    @tool
    def allowed(self, x: Annotated[float, AllowInfNan()], limit: float = math.inf) -> ToolResult:
        """Any float, which the type says."""
        return self.pay(x)

    @tool
    def bounded(self, x: Annotated[float, Field(ge=-math.inf)] = math.nan) -> ToolResult:
        """A float with odd limits and an odd default."""
        return self.pay(x)

    def grade(self, answer: str) -> float:
        return 1.0


def _number(value: Any) -> float:
    while not isinstance(value, float | int | Decimal):
        if isinstance(value, dict):
            value = next(iter(value.values()))
        elif isinstance(value, list):
            value = value[0]
        else:
            value = getattr(value, "value", None) if hasattr(value, "value") else value.left
    return float(value)
