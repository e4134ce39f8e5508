"""Checks of reproducibility: equal seeds, other processes, parallel episodes and orders must not change the results.

Different seeds must change them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from ludus.client.environment import RemoteEnvironment
from ludus.client.episode import Episode
from ludus.protocol.actions import Answer
from ludus.protocol.episodes import Candidate
from ludus.protocol.errors import Forbidden, LudusError, MethodNotFound, NotFound, Unsupported
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.target import ValidationTarget, evidence_of
from ludus.validation.transcripts import (
    Script,
    Transcript,
    difference,
    perform,
    perform_at_once,
    perform_together,
    reward_json,
)

suite = Suite()

SEEDS: Final = 6
"""The number of different seeds that are tried."""

REPEATS: Final = 4
"""How often the same episode is repeated to see whether its verifier is stable."""


async def _twice(target: ValidationTarget) -> list[tuple[Script, Transcript, Transcript]]:
    """Play each script alone twice, and return it with both transcripts; scripts that break are left to `crash`.

    Raises:
        NotApplicable: the environment takes no seed, its noise differs per episode, or every episode broke.
    """
    if not target.info.seedable:
        raise NotApplicable("the environment takes no seed (`seedable = False`)")
    noise = target.local.cls.noise if target.local is not None else None
    if noise is not None and noise.per_episode and noise.rate:
        raise NotApplicable("its noise differs in each episode (`per_episode`); validate it without noise as well")

    async def play() -> list[tuple[Script, Transcript, Transcript]]:
        found = []
        for script in await target.scripts():
            first = await target.perform(script)
            if not first.failed:
                found.append((script, first, await target.perform(script)))
        return found

    if not (found := await target.once("twice", play)):
        raise NotApplicable("every episode failed (see `crash`)")
    return found


@suite.check("seed-control", "The same seed and the same actions lead to the same observations",
             "runtime.seed_control", "runtime.episode_determinism", "semantic.replayability")  # fmt: skip
async def seed_control(target: ValidationTarget) -> AsyncIterator[Problem]:
    parted: list[Evidence] = []
    for script, first, again in await _twice(target):
        if where := difference(_observed(first), _observed(again)):
            parted.append(evidence_of(script, where))
    if parted:
        yield error(
            "the same seed gives different observations: draw everything from `self.rng`, not from `random` or the "
            "clock, or declare `seedable = False`",
            parted,
        )


@suite.check("seed-variation", "Different seeds lead to different episodes if anything can vary",
             "runtime.seed_control")  # fmt: skip
async def seed_variation(target: ValidationTarget) -> AsyncIterator[Problem]:
    if not target.info.seedable:
        raise NotApplicable("the environment takes no seed (`seedable = False`)")
    for split in target.splits:
        if split.info.count is not None and split.info.count < 8:
            continue
        drawn = {(await target.environment.sample(split.info.name, 1, seed=seed))[0].id for seed in range(2 * SEEDS)}
        if len(drawn) == 1:
            yield error(
                "every seed draws the same task of a split", [Evidence("twelve seeds, one task", split.info.name)]
            )
    by_seed = getattr(target.local.cls, "varies_by", "task") == "seed" if target.local is not None else False
    alone = sum(split.info.count or 2 for split in target.splits) == 1
    if not by_seed and not alone:
        return
    scripts = await target.scripts(each=2)
    same = [script for script in scripts if await _all_alike(target, script)]
    if len(same) == len(scripts):
        yield error(
            "every seed leads to the same episode, and the tasks do not differ either, so a policy can memorize the "
            "one problem: draw from `self.rng`",
            [evidence_of(script, f"{SEEDS} seeds, one transcript") for script in same],
        )


async def _all_alike(target: ValidationTarget, script: Script) -> bool:
    first = await target.perform(script)
    if first.failed:
        return False
    for seed in range(1, SEEDS):
        other = Script(script.split, script.task, (script.seed or 0) + seed, script.actions, script.origin)
        if difference(first.events, (await target.perform(other)).events):
            return False
    return True


@suite.check("determinism", "The same seed gives the same episode in another process", "hub.cross_host_determinism")
async def determinism(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.second is None:
        raise NotApplicable("this needs a second process, which is started for names and classes, not for addresses")
    elsewhere = await target.second()
    parted: list[Evidence] = []
    for script, here, again in await _twice(target):
        if difference(here.events, again.events):
            continue  # `seed-control` and `verifier-determinism` report this
        there = await perform(elsewhere, script, target.settings.secrets)
        if where := difference(here.without("task"), there.without("task")):
            moved = here.part("prompt") != there.part("prompt") and here.part("task") != there.part("task")
            if not moved and not await _is_unstable(target, elsewhere, here, there):
                parted.append(evidence_of(script, where))
    if parted and not await _tasks_differ(target):
        yield error(
            "another process, with another hash seed and time zone, gives different observations: do not depend on "
            "the order of sets, on `hash()`, or on the local time",
            parted,
        )


async def _is_unstable(
    target: ValidationTarget, elsewhere: RemoteEnvironment, here: Transcript, there: Transcript
) -> bool:
    """Return whether one of two processes differs from itself, so that the process is not the cause."""
    for _ in range(REPEATS):
        again = await target.perform(here.script)
        other = await perform(elsewhere, there.script, target.settings.secrets)
        if difference(here.events, again.events) or difference(there.events, other.events):
            return True
    return False


async def _tasks_differ(target: ValidationTarget) -> bool:
    """Return whether the tasks themselves differ between processes, which `task-stability` reports."""
    assert target.second is not None
    elsewhere = await target.second()
    for row in target.sample_tasks(4):
        if not row.fields:
            continue
        try:
            if await elsewhere.task(row.split, index=row.index) != row:
                return True
        except LudusError:
            return True
    return False


@suite.check("isolation", "Episodes that run at the same time equal episodes that run alone",
             "runtime.episode_isolation")  # fmt: skip
async def isolation(target: ValidationTarget) -> AsyncIterator[Problem]:
    stable = [(script, first) for script, first, again in (await _twice(target))[:6]
              if not difference(first.events, again.events)]  # fmt: skip
    if not stable:
        raise NotApplicable("no episode can be repeated even alone")
    # Each script is played twice, because episodes of the same task are the most likely to share state.
    doubled = [script for script, _ in stable for _ in range(2)]
    alone = [transcript for _, transcript in stable for _ in range(2)]
    touched: dict[str, Evidence] = {}
    for perform_all in (perform_together, perform_at_once):
        beside = await perform_all(target.environment, doubled, target.settings.secrets)
        for script, one, other in zip(doubled, alone, beside, strict=True):
            if where := difference(one.events, other.events):
                touched.setdefault(
                    f"{script.split}/{script.task}", evidence_of(script, f"next to {len(doubled) - 1} others, {where}")
                )
    if touched:
        yield error(
            "episodes affect each other: keep an episode's state in `self`, not in the class, the module or a file",
            touched.values(),
        )


@suite.check("verifier-determinism", "The same episode earns the same reward each time and in any order",
             "semantic.verifier_determinism", "statistical.variance_bound")  # fmt: skip
async def verifier_determinism(target: ValidationTarget) -> AsyncIterator[Problem]:
    scripts = await target.scripts(each=3)
    first = {script: played for script in scripts if not (played := await target.perform(script)).failed}
    if not first:
        raise NotApplicable("every episode failed (see `crash`)")
    wavering: dict[Script, str] = {}
    for number in range(REPEATS):
        for script in reversed(first) if number % 2 == 0 else first:
            again = await target.perform(script)
            if _observed(again) == _observed(first[script]) and (
                where := difference(first[script].part(*_REWARDS), again.part(*_REWARDS))
            ):
                wavering.setdefault(script, where)
    if wavering:
        yield error(
            "the same observations earn different rewards: the verifier draws at random, counts its calls, or asks a "
            "judge without a fixed seed",
            [evidence_of(script, where) for script, where in wavering.items()],
        )


_REWARDS: Final = ("reward", "grade", "total")


def _observed(transcript: Transcript) -> tuple[tuple[str, object], ...]:
    return transcript.without(*_REWARDS)


@suite.check("fork", "A fork continues as its source does")
async def fork(target: ValidationTarget) -> AsyncIterator[Problem]:
    if not target.info.forkable:
        raise NotApplicable("the environment cannot be forked (`forkable = False`)")
    parted: list[Evidence] = []
    for script in (await target.scripts(each=3))[:6]:
        if len(script.actions) < 2:
            continue
        # Repeated, because an unstable verifier also makes a fork differ from its origin, but not each time.
        parts = [await _fork_difference(target, script)]
        while parts[-1] and len(parts) < REPEATS:
            parts.append(await _fork_difference(target, script))
        if where := parts[-1]:
            parted.append(evidence_of(script, where))
    if parted:
        yield error("forks differ from the episode they came from: declare `forkable = False`", parted)


async def _fork_difference(target: ValidationTarget, script: Script) -> str | None:
    """Describe how a fork from the middle of a script differs from its origin; return None if it does not."""
    place = len(script.actions) // 2
    async with target.environment.episode(
        split=script.split, task=script.task, seed=script.seed, secrets=target.settings.secrets
    ) as episode:
        for action in script.actions[:place]:
            if isinstance(action, Answer) or (await episode.call(action)).ended:
                return None
        try:
            branch = await episode.fork()
        except Unsupported as refusal:
            return refusal.message
        async with branch:
            for action in script.actions[place:]:
                if isinstance(action, Answer):
                    graded, other_graded = await episode.grade(action.text), await branch.grade(action.text)
                    return _describe_difference(
                        f"after step {place}, the grade", reward_json(graded.reward), reward_json(other_graded.reward)
                    ) or _describe_difference(
                        "the total", reward_json(graded.info.reward), reward_json(other_graded.info.reward)
                    )
                one, other = await episode.call(action), await branch.call(action)
                if one != other:
                    orders = (one.content, one.reward), (other.content, other.reward)
                    return (
                        _describe_difference(f"after step {place}, {action.tool}", *orders)
                        or f"after step {place}, {action.tool}"
                    )
                if one.ended:
                    return None
            with contextlib.suppress(Unsupported, Forbidden, MethodNotFound, NotFound):
                return _describe_difference("the total", await _total(episode), await _total(branch))
    return None


async def _total(episode: Episode) -> object:
    return reward_json((await episode.rewards()).total)


def _describe_difference(what: str, one: object, other: object) -> str | None:
    return None if one == other else f"{what}: {short(one)} and {short(other)}"


@suite.check("group-order", "Scores of a group do not depend on the order of its members",
             "semantic.verifier_determinism")  # fmt: skip
async def group_order(target: ValidationTarget) -> AsyncIterator[Problem]:
    if not target.info.group_scoring:
        raise NotApplicable("the environment does not score groups")
    swayed: list[Evidence] = []
    for row in target.sample_tasks(2):
        async with target.environment.group(3, split=row.split, task=row.id, seed=target.seed()) as group:
            said = ["yes", "I do not know.", "A longer answer, with reasons, that is just as wrong."]
            candidates = {
                episode.id: Candidate.model_validate(
                    {"messages": [{"role": "assistant", "content": [{"type": "text", "text": text}]}]}
                )
                for episode, text in zip(group, said, strict=True)
            }
            first = await group.score(candidates)
            again = await group.score(dict(reversed(candidates.items())))
            if {name: one.value for name, one in first.items()} != {name: one.value for name, one in again.items()}:
                orders = [first[name].value for name in candidates], [again[name].value for name in candidates]
                swayed.append(Evidence(f"{orders[0]} and, in the reverse order, {orders[1]}", row.split, row.id))
    if swayed:
        yield warning("scores depend on the order of the candidates: compare each pair in both orders", swayed)
