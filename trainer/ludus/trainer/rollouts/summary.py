"""Summaries of groups: the metrics of a batch, and the messages when there is nothing to learn from."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from ludus.trainer.core.errors import RolloutError
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, scored_rewards
from ludus.trainer.learning.batch import ROUNDING

WATCHED: Final = 64
"""The number of episodes at the beginning of a run, and at any time later, whose unscored shares are compared."""
MOST_UNSCORED: Final = 0.25
MANY_SAMPLES: Final = 2.5
"""An episode may well have a second sample, for a summary of its conversation."""
SAMPLE_CAUSES: Final[Mapping[str, str]] = {
    "conversation": "it begins other conversations",
    "tools": "it changes its tools",
    "rewritten": "it writes its history in other words",
    "branch": "it continues a turn twice",
    "template": "the chat template writes earlier turns again",
}
"""Why a call begins a new sample; see `ludus.gateway.session.NewSample`."""


def rollout_metrics(
    groups: Sequence[RolloutGroup], dropped: Sequence[RolloutGroup], batch: int, minimum: int
) -> dict[str, float]:
    """Return the metrics of a batch and of the groups dropped since the previous batch.

    Rewards, lengths and ends are means or shares over the scored episodes of all these groups, because the batch alone
    would hide what the policy always or never achieves. `rollout/failed` is the share of attempts that failed,
    `rollout/parse_errors` the number of turns per episode, `rollout/noise` the share of steps that environments
    disturbed on purpose (which are not failures), `rollout/dropped_*` the number of groups. Staleness is computed from
    the batch's episodes: how many batches older the weights of an episode's oldest token are than those that it trains.

    `unscored/<kind>/<error>` are the shares of `rollout/failed` by cause. With a harness, `harness/samples` is the
    number of samples per episode, `harness/new_sample/<cause>` why there are more than one, `harness/side_calls` and
    `harness/rewritten` count calls per episode, and `harness/ended_by/<cause>` are the shares of episodes whose policy
    ended the harness with an error.

    `environment/steps` is the number of steps and graded messages that the policy took, in all attempts and in forks of
    them; `environment/repeated` is the number of steps that forks repeated to reach their states.

    Args:
        groups: the batch.
        dropped: the groups that were not used.
        batch: the batch's number, which is the version of the weights that it trains.
        minimum: the minimum number of scored episodes in a usable group.
    """
    everything = (*groups, *dropped)
    rollouts = [rollout for group in everything for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if rollout.status is not RolloutStatus.FAILED]
    failed = sum(group.least_scored < minimum for group in dropped)
    continued = [rollout for group in everything for rollout in group.continuations]
    metrics = {
        "environment/steps": float(sum(rollout.environment_steps for rollout in (*rollouts, *continued))),
        "environment/repeated": float(
            sum(b.step for rollout in continued if (b := rollout.trajectory.branch) is not None)
        ),
        "rollout/turns": _mean([len(rollout.trajectory.turns) for rollout in scored]),
        "rollout/tokens": _mean([rollout.sampled for rollout in scored]),
        "rollout/failed": 1 - len(scored) / max(1, len(rollouts)),
        "rollout/truncated": _mean([rollout.status is RolloutStatus.TRUNCATED for rollout in scored]),
        "rollout/parse_errors": _mean([rollout.parse_errors for rollout in scored]),
        "rollout/noise": _mean([step.noise is not None for rollout in scored for step in rollout.trajectory.steps]),
        "rollout/dropped_constant": float(len(dropped) - failed),
        "rollout/dropped_failed": float(failed),
        "reward/mean": _mean(rewards := scored_rewards(scored)),
        "reward/std": math.sqrt(_mean([(reward - _mean(rewards)) ** 2 for reward in rewards])),
    }
    by_label: dict[str, list[float]] = defaultdict(list)
    for group in everything:
        by_label[group.environment] += scored_rewards(group.rollouts)
    metrics |= {f"reward/{label}": _mean(rewards) for label, rewards in sorted(by_label.items()) if rewards}
    metrics |= _by_part(everything) | _by_cause(rollouts) | _of_harness(scored)
    metrics |= {f"ends/{end}": count / len(scored) for end, count in sorted(Counter(map(_end, scored)).items())}
    ages = [batch - oldest for group in groups for rollout in group.scored if (oldest := rollout.oldest_version) >= 0]
    return metrics | {"rollout/staleness_mean": _mean(ages), "rollout/staleness_max": float(max(ages, default=0))}


def _by_part(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return the means of reward components (`component/<label>/<name>`), and the mean rewards of tasks by the public
    field `difficulty` (`difficulty/<label>/<level>`), over scored episodes."""
    values: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for rollout in group.scored:
            reward, level = rollout.trajectory.reward, rollout.trajectory.task.fields.get("difficulty")
            for name, part in reward.components.items() if reward else ():
                values[f"component/{group.environment}/{name}"].append(part.value)
            if isinstance(level, str | int | float) and rollout.reward is not None:
                values[f"difficulty/{group.environment}/{level}"].append(rollout.reward)
    return {name: _mean(part_values) for name, part_values in sorted(values.items())}


