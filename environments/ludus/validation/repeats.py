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
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.surroundings import CAUSES
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import (
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
    causes = await target.causes_of(list(parted)) if parted else {}
    by_cause: dict[str, list[Evidence]] = {}
    unknown: list[Evidence] = []
    for script, change in parted.items():
        found_causes = causes.get(script)
        if found_causes is None and causes:
            continue  # there are more scripts than are examined
        if not found_causes:
            unknown.append(evidence_of(script, change))
        for finding in found_causes or ():
            origin = f" ({'; '.join(map(str, finding.reads[:2]))})" if finding.reads else ""
            by_cause.setdefault(finding.cause.name, []).append(evidence_of(script, f"{change}{origin}"))
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
        pairs = []
        for script in await target.scripts():
            original = await target.perform(script)
            if not original.failed:
                pairs.append((script, original, again := await target.perform(script)))
                if not difference(original.events, again.events):
                    target.steady.append((script, original))
        return pairs

    if not (pairs := await target.once("twice", play)):
        raise NotApplicable("every episode failed (see `crash`)")
    return pairs


@suite.check("seed-control", "The same seed and the same actions lead to the same observations",
             "runtime.seed_control", "runtime.episode_determinism", "semantic.replayability")  # fmt: skip
async def seed_control(target: ValidationTarget) -> AsyncIterator[Problem]:
    parted: dict[Script, str] = {}
    for script, original, again in await play_twice(target):
        if change := difference(observed(original), observed(again)):
            parted[script] = change
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
    unchanged = [script for script in scripts if await _all_alike(target, script)]
    if len(unchanged) == len(scripts):
        yield error(
            "every seed leads to the same episode, and the tasks do not differ either, so a policy can memorize the "
            "one problem: draw from `self.rng`",
            [evidence_of(script, f"{SEEDS} seeds, one transcript") for script in unchanged],
        )


async def _all_alike(target: ValidationTarget, script: Script) -> bool:
    original = await target.perform(script)
    if original.failed:
        return False
    for seed in range(1, SEEDS):
        reseeded = Script(script.split, script.task, (script.seed or 0) + seed, script.actions, script.origin)
        if difference(original.events, (await target.perform(reseeded)).events):
            return False
    return True


@suite.check("isolation", "Episodes that run at the same time equal episodes that run alone",
             "runtime.episode_isolation")  # fmt: skip
async def isolation(target: ValidationTarget) -> AsyncIterator[Problem]:
    stable = [(script, original) for script, original, again in (await play_twice(target))[:6]
              if not difference(original.events, again.events)]  # fmt: skip
    if not stable:
        raise NotApplicable("no episode can be repeated even alone")
    # Each script is played twice, because episodes of the same task are the most likely to share state.
    doubled = [script for script, _ in stable for _ in range(2)]
    alone = [transcript for _, transcript in stable for _ in range(2)]
    touched: dict[str, Evidence] = {}
    for perform_all in (perform_together, perform_at_once):
        beside = await perform_all(target.environment, doubled, target.settings.secrets)
        for script, alone_run, joint_run in zip(doubled, alone, beside, strict=True):
            if change := difference(alone_run.events, joint_run.events):
                touched.setdefault(
                    f"{script.split}/{script.task}", evidence_of(script, f"next to {len(doubled) - 1} others, {change}")
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
    originals = {script: played for script in scripts if not (played := await target.perform(script)).failed}
    if not originals:
        raise NotApplicable("every episode failed (see `crash`)")
    wavering: dict[Script, str] = {}
    for number in range(REPEATS):
        for script in reversed(originals) if number % 2 == 0 else originals:
            again = await target.perform(script)
            if observed(again) == observed(originals[script]) and (
                change := difference(originals[script].part(*_REWARDS), again.part(*_REWARDS))
            ):
                wavering.setdefault(script, change)
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
        if change := parts[-1]:
            parted.append(evidence_of(script, change))
    if parted:
        yield error("forks differ from the episode they came from: declare `forkable = False`", parted)


async def _fork_difference(target: ValidationTarget, script: Script) -> str | None:
    """Describe how a fork from the middle of a script differs from its origin; return None if it does not."""
    middle = len(script.actions) // 2
    async with target.environment.episode(
        split=script.split, task=script.task, seed=script.seed, secrets=target.settings.secrets
    ) as episode:
        for action in script.actions[:middle]:
            if isinstance(action, Answer) or (await episode.call(action)).ended:
                return None
        try:
            branch = await episode.fork()
        except Unsupported as refusal:
            return refusal.message
        async with branch:
            for action in script.actions[middle:]:
                if isinstance(action, Answer):
                    graded, other_graded = await episode.grade(action.text), await branch.grade(action.text)
                    return _describe_difference(
                        f"after step {middle}, the grade", reward_json(graded.reward), reward_json(other_graded.reward)
                    ) or _describe_difference(
                        "the total", reward_json(graded.info.reward), reward_json(other_graded.info.reward)
                    )
                result, branch_result = await episode.call(action), await branch.call(action)
                if result != branch_result:
                    orders = (result.content, result.reward), (branch_result.content, branch_result.reward)
                    return (
                        _describe_difference(f"after step {middle}, {action.tool}", *orders)
                        or f"after step {middle}, {action.tool}"
                    )
                if result.ended:
                    return None
            with contextlib.suppress(Unsupported, Forbidden, MethodNotFound, NotFound):
                return _describe_difference("the total", await _total(episode), await _total(branch))
    return None


async def _total(episode: Episode) -> object:
    return reward_json((await episode.rewards()).total)


def _describe_difference(subject: str, left_value: object, right_value: object) -> str | None:
    return None if left_value == right_value else f"{subject}: {short(left_value)} and {short(right_value)}"


@suite.check("group-order", "Scores of a group do not depend on the order of its members",
             "semantic.verifier_determinism")  # fmt: skip
async def group_order(target: ValidationTarget) -> AsyncIterator[Problem]:
    if not target.info.group_scoring:
        raise NotApplicable("the environment does not score groups")
    swayed: list[Evidence] = []
    for row in target.sample_tasks(2):
        async with target.environment.group(3, split=row.split, task=row.id, seed=target.seed()) as group:
            answers = ["yes", "I do not know.", "A longer answer, with reasons, that is just as wrong."]
            candidates = {
                episode.id: Candidate.model_validate(
                    {"messages": [{"role": "assistant", "content": [{"type": "text", "text": text}]}]}
                )
                for episode, text in zip(group, answers, strict=True)
            }
            scores = await group.score(candidates)
            again = await group.score(dict(reversed(candidates.items())))
            if {name: reward.value for name, reward in scores.items()} != {
                name: reward.value for name, reward in again.items()
            }:
                orders = [scores[name].value for name in candidates], [again[name].value for name in candidates]
                swayed.append(Evidence(f"{orders[0]} and, in the reverse order, {orders[1]}", row.split, row.id))
    if swayed:
        yield warning("scores depend on the order of the candidates: compare each pair in both orders", swayed)
