"""Training data from recorded episodes: conversations to imitate, and pairs of a better and a worse one.

Every row names where it is from: environment, version, split, task, seed, policy, value, and the program that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ludus.client.formats import openai_chat
from ludus.common.distribution import installed_version
from ludus.protocol.content import Message
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import Item
from ludus.protocol.messages import VALIDATION_NAMES
from ludus.protocol.trajectory import StepRecord, Trajectory, latest

__all__ = ["Report", "Selection", "group_rows", "pair_rows"]


HELD_OUT_NAMES: Final = frozenset({"test", "testing", "validation", *VALIDATION_NAMES})
"""The names of splits that are not for training, for recorded episodes, which do not have the type of their split."""

LeftOut = Literal["unscored", "no reply", "held-out split", "low reward", "long", "failed calls", "duplicate"]
"""Why an episode is not in the data."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which episodes to keep."""

    reward: float | None = None
    """The lowest reward of a conversation to imitate, or of the better one of a pair."""
    turns: int | None = None
    """The most turns of the policy."""
    characters: int | None = None
    """The most characters of a conversation, with its calls."""
    failed_calls: bool = True
    """Whether to keep episodes in which a call failed, such as one with invalid arguments."""
    held_out: bool = False
    """Whether to keep episodes of splits that are not for training."""
    duplicates: bool = False
    """Whether to keep conversations that say exactly what an earlier one says."""
    training_splits: frozenset[str] | None = None
    """The splits that are for training, where that is known; otherwise all but `HELD_OUT_NAMES` are."""


@dataclass(slots=True)
class Report:
    """What became of the episodes."""

    episodes: int = 0
    """Episodes that were read."""
    rows: int = 0
    left_out: Counter[LeftOut] = field(default_factory=Counter[LeftOut])
    """Episodes that are not in the data, by reason."""
    chosen_characters: int = 0
    rejected_characters: int = 0
    chosen_longer: int = 0
    """Pairs whose better completion has more characters."""
    rejected_longer: int = 0

    @property
    def length_bias(self) -> str | None:
        """A sentence about pairs in which better completions are mostly longer or mostly shorter; None if not so."""
        apart = self.chosen_longer + self.rejected_longer
        if apart < 8 or 0.25 <= self.chosen_longer / apart <= 0.75:
            return None
        longer = self.chosen_longer > self.rejected_longer
        share = max(self.chosen_longer, self.rejected_longer) / self.rows
        means = f"{self.chosen_characters / self.rows:.0f} and {self.rejected_characters / self.rows:.0f} characters"
        return (
            f"the better completion is {'longer' if longer else 'shorter'} in {share:.0%} of the pairs (on average "
            f"{means}), so a policy may learn its length instead of what makes it better"
        )


class Imitation:
    """The choice of episodes to imitate, one by one.

    Args:
        selection: which episodes to keep.
        report: filled while episodes are given.
    """

    def __init__(self, selection: Selection, report: Report) -> None:
        self._selection, self._report = selection, report
        self._seen: set[str] = set()

    def keeps(self, trajectory: Trajectory) -> bool:
        """Return whether an episode is kept."""
        return self._kept(trajectory) is not None

    def row(self, trajectory: Trajectory) -> dict[str, Any] | None:
        """Return the row of an episode, with `messages` and `tools`, for supervised fine-tuning; None if left out."""
        completion = self._kept(trajectory)
        if completion is None:
            return None
        common = dict(completion.common)
        messages = [*common.pop("prompt"), *completion.messages]
        return {"messages": messages, **common, **completion.origin, "value": completion.value, "source": source()}

    def _kept(self, trajectory: Trajectory) -> _Completion | None:
        selection, report = self._selection, self._report
        for completion in _completions([trajectory], selection, report):
            if selection.reward is not None and completion.value < selection.reward:
                report.left_out["low reward"] += 1
            elif not selection.duplicates and completion.key in self._seen:
                report.left_out["duplicate"] += 1
            else:
                self._seen.add(completion.key)
                report.rows += 1
                return completion
        return None


