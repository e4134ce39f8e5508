"""Checks of rewards: the oracle earns the best reward, doing nothing earns nothing, and the components add up."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Final

from ludus.client.policies.base import Conversation, EpisodePolicy
from ludus.protocol.actions import Action
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import LudusError
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.oracle import Moves
from ludus.validation.settings import ORACLE_TURNS
from ludus.validation.target import ValidationTarget, evidence, evidence_of
from ludus.validation.transcripts import Script

suite = Suite()

late = Suite()
"""The checks that run after all tricks were played and use the rewards that the tricks earned."""

CONSTANTS: Final = 6
"""The number of different scripts of the oracle that are tried on all other tasks."""

FEW: Final = 4
"""The number of tasks up to which two equal answers may be a coincidence, so constant scripts are not tried."""

IDLE: Final = ("no-op", "empty", "random")


@suite.check("oracle-missing", "The class has an oracle", "semantic.oracle_max")
async def oracle_missing(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if subject.local is None:
        raise NotApplicable(subject.no_class_reason)
    if not subject.has_oracle:
        yield error(
            "there is no oracle, so it is unknown whether the best reward is reachable: define "
            "`@classmethod def oracle(cls, task)` that yields the actions of a perfect episode"
        )


@suite.check("oracle-max", "The oracle earns the best reward on every task", "semantic.oracle_max", "gold")
async def oracle_max(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if subject.info.reward_range is None:
        raise NotApplicable("the class does not declare its `reward_range`")
    below: list[Evidence] = []
    plays = [play for play in await subject.played("oracle") if play.failure is None]
    cut = [play for play in plays if play.stopped in ("turn_limit", "time_limit")]
    for play in plays:
        if play not in cut and play.value is not None and play.value < subject.top - subject.tolerance:
            below.append(evidence(play, f"earned {play.value:g} of {subject.top:g} ({play.outcome})"))
    if not any(play.value is not None for play in plays):
        raise NotApplicable("no episode of the oracle was scored")
    if not any(_entries(play) for play in plays):
        raise NotApplicable("no step and no grade gave a reward (see `unscored`)")
    if below:
        yield error("the oracle does not earn the best reward: either it or the verifier is wrong", below)
    elif cut:
        raise NotApplicable(
            f"{len(cut)} of {len(plays)} episodes of the oracle were stopped after {ORACLE_TURNS} turns or "
            f"{subject.settings.episode_seconds:g} s, so it is unknown what it would have earned"
        )


@suite.check("unscored", "An episode that ends has a reward", "runtime.reward_well_formed")
async def unscored(subject: ValidationTarget) -> AsyncIterator[Problem]:
    names = ("oracle", "random", "empty") if subject.local is not None and subject.has_oracle else IDLE
    plays = [play for name in names for play in await subject.played(name)]
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
async def reward_range(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if subject.info.reward_range is None:
        yield warning("the class does not declare its `reward_range`, so it is unknown how good a reward is")
        return
    low, high = subject.info.reward_range
    outside = [
        evidence(play, f"earned {play.value:g}, outside of {low:g} to {high:g}")
        for name in ("oracle", *IDLE)
        for play in await _if_any(subject, name)
        if subject.out_of_range(play.value)
    ]
    tricks = [one for one in subject.outside if not (one.policy == "repetition" and _FARMED in subject.failed)]
    outside += {(one.split, one.task, one.policy): one for one in tricks}.values()
    if outside:
        yield error(
            "total rewards are outside of the declared `reward_range`: correct the reward or the range", outside
        )


_FARMED: Final = "gameability:repetition"
"""The kind of check that alone reports the rewards of repeated actions."""


async def _if_any(subject: ValidationTarget, name: str) -> tuple[Trajectory, ...]:
    try:
        return await subject.played(name)
    except NotApplicable:
        return ()


@suite.check("components", "The components of a reward, each times its weight, add up to it",
             "runtime.rubric_introspectable", "runtime.reward_attribution")  # fmt: skip
async def components(subject: ValidationTarget) -> AsyncIterator[Problem]:
    wrong: list[Evidence] = []
    for name in ("oracle", *IDLE):
        for play in await _if_any(subject, name):
            for what, reward in _entries(play):
                parts = [part for part in reward.components.values() if part.weight]
                if reward.value is None or not parts or reward.missing:
                    continue
                total = math.fsum(part.value * part.weight for part in parts)
                if not math.isclose(total, reward.value, rel_tol=1e-6, abs_tol=subject.tolerance):
                    wrong.append(
                        evidence(play, f"{what}: the components add up to {total:g}, the reward is {reward.value:g}")
                    )
    if wrong:
        yield error(
            "the components of a reward do not add up to it: give each its weight, and weight 0 to those that only "
            "reported",
            wrong,
        )


def _entries(play: Trajectory) -> list[tuple[str, Reward]]:
    found = [(f"step {step.step}", step.reward) for step in play.steps if step.reward is not None]
    return [*found, *([("grade", play.grade)] if play.grade is not None else [])]


@suite.check("floor-gap", "A policy that does nothing, guesses or always does the same stays near the random baseline",
             "semantic.floor_gap", "noop")  # fmt: skip
async def floor_gap(subject: ValidationTarget) -> AsyncIterator[Problem]:
    await _if_any(subject, "oracle")  # sets the best reward if the class does not declare it
    if subject.bad_baseline is not None:
        yield error(
            f"{subject.bad_baseline}, so a policy cannot be distinguished from a solution; correct `random_baseline`"
        )
        return
    for name, what in (
        ("no-op", "a policy that does nothing"),
        ("empty", "a policy that calls every tool with empty arguments and submits an empty answer"),
        ("random", "a policy that acts at random"),
    ):
        earned = [(value, play) for play in await subject.played(name) if (value := subject.earned(play)) is not None]
        values = [value for value, _ in earned]
        if values and subject.share(_mean(values)) >= subject.settings.margin:
            ranked = sorted(earned, key=lambda one: -one[0])
            yield error(
                f"{what} earns {_mean(values):.3g} on average; the random baseline is "
                f"{subject.random_baseline:g} and the best reward is "
                f"{subject.top:g}: the verifier rewards doing nothing, or the class should declare what guessing earns "
                "(`random_baseline = …`)",
                [evidence(play, f"earned {value:g}") for value, play in ranked if value > subject.random_baseline],
            )
            return
    async for problem in _constant(subject):
        yield problem


async def _constant(subject: ValidationTarget) -> AsyncIterator[Problem]:
    """Check whether the actions that solve one task also solve the others."""
    try:
        plays = [play for play in await subject.played("oracle") if play.value is not None]
    except NotApplicable:
        return
    scripts: dict[str, Script] = {}
    for play in plays:
        script = subject.script(play)
        scripts.setdefault(str(script.actions), script)
    rows = subject.tasks
    if len(rows) <= FEW or "seed-variation" in subject.failed:
        return
    for script in list(scripts.values())[:CONSTANTS]:
        others = [row for row in rows if (row.split, row.id) != (script.split, script.task)]
        values = []
        for row in others:
            again = Script(row.split, row.id, subject.seed_of(row), script.actions, "constant")
            try:
                total = subject.total(await subject.perform(again))
            except LudusError:
                continue
            if total is not None:
                values.append(total)
        alike = sum(subject.share(value) >= subject.settings.margin for value in values)
        if alike > 1 and subject.share(_mean(values)) >= subject.settings.margin:
            yield error(
                f"the solution of one task earns {_mean(values):.3g} on the others; the random baseline is "
                f"{subject.random_baseline:g}: a "
                "policy that always does the same is rewarded; vary the answers, or declare `random_baseline = …`",
                [evidence_of(script, f"always {short(str(list(script.actions)), 90)}")],
            )
            return


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@suite.check("canary-floor", "The author's own exploits earn no more than the random baseline", "semantic.canary_floor")
async def canary_floor(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if subject.local is None:
        raise NotApplicable(subject.no_class_reason)
    rows = subject.sample_tasks(4)
    names = sorted({name for row in rows for name in subject.local.cls.exploits(subject.task(row))})
    if not names:
        raise NotApplicable("the class lists no `exploits`")
    rewarded: list[Evidence] = []
    for name in names:
        for play in await subject.play(_Exploit(subject, name), tasks=rows):
            value = subject.earned(play)
            if value is not None and subject.share(value) >= subject.settings.margin:
                rewarded.append(evidence(play, f"earned {value:g}"))
    if rewarded:
        yield error("known exploits earn rewards: the verifier is weaker than its author states", rewarded)


class _Exploit:
    """A policy that plays an exploit that the class lists under a name."""

    sees_rewards = True

    def __init__(self, subject: ValidationTarget, name: str) -> None:
        self._subject = subject
        self._exploit = name
        self.name = f"exploit {name}"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        task = self._subject.task(conversation.task)
        moves = self._subject.local.cls.exploits(task).get(self._exploit)
        return Moves(moves if moves is not None else _no_moves())


def _no_moves() -> Generator[Action, StepResult, None]:
    yield from ()