def _by_cause(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the shares of unscored episodes by the kind of failure and the error."""
    failures = Counter(
        f"unscored/{failure.kind}/{failure.error}"
        for rollout in rollouts
        if (failure := rollout.trajectory.failure) is not None
    )
    return {name: count / len(rollouts) for name, count in sorted(failures.items())}


def _of_harness(scored: Sequence[Rollout]) -> dict[str, float]:
    """Return what harnesses did, per scored episode; nothing where the trainer's own loop played."""
    played = [(rollout, rollout.harness) for rollout in scored if rollout.harness is not None]
    if not played:
        return {}
    totals: Counter[str] = Counter()
    for rollout, notes in played:
        totals["harness/samples"] += len(rollout.samples)
        totals["harness/side_calls"] += notes.side_calls
        totals["harness/rewritten"] += notes.rewritten
        totals.update({f"harness/new_sample/{c}": n for c, n in notes.begins.items() if c != "first"})
        totals.update([f"harness/ended_by/{notes.ended_by}"] if notes.ended_by else [])
    return {name: total / len(played) for name, total in sorted(totals.items())}


def harness_remark(metrics: Mapping[str, float]) -> str | None:
    """Return what the user should know of how a harness makes samples; None if an episode is about one sample.

    Each further sample repeats its prompt, so that long episodes cost the square of their length.
    """
    samples = metrics.get("harness/samples", 0.0)
    if samples < MANY_SAMPLES:
        return None
    prefix = "harness/new_sample/"
    causes = [(count, name.removeprefix(prefix)) for name, count in metrics.items() if name.startswith(prefix)]
    causes.sort(reverse=True)
    shown = ", ".join(
        f"{SAMPLE_CAUSES.get(name, name)} ({count:.1f} per episode)" for count, name in sorted(causes, reverse=True)
    )
    return (
        f"the harness makes {samples:.1f} samples of an episode where one would do, because {shown}. Each of them "
        "repeats the conversation before it"
    )


class UnscoredWatch:
    """Notices that a policy learns to have its episodes left out: what it, or the environment, breaks goes up.

    Failures of the infrastructure do not count, because no policy causes an outage.
    """

    def __init__(self) -> None:
        self._first: list[bool] = []
        self._last: deque[Rollout] = deque(maxlen=WATCHED)

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Take note of episodes, in the order in which they ended.

        Raises:
            RolloutError: of the last 64 episodes, more than a quarter is unscored, and more than twice the share of the
                first 64.
        """
        for rollout in rollouts:
            if len(self._first) < WATCHED:
                self._first.append(_is_broken(rollout))
            else:
                self._last.append(rollout)
        broken = [rollout for rollout in self._last if _is_broken(rollout)]
        if len(broken) > max(MOST_UNSCORED * WATCHED, 2 * sum(self._first)):
            raise RolloutError(
                f"{len(broken)} of the last {WATCHED} episodes are unscored, and {sum(self._first)} of the first "
                f"{WATCHED} were: the policy may be learning to break its episodes ({_reasons(broken)}). Look at the "
                "trajectories, and fix the environment or the harness: what a policy causes must be an end with a "
                "reward"
            )


def _is_broken(rollout: Rollout) -> bool:
    failure = rollout.trajectory.failure
    return failure is not None and failure.kind != "infrastructure"


class TaskSolved(Exception):
    """Every episode of the last groups earned the greatest reward. The run ends successfully with this message."""


def nothing_left(constant: Sequence[RolloutGroup]) -> str:
    """Return the message of a `TaskSolved`."""
    earned = Counter((group.environment, earned_by(group)) for group in constant)
    descriptions = ", ".join(f"{label}: {count} × {what}" for (label, what), count in sorted(earned.items()))
    return (
        f"the task is solved: every episode of the last {len(constant)} groups earned the most there is to earn "
        f"({descriptions}), so nothing is left to learn from comparing them"
    )


def no_signal_message(dropped: Sequence[RolloutGroup], minimum: int) -> str:
    """Return the message of a `RolloutError`: why groups were dropped, and what to do about it."""
    lines = [f"the last {len(dropped)} groups were all dropped, so there is nothing to learn from."]
    constant = [group for group in dropped if group.least_scored >= minimum]
    failed = [group for group in dropped if group.least_scored < minimum]
    for label in sorted({group.environment for group in dropped}):
        rewards = Counter(earned_by(group) for group in constant if group.environment == label)
        if rewards:
            kinds = ", ".join(f"{count} × {reward}" for reward, count in rewards.most_common(5))
            lines.append(f"{label}: {rewards.total()} groups whose episodes all earned the same ({kinds}).")
        broken = [r for group in failed if group.environment == label for r in group.rollouts if r.reward is None]
        if broken:
            count = sum(group.environment == label for group in failed)
            lines.append(f"{label}: {count} groups with fewer than {minimum} scored episodes ({_reasons(broken)}).")
    if constant:
        scored = [rollout for group in constant for rollout in group.scored]
        ends = ", ".join(f"{count} × {end}" for end, count in Counter(map(_end, scored)).most_common(5))
        unread = sum(rollout.parse_errors for rollout in scored)
        lines.append(
            f"Their episodes ended by {ends}; tool calls that could not be read: {unread}. Make the tasks easier or "
            "harder (`split`, `stages`, `curriculum`), teach the policy first (`sft`), raise `rollouts.group_size`, or "
            "learn from such groups as well (`rollouts.drop_zero_variance = false`)."
        )
    return "\n".join([*lines, *_incident(failed)])


def no_value_message(groups: Sequence[RolloutGroup]) -> str:
    """Return the message of a `RolloutError`: why no episode of an evaluation was scored."""
    lines = ["no episode of the evaluation was scored, so it has no result."]
    for label in sorted({group.environment for group in groups}):
        broken = [rollout for group in groups if group.environment == label for rollout in group.rollouts]
        lines.append(f"{label}: {_reasons(broken)}.")
    return "\n".join([*lines, *_incident(groups)])


def _incident(groups: Sequence[RolloutGroup]) -> list[str]:
    """Return the line that names an incident in the server's log, if there is one."""
    failures = [r.trajectory.failure for g in groups for r in g.rollouts if r.trajectory.failure is not None]
    incidents = [failure.incident for failure in failures if failure.incident]
    return [f"The server's log has the environment's failure, such as incident {incidents[-1]}."] if incidents else []


def _reasons(broken: Sequence[Rollout]) -> str:
    """Return the most frequent reasons why these episodes have no reward."""
    return "; ".join(f"{n} × {reason}" for reason, n in Counter(map(_failure, broken)).most_common(3))


def earned_by(group: RolloutGroup) -> str:
    """Return a text for messages: the rewards of a group whose episodes do not differ."""
    rewards = scored_rewards(group.rollouts)
    low, high = min(rewards), max(rewards)
    if high - low <= ROUNDING * max(1.0, abs(high)):
        return f"reward {high:g}"
    return f"rewards from {low:g} to {high:g} without a difference in any turn that counts"


def _failure(rollout: Rollout) -> str:
    failure = rollout.trajectory.failure
    if failure is None:
        reward = rollout.trajectory.reward
        return f"no reward: {reward.reason if reward is not None else 'none was given'}"
    # Incident ids are removed, because failures with the same cause have different ones.
    cause = failure.message.replace(failure.incident, "…") if failure.incident else failure.message
    return f"{failure.kind} failure, {failure.error}: {cause}"


def _end(rollout: Rollout) -> str:
    return str(rollout.trajectory.stopped or rollout.trajectory.end_reason or "unknown")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
