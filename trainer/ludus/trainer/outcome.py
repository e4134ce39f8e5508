"""Whether a run learns: why it stops when it does not, and whether it ended while its rewards still rose."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import DidNotLearn
from ludus.trainer.core.samples import RolloutGroup, RolloutStatus
from ludus.trainer.learning.batch import ROUNDING

FEWEST_IDLE: Final = 3
"""A run of fewer steps says nothing about whether it learns."""

SMOOTHED: Final = 5
"""The number of steps in a row whose mean is compared, because one batch may be lucky."""
NEW: Final = 0.005
"""By how much a mean is higher than the best one before, relative to it, to be new."""


class Progress:
    """The rewards of a run, step by step.

    Args:
        config: the run's configuration.
        remarks: messages about the run's input, which may be the reason why nothing is learned.
        records: what an earlier process of the run recorded, as in `metrics.jsonl`.
    """

    def __init__(
        self, config: TrainConfig, remarks: Sequence[str] = (), records: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._config, self._remarks = config, remarks
        self.rewards: list[float] = []
        """The mean reward of each step."""
        self.held_out: list[float] = []
        """The mean reward of each evaluation."""
        self.idle = 0
        """The number of steps in a row, up to the last one, in which all episodes earned the same, and not the most."""
        self.solved = 0
        """The number of steps in a row, up to the last one, in which all episodes earned the most there is."""
        self._learned = False
        self._ends: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        for record in records:
            self._record(record)
        self._learned = bool(self.rewards)

    def step(self, groups: Sequence[RolloutGroup], metrics: Mapping[str, float], *, solved: bool) -> None:
        """Count a step.

        Args:
            groups: the step's groups.
            metrics: the step's metrics.
            solved: whether all episodes earned the most there is.
        """
        self._record(metrics)
        unchanged = metrics.get("reward/std", 0.0) <= ROUNDING and metrics.get("loss/no_signal", 0.0) > 0
        unchanged = unchanged and (not self.idle or math.isclose(*self.rewards[-2:], abs_tol=ROUNDING))
        self.solved = self.solved + 1 if unchanged and solved else 0
        if not unchanged or solved:
            self.idle, self._learned = 0, True
            self._ends.clear()
            self._counts.clear()
            return
        self.idle += 1
        for rollout in chain.from_iterable(group.scored for group in groups):
            self._counts["episodes"] += 1
            self._counts["unread"] += rollout.parse_errors
            self._counts["truncated"] += rollout.status is RolloutStatus.TRUNCATED
            self._ends[str(rollout.trajectory.stopped or rollout.trajectory.end_reason or "unknown")] += 1

    def evaluation(self, metrics: Mapping[str, float]) -> None:
        """Count an evaluation."""
        self._record(metrics)

    @property
    def stalled(self) -> bool:
        """Whether so many steps in a row learned nothing that the run stops."""
        return 0 < self._config.max_idle_steps <= max(self.idle, self.solved)

    @property
    def flat(self) -> bool:
        """Whether the last `plateau` steps reached nothing new: no mean of a few steps in a row was the highest yet."""
        size = self._config.plateau
        if not size or len(self.rewards) < size + SMOOTHED:
            return False
        means = [statistics.fmean(self.rewards[end - SMOOTHED : end]) for end in range(SMOOTHED, len(self.rewards) + 1)]
        best = max(means[:-size])
        return max(means[-size:]) <= best + NEW * abs(best)

    def failure(self) -> DidNotLearn | None:
        """Return the error of a run that did not learn, with its reasons; None for any other run."""
        whole_run = not self._learned and self.idle >= FEWEST_IDLE
        if not whole_run and not (self.idle and self.stalled):
            return None
        count = self._counts["episodes"]
        ends = ", ".join(f"{number} × {end}" for end, number in self._ends.most_common(3))
        held_out = f" Held-out reward {_arrow(self.held_out)}." if self.held_out else ""
        return DidNotLearn(
            f"did not learn: all {count:,} episodes of the last {self.idle} steps earned {self.rewards[-1]:g} "
            f"({ends}).{held_out} {' '.join(self._reasons())}"
        )

    def _reasons(self) -> list[str]:
        config, count = self._config, max(1, self._counts["episodes"])
        reasons = [f"{remark}." for remark in self._remarks]
        if self._counts["unread"] * 2 >= count:
            reasons.append(
                f"The policy wrote {self._counts['unread'] / count:.1f} tool calls per episode that cannot be read: "
                + (
                    "teach it the form of a call first (sft)."
                    if config.sft is None
                    else f"imitate for longer (sft.steps = {config.sft.steps})."
                )
            )
        if self._counts["truncated"] * 2 >= count:
            reasons.append(
                f"{self._counts['truncated'] / count:.0%} of the episodes were cut off: raise rollouts.max_tokens (now "
                f"{config.rollouts.max_tokens}), max_turns or context."
            )
        return reasons or [
            "No sampled episode differs from the others: choose easier tasks, give partial credit, or teach the policy "
            "first with demonstrations that win (`ludus demos`)."
        ]

    def still_rising(self) -> str | None:
        """Return a message if the rewards still rose when the run ended; None otherwise."""
        size = min(20, max(4, len(self.rewards) // 5))
        if len(self.rewards) < 2 * size:
            return None
        before, recent, noise = self._compared(size)
        if recent - before <= 2 * noise or (len(self.held_out) > 2 and self.held_out[-1] < self.held_out[-2]):
            return None
        more = 2 * len(self.rewards)
        again = (
            f"the same command with --steps={more} goes on from here"
            if self._config.optimizer.schedule == "constant"
            else f"run it again with --steps={more} and another --output, because the learning rate has reached its end"
        )
        held_out = f", held-out {_arrow(self.held_out[-2:])}" if len(self.held_out) > 1 else ""
        return (
            f"the rewards still rose when the run ended: {before:.3f} → {recent:.3f} from one {size} steps to the next"
            f"{held_out}. More steps would gain more: {again}"
        )

    def _compared(self, size: int) -> tuple[float, float, float]:
        """Return the means of the last steps and of as many before, and the standard error of their difference."""
        before, recent = self.rewards[-2 * size : -size], self.rewards[-size:]
        noise = math.sqrt((statistics.pvariance(before) + statistics.pvariance(recent)) / size)
        return statistics.fmean(before), statistics.fmean(recent), noise

    def _record(self, metrics: Mapping[str, Any]) -> None:
        if isinstance(reward := metrics.get("reward/mean"), int | float):
            self.rewards.append(reward)
        if means := [value for name, value in metrics.items() if _HELD_OUT.fullmatch(name) and value is not None]:
            self.held_out.append(statistics.fmean(means))


_HELD_OUT: Final = re.compile(r"evaluation/[^/]+/mean")


def recorded(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run's `metrics.jsonl`; nothing if there are none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.endswith("}")]


def _arrow(values: Sequence[float]) -> str:
    return f"{values[0]:.3f} → {values[-1]:.3f}" if len(values) > 1 else f"{values[0]:.3f}"
