"""A recorded conversation as entries to show: messages, calls with their outcomes, and where turns begin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import StepRecord, Trajectory

__all__ = ["Entry", "Image", "components", "entries", "reward_text"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a conversation."""

    kind: Literal["turn", "message", "call", "output"]
    who: str
    """The role of a message, or the tool of a call; for a turn its number, counted from 1."""
    parts: tuple[str, ...] = ()
    """Texts, and images as `data:` URLs or addresses in `Image`."""
    step: StepRecord | None = None
    """For an output, the step that it belongs to."""

    @property
    def title(self) -> str:
        """Who wrote it, for a page."""
        return {"call": "call", "output": f"answer of {self.who}"}.get(self.kind, self.who)

    @property
    def style(self) -> str:
        """A class of the style sheets."""
        kinds = {"call": "call", "output": "tool"}
        return kinds.get(self.kind, "assistant" if self.who == "assistant" else "other")

    @property
    def shown(self) -> tuple[str, ...]:
        """Its texts and images as a page shows them: a call is one text, with the tool and the arguments."""
        return (f"{self.who}({''.join(self.parts)})",) if self.kind == "call" else self.parts


class Image(str):
    """The address of an image in `Entry.parts`."""


def entries(trajectory: Trajectory) -> Iterator[Entry]:
    """Yield the entries of a conversation. Items have any shape: nothing is assumed about what a file holds."""
    steps = {step.call_id: step for step in trajectory.steps}
    starts = [0, *(turn.items for turn in trajectory.turns)]
    tools: dict[str, str] = {}
    turn = 0
    for number, item in enumerate(trajectory.items):
        kind, call_id = item.get("type"), str(item.get("call_id", ""))
        current = sum(number >= start for start in starts)
        if (kind == "function_call" or item.get("role") == "assistant") and current > turn:
            turn = current
            yield Entry("turn", str(turn))
        if kind == "function_call":
            tools[call_id] = str(item.get("name", ""))
            yield Entry("call", tools[call_id], (_arguments(item.get("arguments")),))
        elif kind == "function_call_output":
            yield Entry("output", tools.get(call_id, ""), _parts(item.get("output")), steps.get(call_id))
        else:
            yield Entry("message", str(item.get("role", kind or "item")), _parts(item.get("content", item)))


def reward_text(trajectory: Trajectory) -> str:
    """Return the reward as a number, or `unscored` or `none` with the reason."""
    if trajectory.failure is not None:
        return f"unscored: {trajectory.failure.error}: {trajectory.failure.message}"
    reward = trajectory.reward
    if reward is None:
        return "none: the file has no reward for this episode"
    return f"{reward.value:zg}" if reward.value is not None else f"unscored: {reward.reason}"


def components(reward: Reward | None) -> list[tuple[str, str, str, str]]:
    """Return the rows of a reward's components: name, value, weight and evidence; for missing parts the reason."""
    if reward is None:
        return []
    rows = [(name, f"{part.value:zg}", f"{part.weight:zg}", part.evidence or "")
            for name, part in reward.components.items()]  # fmt: skip
    return rows + [(name, "not judged", "", why) for name, why in reward.missing.items()]


def _arguments(arguments: Any) -> str:
    """Return arguments as `name=value, …`, or as they are if they are no JSON object."""
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return str(arguments)
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items())


def _parts(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list):
        return (str(content),)
    return tuple(
        Image(block["image_url"]) if isinstance(block, dict) and "image_url" in block
        else str(block.get("text", block.get("refusal", block))) if isinstance(block, dict) else str(block)
        for block in content
    )  # fmt: skip