def pair_rows(
    trajectories: Iterable[Trajectory],
    selection: Selection,
    report: Report,
    *,
    margin: float = 0.0,
    length_ratio: float | None = None,
    same_seed: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield pairs: `prompt`, `chosen` and `rejected`, and `tools`, for preference learning.

    Within the episodes of one task and prompt, the best is paired with the worst, the second best with the second
    worst, and so on. Each episode is in at most one pair.

    Args:
        trajectories: the episodes, in any order.
        selection: which of them to keep.
        report: filled while the rows are read.
        margin: the least difference of the two values; they always differ.
        length_ratio: leave out pairs in which one completion has more than this many times the characters of the other.
        same_seed: pair only episodes of one seed, for environments whose tasks hide something that the seed decides.
    """
    groups: dict[str, list[_Completion]] = {}
    for completion in _completions(trajectories, selection, report):
        group = groups.setdefault(_digest([completion.common, completion.origin["seed"] if same_seed else None]), [])
        if not selection.duplicates and any(
            earlier.key == completion.key and earlier.value == completion.value for earlier in group
        ):
            report.left_out["duplicate"] += 1
        else:
            group.append(completion)
    for group in groups.values():
        ranked = sorted(group, key=lambda completion: completion.value, reverse=True)
        for best, worst in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
            lengths = sorted((best.characters, worst.characters))
            if (
                best.value <= worst.value
                or best.value - worst.value < margin
                or best.key == worst.key
                or (selection.reward is not None and best.value < selection.reward)
                or (length_ratio is not None and lengths[1] > length_ratio * lengths[0])
            ):
                continue
            report.rows += 1
            report.chosen_characters += best.characters
            report.rejected_characters += worst.characters
            report.chosen_longer += best.characters > worst.characters
            report.rejected_longer += best.characters < worst.characters
            origins = {f"{side}_{name}": value for side, completion in (("chosen", best), ("rejected", worst))
                       for name, value in {"value": completion.value, **completion.origin}.items()}  # fmt: skip
            yield {**best.common, "chosen": best.messages, "rejected": worst.messages, **origins, "source": source()}


def group_rows(trajectories: Iterable[Trajectory], selection: Selection, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per task and prompt of at least two episodes: `prompt`, `tools`, `completions` and `rewards`."""
    groups: dict[str, list[_Completion]] = {}
    for completion in _completions(trajectories, selection, report):
        groups.setdefault(_digest(completion.common), []).append(completion)
    for group in groups.values():
        if len(group) > 1:
            report.rows += 1
            rewards = [completion.value for completion in group]
            yield {**group[0].common, "completions": [completion.messages for completion in group], "rewards": rewards}


def latest_of_each_policy(trajectories: Iterable[Trajectory]) -> tuple[list[Trajectory], int]:
    """Return the last trajectory of each episode, of each policy: files of several policies may hold the same tasks.

    Returns:
        The trajectories, and how many scored ones were left out because a later one has the same policy, task and
        number.
    """
    by_policy: dict[str, list[Trajectory]] = {}
    scored = 0
    for trajectory in trajectories:
        by_policy.setdefault(trajectory.policy, []).append(trajectory)
        scored += trajectory.scored
    newest = [trajectory for recorded in by_policy.values() for trajectory in latest(recorded)]
    return newest, scored - sum(trajectory.scored for trajectory in newest)


def source() -> str:
    """Return the name and version of the program that writes rows."""
    return f"ludus-rl {installed_version()}"


@dataclass(frozen=True, slots=True)
class _Completion:
    """An episode that is kept."""

    common: dict[str, Any]
    """What the episodes of its task and prompt have in common."""
    messages: list[dict[str, Any]]
    """The conversation after the prompt."""
    value: float
    origin: dict[str, Any]
    key: str
    """Equal for conversations that say the same."""
    characters: int


def _completions(trajectories: Iterable[Trajectory], selection: Selection, report: Report) -> Iterator[_Completion]:
    """Yield the episodes that can be kept, whatever their reward. Count the others."""
    for trajectory in trajectories:
        report.episodes += 1
        value, items = trajectory.value, trajectory.conversation
        start = next((index for index, item in enumerate(items) if not _is_prompt(item)), len(items))
        completion = None if value is None or start == len(items) else _completion(trajectory, items, start, value)
        if value is None:
            report.left_out["unscored"] += 1
        elif completion is None:
            report.left_out["no reply"] += 1
        elif not selection.held_out and _is_held_out(trajectory.split, selection):
            report.left_out["held-out split"] += 1
        elif (selection.turns is not None and len(trajectory.turns) > selection.turns) or (
            selection.characters is not None and completion.characters > selection.characters
        ):
            report.left_out["long"] += 1
        elif not selection.failed_calls and any(map(_failed, trajectory.steps)):
            report.left_out["failed calls"] += 1
        else:
            yield completion


def _completion(trajectory: Trajectory, items: Sequence[Item], start: int, value: float) -> _Completion:
    common = {
        "prompt": _messages(items[:start]),
        "tools": openai_chat.tools([_tool(record) for record in trajectory.tools]),
        "environment": trajectory.environment,
        "environment_version": trajectory.environment_version,
        "split": trajectory.split,
        "task": trajectory.task.id,
    }
    messages = _messages(items[start:])
    completion = [_without_ids(message) for message in messages]
    key = _digest([common["prompt"], completion])
    origin = {"policy": trajectory.policy, "seed": trajectory.seed, "sample": trajectory.sample}
    return _Completion(common, messages, value, origin, key, _characters(messages))


def _failed(step: StepRecord) -> bool:
    """Return whether a call failed by a mistake of the policy, and not by noise."""
    return step.error is not None and step.noise is None


def _is_held_out(split: str, selection: Selection) -> bool:
    training_splits = selection.training_splits
    return split not in training_splits if training_splits is not None else is_held_out(split)


def is_held_out(split: str) -> bool:
    """Return whether a split is not for training, by its name: recorded episodes do not have the type of their split.
    Of a name with several parts, such as `hard-test` or `test/2025`, one part is enough."""
    return not HELD_OUT_NAMES.isdisjoint(re.split(r"[^a-z0-9]+", split.lower()))


def _is_prompt(item: Item) -> bool:
    return isinstance(item, Message) and item.role != "assistant"


def _messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = openai_chat.messages(items)["messages"]
    return messages


def _tool(record: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(name=record["name"], description=record["description"] or "", input_schema=record["parameters"])


def _without_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the ids of its calls, which differ between episodes that say the same."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return {"role": message["role"], "content": message.get("content"), "calls": calls}


def _characters(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of characters of messages, with names and arguments of calls."""
    total = 0
    for message in messages:
        content = message.get("content") or ""
        total += len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)
        calls = [call["function"] for call in message.get("tool_calls", ())]
        total += sum(len(call["name"]) + len(call["arguments"]) for call in calls)
    return total


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
