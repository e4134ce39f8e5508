"""Noise: makes tools fail, delay or corrupt their results on purpose, by a seed and at a given rate.

A policy that was trained only with tools that work cannot handle a tool that fails. An environment with noise has the
same tasks, tools and rewards, but some steps are disturbed. Whether and how depends only on the noise's seed, the
episode's seed and the step's number, so that the same calls get the same noise again.

Noise never changes a reward or a grade, and never looks like a failure of the infrastructure. Rubrics see the original
results of the tools, and a call that noise kept from its tool is not a step for them.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ludus.protocol.content import Content, TextBlock
from ludus.protocol.episodes import NoiseKind, StepError, StepResult
from ludus.server.authoring.results import cut

_USUAL: Final[Mapping[NoiseKind, float]] = {"tool_error": 1.0, "delay": 1.0, "truncation": 1.0, "flaky_output": 1.0}

_NOT_RUN: Final = (
    "Temporary failure: the tool is unavailable and did not run. Try again.",
    "503 Service Unavailable: the tool did not run. Try again.",
    "429 Too Many Requests: the tool did not run. Try again.",
)
_LOST: Final = "The connection was lost before the tool answered. It may or may not have run."

MASK_CHAR: Final = "#"
"""The character that replaces unreadable ones; noise shows no other text that the environment did not write."""


class Noise(BaseModel):
    """How often steps are disturbed, and how.

    A step is disturbed at most once. If noise would change nothing, as when it truncates an empty text, the step is not
    marked as disturbed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rate: float = Field(default=0.05, ge=0, le=1)
    """The share of tool calls that are disturbed; 0.05 to 0.1 is usual in training."""
    kinds: Mapping[NoiseKind, float] = Field(default=_USUAL)
    """The kinds with their weights, or only their names, as in `tool_error+delay`. The default has all kinds except
    `lost_answer`, with which the tool runs and its answer is lost, so that repeating the call runs it twice."""
    seed: int = Field(default=0, ge=0)
    """The seed that decides which steps are disturbed."""
    per_episode: bool = False
    """Whether each episode has its own noise, instead of the same noise for all episodes with one seed. Starting with
    the same seed then does not repeat the noise; forks have the noise of the episode that they come from."""
    delay_seconds: float = Field(default=1.0, gt=0, le=60)
    """The longest `delay` in seconds; the shortest is a tenth of it. Delays count toward the time limit of the episode,
    but not toward that of the tool call."""
    keep: float = Field(default=0.3, ge=0, lt=1)
    """The least share of an answer that `truncation` leaves."""
    lines: float = Field(default=0.2, gt=0, le=1)
    """The share of lines that `flaky_output` drops, repeats, swaps or makes unreadable; at least one line."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        names = value.split("+") if isinstance(value, str) else value
        listed = isinstance(names, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in names)
        return dict.fromkeys(names, 1.0) if listed else names

    @field_validator("kinds")
    @classmethod
    def _some(cls, value: Mapping[NoiseKind, float]) -> Mapping[NoiseKind, float]:
        if not all(weight >= 0 for weight in value.values()) or not 0 < sum(value.values()) < math.inf:
            raise ValueError("weights must be 0 or more, not all 0, and finite together")
        return value

    def draw(self, noise_key: str, step: int) -> NoiseEvent | None:
        """Return the noise that applies to a step; None if it is not disturbed.

        Args:
            noise_key: the episode's key; see `Episode.noise_key`.
            step: the step's number.
        """
        digest = hashlib.blake2b(f"{self.seed}/{noise_key}/{step}".encode(), digest_size=16).digest()
        if (int.from_bytes(digest[:8], "big") >> 11) / 2**53 >= self.rate:
            return None
        rng = random.Random(int.from_bytes(digest[8:], "big"))
        (kind,) = rng.choices(tuple(self.kinds), tuple(self.kinds.values()))
        return NoiseEvent(kind, rng, self)


@dataclass(frozen=True, slots=True)
class NoiseEvent:
    """The noise that applies to one step."""

    kind: NoiseKind
    rng: random.Random
    noise: Noise

    def seconds(self) -> float:
        """Return the duration of a `delay`."""
        return self.noise.delay_seconds * self.rng.uniform(0.1, 1.0)

    def instead(self, step: int) -> StepResult:
        """Return the result of a call that a `tool_error` kept from its tool."""
        return _unavailable(StepResult(step=step, content=()), self.rng.choice(_NOT_RUN))

    def after(self, result: StepResult) -> StepResult:
        """Return the disturbed result of a call that ran, or `result` itself if nothing changes."""
        if self.kind == "lost_answer":
            return _unavailable(result, _LOST)
        content = result.content
        if self.kind == "truncation":
            size = cut(content, None)[1]
            share = self.rng.uniform(self.noise.keep, 1.0)
            content = cut(content, min(size - 1, math.ceil(size * share)))[0] if size else content
        elif self.kind == "flaky_output":
            content = self._corrupt(content)
        return result if content == result.content else result.model_copy(update={"content": content})

    def _corrupt(self, content: tuple[Content, ...]) -> tuple[Content, ...]:
        places = [number for number, block in enumerate(content) if isinstance(block, TextBlock) and block.text]
        if not places:
            return content
        place = self.rng.choice(places)
        block = content[place]
        assert isinstance(block, TextBlock)
        text = TextBlock(text=corrupt(block.text, self.noise.lines, self.rng))
        return (*content[:place], text, *content[place + 1 :])


def corrupt(text: str, share: float, rng: random.Random) -> str:
    """Return a text with some lines dropped, repeated, swapped or made unreadable.

    Args:
        text: the text of a tool's result.
        share: the share of lines to change; at least one line.
        rng: the random generator.
    """
    lines = text.split("\n")
    for _ in range(max(1, round(share * len(lines)))):
        at = rng.randrange(len(lines))
        ways = ("drop", "swap", "repeat", "mask") if len(lines) > 1 else ("mask",)
        match rng.choice(ways):
            case "drop":
                del lines[at]
            case "swap":
                other = (at + 1) % len(lines)
                lines[at], lines[other] = lines[other], lines[at]
            case "repeat":
                lines.insert(at, lines[at])
            case _:
                lines[at] = _mask(lines[at], rng)
    return "\n".join(lines)


def _mask(line: str, rng: random.Random) -> str:
    """Return a line with a third of its non-space characters masked, at least one."""
    places: Sequence[int] = [number for number, character in enumerate(line) if not character.isspace()]
    hidden = set(rng.sample(places, max(1, len(places) // 3))) if places else set()
    return "".join(MASK_CHAR if number in hidden else character for number, character in enumerate(line))


def _unavailable(result: StepResult, message: str) -> StepResult:
    error = StepError(code="unavailable", message=message)
    return result.model_copy(update={"content": (TextBlock(text=message),), "error": error})
