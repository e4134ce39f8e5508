"""Halving: a tool that says whether a number is too low or too high finds the right one in a few calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.protocol.actions import Action, Call
from ludus.protocol.errors import LudusError
from ludus.validation.core.target import ValidationTarget
from ludus.validation.shortcuts.grid_search import step_limit
from ludus.validation.shortcuts.memory import Memory, Remembered
from ludus.validation.shortcuts.search import PROBED, reply
from ludus.validation.shortcuts.submission import final_text, with_final_text

DISTANCES: Final = (1, 7, 60)
"""How far from the right number the wrong ones lie of which the replies are learned."""


@dataclass(frozen=True, slots=True)
class Halving:
    """Halves the range of the numbers that solve training tasks."""

    target: ValidationTarget
    tool: str
    argument: str
    low: frozenset[str]
    """What the tool says of numbers that are too low."""
    high: frozenset[str]
    least: int
    most: int
    end: Action

    def applies(self, task: Remembered) -> bool:
        """Return that it can be tried on every task."""
        return True

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Halve the range in an episode, and return the calls with the number that is left."""
        least, greatest = self.least, self.most
        actions: list[Action] = []
        async with self.target.episode(task.row) as episode:
            while least <= greatest and len(actions) < step_limit(self.target) - 1:
                middle = (least + greatest) // 2
                call = Call(self.tool, {self.argument: middle})
                actions.append(call)
                result = await episode.call(call)
                if result.end_reason is not None:
                    return actions
                text = reply(result, middle)
                if text in self.low:
                    least = middle + 1
                elif text in self.high:
                    greatest = middle - 1
                else:
                    return [*actions, with_final_text(self.end, str(middle))]
        return [*actions, with_final_text(self.end, str(least))]


async def halving(target: ValidationTarget, memory: Memory) -> Halving | None:
    """Return the search by halves; None if answers are no whole numbers, or no tool says on which side they lie."""
    solutions = [(row, actions) for row, actions in await memory.solutions() if final_text(actions) is not None]
    numbers = [int(text) for _, actions in solutions if (text := final_text(actions) or "").lstrip("-").isdigit()]
    if len(numbers) < len(solutions) or len({*numbers}) < PROBED:
        return None
    for tool in target.info.tools:
        names = [name for name, schema in tool.input_schema.get("properties", {}).items()
                 if isinstance(schema, dict) and schema.get("type") in ("integer", "number")]  # fmt: skip
        if len(names) != 1 or not {*tool.input_schema.get("required", ())} <= {*names}:
            continue
        sides = await _sides(target, tool.name, names[0], solutions)
        if sides is not None:
            spread = max(numbers) - min(numbers)
            return Halving(target, tool.name, names[0], *sides, min(numbers) - spread // 4, max(numbers) + spread // 4,
                           solutions[0][1][-1])  # fmt: skip
    return None


async def _sides(
    target: ValidationTarget, tool: str, argument: str, solutions: Sequence[tuple[Any, Sequence[Action]]]
) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return what a tool says of numbers below and above the right one; None if it does not tell them apart."""
    low: set[str] = set()
    high: set[str] = set()
    try:
        for row, actions in solutions[:PROBED]:
            right = int(final_text(actions) or "0")
            async with target.episode(row) as episode:
                for distance in DISTANCES:
                    for number, side in ((right - distance, low), (right + distance, high)):
                        call = Call(tool, {argument: number})
                        result = await episode.call(call)
                        if result.end_reason is not None:
                            return None
                        if result.error is None:
                            side.add(reply(result, number))
    except LudusError:
        return None
    return None if not low or not high or low & high else (frozenset(low), frozenset(high))
