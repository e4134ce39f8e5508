"""Checks of rewards: the oracle earns the best reward, doing nothing earns nothing, and the components add up."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Generator, Sequence
from statistics import fmean
from typing import Final

from ludus.client.policies.base import Conversation, EpisodePolicy
from ludus.protocol.actions import Action, Answer
from ludus.protocol.episodes import StepResult, TaskRow
from ludus.protocol.errors import LudusError
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.oracle import Moves
from ludus.validation.core.settings import ORACLE_TURNS
from ludus.validation.core.target import ValidationTarget, evidence, evidence_of
from ludus.validation.core.transcripts import Script

suite = Suite(scored=True)

late = Suite(scored=True)
"""The checks that run after all tricks were played and use the rewards that the tricks earned."""

CONSTANTS: Final = 6
"""The number of different scripts of the oracle that are tried on all other tasks."""

FEW: Final = 4
"""The number of tasks up to which two equal answers may be a coincidence, so constant scripts are not tried."""

IDLE: Final = ("no-op", "empty", "random")


@suite.check("oracle-missing", "The class has an oracle", "semantic.oracle_max")
async def oracle_missing(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.local is None:
        raise NotApplicable(target.no_class_reason)
    if not target.has_oracle:
        yield error(
            "there is no oracle, so it is unknown whether the best reward is reachable: define "
            "`@classmethod def oracle(cls, task)` that yields the actions of a perfect episode"
        )


@suite.check("oracle-max", "The oracle earns the best reward on every task", "semantic.oracle_max", "gold")
async def oracle_max(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.info.reward_range is None:
        raise NotApplicable("the class does not declare its `reward_range`")
    below: list[Evidence] = []
    sampled = await target.played("oracle")
    plays = [play for play in (*sampled, *await target.played_on_more("oracle")) if play.failure is None]
    cut = [play for play in plays if play.stopped in ("turn_limit", "time_limit")]
    for play in plays:
        if play not in cut and play.value is not None and play.value < target.top - target.tolerance:
            below.append(evidence(play, f"earned {play.value:g} of {target.top:g} ({play.outcome})"))
    if not any(play.value is not None for play in plays):
        raise NotApplicable("no episode of the oracle was scored")
    if not any(_entries(play) for play in plays):
        raise NotApplicable("no step and no grade gave a reward (see `unscored`)")
    if below:
        yield error("the oracle does not earn the best reward: either it or the verifier is wrong", below)
    elif cut:
        raise NotApplicable(
            f"{len(cut)} of {len(plays)} episodes of the oracle were stopped after {ORACLE_TURNS} turns or "
            f"{target.settings.episode_seconds:g} s, so it is unknown what it would have earned"
        )


@suite.check("demonstrator", "The demonstrator earns the best reward without private fields", "semantic.oracle_max")
async def demonstrator(target: ValidationTarget) -> AsyncIterator[Problem]:
    plays = [*await target.played("demonstrator"), *await target.played_on_more("demonstrator")]
    broken = [evidence(play, str(play.failure)) for play in plays if play.failure is not None]
    below = [
        evidence(play, f"earned {play.value:g} of {target.top:g} ({play.outcome})")
        for play in plays
        if play.value is not None and play.value < target.top - target.tolerance
    ]
    if broken:
        yield error("episodes of the demonstrator fail: it must read every prompt of the environment", broken)
    if below:
        yield warning("the demonstrator earns less than the best reward, and models learn from what it does", below)


@suite.check("right-messages", "Right answers in the form that the prompt asks for earn the best reward",
             "semantic.oracle_max")  # fmt: skip
async def right_messages(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.local is None:
        raise NotApplicable(target.no_class_reason)
    below: list[Evidence] = []
    scored = 0
    for row in target.tasks:
        for message in target.local.cls.right_messages(target.task(row)):
            script = Script(row.split, row.id, target.seed_of(row), (Answer(message),), "right message")
            value = target.total(await target.perform(script))
            scored += value is not None
            if value is not None and value < target.top - target.tolerance:
                below.append(evidence_of(script, f"earned {value:g} of {target.top:g}: {short(message, 60)!r}"))
    if not scored:
        raise NotApplicable("the class lists no `right_messages`, or none of them was scored")
    if below:
        yield error("right answers earn less than the best reward: read every form that the prompt allows", below)


@suite.check("unscored", "An episode that ends has a reward", "runtime.reward_well_formed")
async def unscored(target: ValidationTarget) -> AsyncIterator[Problem]:
    names = ("oracle", "random", "empty") if target.local is not None and target.has_oracle else IDLE
    plays = [play for name in names for play in await target.played(name)]
    without = [
        evidence(play, str(play.reward.reason if play.reward is not None else "no reward at all"))
        for play in plays
        if play.failure is None and not play.scored
    ]
    rewarded = any(play.grade is not None or any(step.reward is not None for step in play.steps) for play in plays)
    broke = any(play.failure is not None for play in plays)
    if without:
        yield error("episodes that ended normally are unscored, so a policy cannot learn from them", without)
    elif broke and not rewarded:
        raise NotApplicable("no reward was given, and episodes failed (see `crash`)")
    elif not rewarded:
        yield error("no step and no grade gave a reward: return one from a tool or `grade`, or set a `rubric`")


@late.check("reward-range", "Rewards stay in the declared range", "runtime.reward_well_formed")
async def reward_range(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.info.reward_range is None:
        yield warning("the class does not declare its `reward_range`, so it is unknown how good a reward is")
        return
    low, high = target.info.reward_range
    outside = [
        evidence(play, f"earned {play.value:g}, outside of {low:g} to {high:g}")
        for name in ("oracle", *IDLE)
        for play in await _if_any(target, name)
        if target.out_of_range(play.value)
    ]
    farmed = target.failed & {_REPETITION, "gameability:variation"}
    for row in () if farmed else target.sample_tasks(RANGE_TASKS):
        await _play_more_than_needed(target, row)
    tricks = [trick for trick in target.outside if not (trick.policy == "repetition" and _REPETITION in target.failed)]
    outside += {(trick.split, trick.task, trick.policy): trick for trick in tricks}.values()
    if outside:
        yield error(
            "total rewards are outside of the declared `reward_range`: correct the reward or the range", outside
        )


async def _play_more_than_needed(target: ValidationTarget, row: TaskRow) -> None:
    """Earn what a random policy has earned in single steps, and then solve the task; `perform` records the total."""
    key = (row.split, row.id)
    solution = next((play for play in await _if_any(target, "oracle") if (play.split, play.task.id) == key), None)
    extra: dict[str, Action] = {}
    for name in ("random", "empty"):
        for play in await target.played(name):
            actions = target.script(play).actions
            for action, step in zip(actions[:-1], play.steps, strict=False):
                paid = step.reward is not None and (step.reward.value or 0.0) > 0
                if (play.split, play.task.id) == key and paid:
                    extra[str(action)] = action
    if solution is not None and extra:
        script = target.script(solution)
        actions = (*list(extra.values())[:EXTRA], *script.actions)
        with contextlib.suppress(LudusError):
            await target.perform(Script(row.split, row.id, script.seed, actions, "more than needed"))


RANGE_TASKS: Final = 4
"""The tasks that are solved after further actions were rewarded."""

EXTRA: Final = 12
"""The most further actions."""

_REPETITION: Final = "gameability:repetition"
"""The kind of check that alone reports the rewards of repeated actions."""


async def _if_any(target: ValidationTarget, name: str) -> tuple[Trajectory, ...]:
    try:
        return await target.played(name)
    except NotApplicable:
        return ()


@suite.check("components", "The components of a reward, each times its weight, add up to it",
             "runtime.rubric_introspectable", "runtime.reward_attribution")  # fmt: skip
async def components(target: ValidationTarget) -> AsyncIterator[Problem]:
    wrong: list[Evidence] = []
    for name in ("oracle", *IDLE):
        for play in await _if_any(target, name):
            for entry_name, reward in _entries(play):
                parts = [part for part in reward.components.values() if part.weight]
                if reward.value is None or not parts or reward.missing:
                    continue
                total = math.fsum(part.value * part.weight for part in parts)
                if not math.isclose(total, reward.value, rel_tol=1e-6, abs_tol=target.tolerance):
                    wrong.append(
                        evidence(
                            play, f"{entry_name}: the components add up to {total:g}, the reward is {reward.value:g}"
                        )
                    )
    if wrong:
        yield error(
            "the components of a reward do not add up to it: give each its weight, and weight 0 to those that only "
            "reported",
            wrong,
        )


def _entries(play: Trajectory) -> list[tuple[str, Reward]]:
    entries = [(f"step {step.step}", step.reward) for step in play.steps if step.reward is not None]
    return [*entries, *([("grade", play.grade)] if play.grade is not None else [])]


@suite.check("floor-gap", "A policy that does nothing, guesses or always does the same stays near the random baseline",
             "semantic.floor_gap", "noop")  # fmt: skip
async def floor_gap(target: ValidationTarget) -> AsyncIterator[Problem]:
    await _if_any(target, "oracle")  # sets the best reward if the class does not declare it
    if target.bad_baseline is not None:
        yield error(
            f"{target.bad_baseline}, so a policy cannot be distinguished from a solution; correct `random_baseline`"
        )
        return
    for name, description in (
        ("no-op", "a policy that does nothing"),
        ("empty", "a policy that calls every tool with empty arguments and submits an empty answer"),
        ("random", "a policy that acts at random"),
    ):
        earned = [(value, play) for play in await target.played(name) if (value := target.earned(play)) is not None]
        values = [value for value, _ in earned]
        if values and target.share(fmean(values)) >= target.settings.margin:
            ranked = sorted(earned, key=lambda entry: -entry[0])
            yield error(
                f"{description} earns {fmean(values):.3g} on average; the random baseline is "
                f"{target.random_baseline:g} and the best reward is {target.top:g}: the verifier rewards doing nothing"
                ", or the class should declare what guessing earns (`random_baseline = …`)",
                [evidence(play, f"earned {value:g}") for value, play in ranked if value > target.random_baseline],
            )
            return
    async for problem in _constant(target):
        yield problem


async def _constant(target: ValidationTarget) -> AsyncIterator[Problem]:
    """Check whether the actions that solve one task also solve the others."""
    try:
        plays = [play for play in await target.played("oracle") if play.value is not None]
    except NotApplicable:
        return
    scripts: dict[str, Script] = {}
    for play in plays:
        script = target.script(play)
        scripts.setdefault(str(script.actions), script)
    rows = target.tasks
    if len(rows) <= FEW or "seed-variation" in target.failed:
        return
    for script in list(scripts.values())[:CONSTANTS]:
        other_rows = [row for row in rows if (row.split, row.id) != (script.split, script.task)]
        values = []
        for row in other_rows:
            again = Script(row.split, row.id, target.seed_of(row), script.actions, "constant")
            if (value := await target.reward(again)) is not None:
                values.append(value)
        alike = sum(target.share(value) >= target.settings.margin for value in values)
        if alike > 1 and target.share(fmean(values)) >= target.settings.margin:
            yield error(
                f"the solution of one task earns {fmean(values):.3g} on the others; the random baseline is "
                f"{target.random_baseline:g}: a policy that always does the same is rewarded; vary the answers, or "
                "declare `random_baseline = …`",
                [evidence_of(script, f"always {short(str(list(script.actions)), 90)}")],
            )
            return


@suite.check("canary-floor", "The author's own exploits earn no more than the random baseline", "semantic.canary_floor")
async def canary_floor(target: ValidationTarget) -> AsyncIterator[Problem]:
    rows = target.sample_tasks(4)
    names = _listed_names(target, "exploits", rows)
    rewarded: list[Evidence] = []
    for name in names:
        for play in await target.play(_Listed(target, "exploits", name), tasks=rows, turns=ORACLE_TURNS):
            value = target.earned(play)
            if value is not None and target.share(value) >= target.settings.margin:
                rewarded.append(evidence(play, f"earned {value:g}"))
    if rewarded:
        yield error("known exploits earn rewards: the verifier is weaker than its author states", rewarded)


@suite.check("equivalents", "Other right ways to solve a task earn what the oracle earns", "semantic.oracle_max")
async def equivalents(target: ValidationTarget) -> AsyncIterator[Problem]:
    rows = target.tasks
    names = _listed_names(target, "equivalents", rows)
    best = {(play.split, play.task.id): target.earned(play) for play in await target.played("oracle")}
    below: list[Evidence] = []
    scored = 0
    for name in names:
        listing = [row for row in rows if name in target.local.cls.equivalents(target.task(row))]
        for play in await target.play(_Listed(target, "equivalents", name), tasks=listing, turns=ORACLE_TURNS):
            value, greatest = target.earned(play), best.get((play.split, play.task.id))
            scored += value is not None
            if play.failure is not None or (
                value is not None and greatest is not None and value < greatest - target.tolerance
            ):
                earned = "nothing" if value is None else f"{value:g}"
                below.append(evidence(play, f"earned {earned} ({play.outcome}); the oracle earned {greatest}"))
    if below:
        yield error("right ways to solve a task earn less than the oracle: the verifier refuses right work", below)
    elif not scored:
        raise NotApplicable("no episode was scored")


def _listed_names(target: ValidationTarget, method: str, rows: Sequence[TaskRow]) -> list[str]:
    """Return the names of the policies that a class lists for some tasks.

    Raises:
        NotApplicable: the class is not available or lists none.
    """
    if target.local is None:
        raise NotApplicable(target.no_class_reason)
    names = sorted({name for row in rows for name in getattr(target.local.cls, method)(target.task(row))})
    if not names:
        raise NotApplicable(f"the class lists no `{method}`")
    return names


class _Listed:
    """A policy that plays what a class lists for a task under a name, in `exploits` or `equivalents`."""

    sees_rewards = True

    def __init__(self, target: ValidationTarget, method: str, listed: str) -> None:
        self._target = target
        self._method = method
        self._listed = listed
        self.name = f"{method.removesuffix('s')} {listed}"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        task = self._target.task(conversation.task)
        moves = getattr(self._target.local.cls, self._method)(task).get(self._listed)
        return Moves(moves if moves is not None else _no_moves())


def _no_moves() -> Generator[Action, StepResult, None]:
    yield from ()  # pyrefly: ignore[invalid-yield] (an empty tuple sends nothing)
