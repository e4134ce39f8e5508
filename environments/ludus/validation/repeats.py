"""Checks of reproducibility in one process: equal seeds, parallel episodes and orders must not change the results.

Different seeds must change them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from ludus.client.episode import Episode
from ludus.protocol.actions import Answer
from ludus.protocol.episodes import Candidate
from ludus.protocol.errors import Forbidden, MethodNotFound, NotFound, Unsupported
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.surroundings import CAUSES
from ludus.validation.target import ValidationTarget, evidence_of
from ludus.validation.transcripts import (
    Script,
    Transcript,
    difference,
    perform_at_once,
    perform_together,
    reward_json,
)

suite = Suite()

SEEDS: Final = 6
"""The number of different seeds that are tried."""

REPEATS: Final = 4
"""How often the same episode is repeated to see whether its verifier is stable."""


async def explain(target: ValidationTarget, parted: Mapping[Script, str], otherwise: str) -> AsyncIterator[Problem]:
    """Yield a problem for each cause of differences, with its remedy.

    Args:
        target: what is checked.
        parted: the scripts whose results differ, each with the first difference.
        otherwise: the message for scripts whose cause is not found.
    """
    found = await target.causes_of(list(parted)) if parted else {}
    by_cause: dict[str, list[Evidence]] = {}
    unknown: list[Evidence] = []
    for script, where in parted.items():
        places = found.get(script)
        if places is None and found:
            continue  # there are more scripts than are examined
        if not places:
            unknown.append(evidence_of(script, where))
        for one in places or ():
            read = f" ({'; '.join(map(str, one.reads[:2]))})" if one.reads else ""
            by_cause.setdefault(one.cause.name, []).append(evidence_of(script, f"{where}{read}"))
    for name, evidence in by_cause.items():
        cause = CAUSES[name]
        part = evidence[0].detail.partition(":")[0]
        yield error(f"{part} follows {cause.what}: {cause.advice}", evidence, cause=name)
    if unknown:
        yield error(otherwise, unknown)


async def play_twice(target: ValidationTarget) -> list[tuple[Script, Transcript, Transcript]]:
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
                found.append((script, first, again := await target.perform(script)))
                if not difference(first.events, again.events):
                    target.steady.append((script, first))
        return found

    if not (found := await target.once("twice", play)):
        raise NotApplicable("every episode failed (see `crash`)")
    return found


@suite.check("seed-control", "The same seed and the same actions lead to the same observations",
             "runtime.seed_control", "runtime.episode_determinism", "semantic.replayability")  # fmt: skip
async def seed_control(target: ValidationTarget) -> AsyncIterator[Problem]:
    parted: dict[Script, str] = {}
    for script, first, again in await play_twice(target):
        if where := difference(observed(first), observed(again)):
            parted[script] = where
    async for problem in explain(
        target,
        parted,
        "the same seed gives different observations: draw everything from `self.rng`, not from `random` or the "
        "clock, or declare `seedable = False`",
    ):
        yield problem


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


@suite.check("isolation", "Episodes that run at the same time equal episodes that run alone",
             "runtime.episode_isolation")  # fmt: skip
async def isolation(target: ValidationTarget) -> AsyncIterator[Problem]:
    stable = [(script, first) for script, first, again in (await play_twice(target))[:6]
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
            if observed(again) == observed(first[script]) and (
                where := difference(first[script].part(*_REWARDS), again.part(*_REWARDS))
            ):
                wavering.setdefault(script, where)
    async for problem in explain(
        target,
        wavering,
        "the same observations earn different rewards: the verifier draws at random, counts its calls, or asks a "
        "judge without a fixed seed",
    ):
        yield problem


_REWARDS: Final = ("reward", "grade", "total")


def observed(transcript: Transcript) -> tuple[tuple[str, object], ...]:
    """Return what the policy sees of an episode."""
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
