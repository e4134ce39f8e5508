"""The same again: seeds, processes, neighbours and orders that must make no difference, and seeds that must."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from ludus.client.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.client.validation.subject import Subject, evidence_of
from ludus.client.validation.transcripts import Script, Transcript, difference, perform
from ludus.protocol.actions import Call
from ludus.protocol.episodes import Candidate
from ludus.protocol.errors import LudusError, Unsupported

suite = Suite()

SEEDS: Final = 6
"""Different seeds that are tried."""

REPEATS: Final = 4
"""How often the same episode is played to see whether its verifier wavers."""


async def _seeded(subject: Subject) -> list[Script]:
    if not subject.info.seedable:
        raise NotApplicable("the environment takes no seed (`seedable = False`)")
    return await subject.scripts()


@suite.check("seed-control", "The same seed and the same actions lead to the same observations",
             "runtime.seed_control", "runtime.episode_determinism", "semantic.replayability")  # fmt: skip
async def seed_control(subject: Subject) -> AsyncIterator[Problem]:
    parted: list[Evidence] = []
    for script in await _seeded(subject):
        first, again = await subject.perform(script), await subject.perform(script)
        if where := difference(_observed(first), _observed(again)):
            parted.append(evidence_of(script, where))
    if parted:
        yield error(
            "the same seed leads elsewhere: draw everything from `self.rng`, not from `random` or the clock; or "
            "say `seedable = False`",
            parted,
        )


@suite.check("seed-variation", "Different seeds lead to different episodes, where there is anything to vary",
             "runtime.seed_control")  # fmt: skip
async def seed_variation(subject: Subject) -> AsyncIterator[Problem]:
    if not subject.info.seedable:
        raise NotApplicable("the environment takes no seed (`seedable = False`)")
    for split in subject.splits:
        if split.info.count is not None and split.info.count < 8:
            continue
        drawn = {(await subject.environment.sample(split.info.name, 1, seed=seed))[0].id for seed in range(2 * SEEDS)}
        if len(drawn) == 1:
            yield error(
                "every seed draws the same task of a split", [Evidence("twelve seeds, one task", split.info.name)]
            )
    by_seed = getattr(subject.authored.cls, "differ_by", "task") == "seed" if subject.authored is not None else False
    alone = sum(split.info.count or 2 for split in subject.splits) == 1
    if not by_seed and not alone:
        return
    scripts = await subject.scripts(each=2)
    same = [script for script in scripts if await _all_alike(subject, script)]
    if len(same) == len(scripts):
        yield error(
            "every seed leads to the same episode, and the tasks do not differ either: there is one problem to learn "
            "by heart; draw from `self.rng`",
            [evidence_of(script, f"{SEEDS} seeds, one transcript") for script in same],
        )


async def _all_alike(subject: Subject, script: Script) -> bool:
    first = await subject.perform(script)
    for seed in range(1, SEEDS):
        other = Script(script.split, script.task, (script.seed or 0) + seed, script.actions, script.origin)
        if difference(first.events, (await subject.perform(other)).events):
            return False
    return True


@suite.check("determinism", "Another process says the same", "hub.cross_host_determinism")
async def determinism(subject: Subject) -> AsyncIterator[Problem]:
    if subject.second is None:
        raise NotApplicable("this needs a second process, which is started for names and classes, not for addresses")
    elsewhere = await subject.second()
    parted: list[Evidence] = []
    for script in await _seeded(subject):
        here = await subject.perform(script)
        if difference(here.events, (await subject.perform(script)).events):
            continue  # `seed-control` and `verifier-determinism` say what is wrong here
        there = await perform(elsewhere, script, subject.settings.secrets)
        if where := difference(_beside_the_task(here), _beside_the_task(there)):
            if here.part("prompt") == there.part("prompt") or here.part("task") == there.part("task"):
                parted.append(evidence_of(script, where))
    if parted and not await _tasks_moved(subject):
        yield error(
            "another process, with another hash seed and time zone, leads elsewhere: do not depend on the order of "
            "sets, on `hash()`, or on the local time",
            parted,
        )


def _beside_the_task(transcript: Transcript) -> tuple[tuple[str, object], ...]:
    return transcript.without("task")


async def _tasks_moved(subject: Subject) -> bool:
    """Whether the tasks themselves differ between processes, which `task-stability` reports."""
    assert subject.second is not None
    elsewhere = await subject.second()
    for row in subject.few(4):
        if not row.fields:
            continue
        try:
            if await elsewhere.task(row.split, index=row.index) != row:
                return True
        except LudusError:
            return True
    return False


@suite.check("isolation", "Episodes that run side by side are as episodes that run alone",
             "runtime.episode_isolation")  # fmt: skip
async def isolation(subject: Subject) -> AsyncIterator[Problem]:
    scripts = (await _seeded(subject))[:6]
    stable: list[tuple[Script, Transcript]] = []
    for script in scripts:
        alone = await subject.perform(script)
        if not difference(alone.events, (await subject.perform(script)).events):
            stable.append((script, alone))
    if not stable:
        raise NotApplicable("no episode can be repeated even alone")
    # Twice each: episodes of one task are the likeliest to share something.
    doubled = [script for script, _ in stable for _ in range(2)]
    alone_twice = [transcript for _, transcript in stable for _ in range(2)]
    together = await subject.perform_together(doubled)
    touched = [
        evidence_of(script, f"beside {len(doubled) - 1} others, {where}")
        for script, alone, beside in zip(doubled, alone_twice, together, strict=True)
        if (where := difference(alone.events, beside.events))
    ]
    if touched:
        yield error(
            "episodes touch each other: keep what an episode knows in `self`, not in the class, the module or a file",
            touched,
        )


@suite.check("verifier-determinism", "The same episode earns the same, each time and in any order",
             "semantic.verifier_determinism", "statistical.variance_bound")  # fmt: skip
async def verifier_determinism(subject: Subject) -> AsyncIterator[Problem]:
    scripts = await subject.scripts(each=3)
    first = {script: await subject.perform(script) for script in scripts}
    wavering: dict[Script, str] = {}
    for number in range(REPEATS):
        for script in reversed(scripts) if number % 2 == 0 else scripts:
            again = await subject.perform(script)
            if _observed(again) == _observed(first[script]) and (where := _rewarded(first[script], again)):
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


def _rewarded(one: Transcript, other: Transcript) -> str | None:
    return difference(one.part(*_REWARDS), other.part(*_REWARDS))


@suite.check("fork", "A fork goes on as its origin does")
async def fork(subject: Subject) -> AsyncIterator[Problem]:
    if not subject.info.forkable:
        raise NotApplicable("the environment cannot be forked (`forkable = False`)")
    parted: list[Evidence] = []
    for script in (await subject.scripts(each=3))[:6]:
        actions = [action for action in script.actions if isinstance(action, Call)]
        if len(actions) < 2:
            continue
        if where := await _forked(subject, script, actions, len(actions) // 2):
            parted.append(evidence_of(script, where))
    if parted:
        yield error("forks go another way than the episode they came from: say `forkable = False`", parted)


async def _forked(subject: Subject, script: Script, actions: Sequence[Call], place: int) -> str | None:
    async with subject.environment.episode(
        split=script.split, task=script.task, seed=script.seed, secrets=subject.settings.secrets
    ) as episode:
        for action in actions[:place]:
            if (await episode.call(action)).ended:
                return None
        try:
            branch = await episode.fork()
        except Unsupported as refusal:
            return refusal.message
        async with branch:
            for action in actions[place:]:
                one, other = await episode.call(action), await branch.call(action)
                if one != other:
                    return f"after step {place}, {action.tool}: {short(one.content)} and {short(other.content)}"
                if one.ended:
                    return None
    return None


@suite.check("group-order", "Scores of a group do not depend on the order of its members",
             "semantic.verifier_determinism")  # fmt: skip
async def group_order(subject: Subject) -> AsyncIterator[Problem]:
    if not subject.info.group_scoring:
        raise NotApplicable("the environment does not score groups")
    swayed: list[Evidence] = []
    for row in subject.few(2):
        async with subject.environment.group(3, split=row.split, task=row.id, seed=subject.seed()) as group:
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
                told = [first[name].value for name in candidates], [again[name].value for name in candidates]
                swayed.append(Evidence(f"{told[0]} and, in the reverse order, {told[1]}", row.split, row.id))
    if swayed:
        yield warning("scores depend on who is named first: compare each pair in both orders", swayed)
