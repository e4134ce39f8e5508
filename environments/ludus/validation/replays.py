"""Checks whether an episode can be repeated in another process, as durable episodes and `ludus replay` need it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from ludus.client.environment import RemoteEnvironment
from ludus.client.episode import Episode
from ludus.protocol.actions import Call
from ludus.protocol.episodes import StepResult, TaskRow
from ludus.protocol.errors import AuthoringError, EpisodeFailed, LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.surroundings import CAUSES
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script, Transcript, difference, perform, reward_json
from ludus.validation.repeats import REPEATS, explain, observed, play_twice

suite = Suite()

OVERLAPPING: Final = 4
"""The most calls that are made at the same time."""


@suite.check("determinism", "The same seed gives the same episode in another process, in other surroundings",
             "hub.cross_host_determinism")  # fmt: skip
async def determinism(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.second is None:
        raise NotApplicable("this needs a second process, which is started for names and classes, not for addresses")
    played_twice = await play_twice(target)
    try:
        elsewhere = await target.second.environment()
    except AuthoringError as refusal:
        yield error(
            f"the environment cannot be served with another clock, host name, user and working folder: "
            f"{refusal.message}"
        )
        return
    parted: dict[Script, str] = {}
    # In another order than here, so that something that earlier episodes left shows.
    for script, local, again in reversed(played_twice):
        if difference(local.events, again.events):
            continue  # `seed-control` and `verifier-determinism` report this
        remote = await perform(elsewhere, script, target.settings.secrets)
        if change := difference(local.without("task"), remote.without("task")):
            moved = local.part("prompt") != remote.part("prompt") and local.part("task") != remote.part("task")
            wavers = not difference(observed(local), observed(remote)) and await _wavers(
                target, elsewhere, local, remote
            )
            if not moved and not wavers:
                parted[script] = change
    if not parted or await _tasks_differ(target):
        return
    async for problem in explain(
        target,
        parted,
        "another process gives something else: do not depend on the order of sets, on `hash()`, on clocks, on the "
        "machine, or on what earlier episodes left",
    ):
        yield problem


async def _wavers(
    target: ValidationTarget, elsewhere: RemoteEnvironment, local: Transcript, remote: Transcript
) -> bool:
    """Return whether rewards differ within one process, which `verifier-determinism` reports."""
    for _ in range(REPEATS):
        again = await target.perform(local.script)
        remote_again = await perform(elsewhere, remote.script, target.settings.secrets)
        if difference(local.events, again.events) or difference(remote.events, remote_again.events):
            return True
    return False


async def _tasks_differ(target: ValidationTarget) -> bool:
    """Return whether the tasks themselves differ between processes, which `task-stability` reports."""
    assert target.second is not None
    elsewhere = await target.second.environment()
    for row in target.sample_tasks(4):
        if not row.fields:
            continue
        try:
            if await elsewhere.task(row.split, index=row.index) != row:
                return True
        except LudusError:
            return True
    return False


@suite.check("network", "Tools do not reach beyond this machine, unless the replies are recorded")
async def network(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.second is None:
        raise NotApplicable("this needs a second process, which is started for names and classes, not for addresses")
    try:
        elsewhere = await target.second.environment()
    except AuthoringError as refusal:
        raise NotApplicable("the environment cannot be served in other surroundings (see `determinism`)") from refusal
    for script in await target.scripts():
        with suppress(EpisodeFailed):  # `crash` reports it
            await perform(elsewhere, script, target.settings.secrets)
    owners = {"", *(base.__name__ for base in target.local.cls.__mro__)} if target.local is not None else {""}
    reads = {request for request in target.second.reads if request.what == "network" and request.owner in owners}
    if reads:
        cause = CAUSES["network"]
        yield warning(
            f"an episode uses {cause.what}, which may answer otherwise when it is repeated: {cause.advice}",
            [Evidence(f"{request.place}: {request.function}") for request in sorted(reads, key=str)],
            cause="network",
        )


@suite.check("overlap", "Calls that overlapped give the same when they are repeated one at a time")
async def overlap(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.local is None:
        raise NotApplicable(target.no_class_reason)
    names = {tool.name for tool in target.local.tools.values() if tool.concurrent}
    if not names:
        raise NotApplicable("no tool has `concurrent=True`")
    if not target.info.seedable:
        raise NotApplicable("the environment takes no seed (`seedable = False`)")
    parted: list[Evidence] = []
    for row in target.sample_tasks(4):
        calls = await _calls_of(target, row, names)
        if len(calls) > 1 and (change := await _overlap_difference(target, row, calls)):
            script = Script(row.split, row.id, target.seed_of(row), tuple(calls), "overlapping")
            parted.append(evidence_of(script, change))
    if parted:
        yield error(
            "calls that overlap affect each other, so repeating them one at a time leads to another state: change what "
            "they share without an `await` in between, or leave `concurrent=True` out",
            parted,
            cause="overlap",
        )


async def _calls_of(target: ValidationTarget, row: TaskRow, names: set[str]) -> list[Call]:
    """Return calls of concurrent tools that policies have made on a task, the first ones again if they are few."""
    calls = [
        action
        for script in await target.scripts()
        if (script.split, script.task) == (row.split, row.id)
        for action in script.actions
        if isinstance(action, Call) and action.tool in names
    ]
    return (calls * OVERLAPPING)[:OVERLAPPING]


async def _overlap_difference(target: ValidationTarget, row: TaskRow, calls: Sequence[Call]) -> str | None:
    """Describe how calls that overlap differ from the same calls one at a time, in the order in which they settled."""
    start = {"split": row.split, "task": row.id, "seed": target.seed_of(row), "secrets": target.settings.secrets}
    order: list[int] = []
    results: dict[int, Any] = {}

    async def make(episode: Episode, index: int) -> None:
        try:
            results[index] = _comparable(await episode.call(calls[index]))
        except LudusError as failure:
            results[index] = type(failure).__name__
        order.append(index)

    async with await target.environment.start(**start) as episode:  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            for index in range(len(calls)):
                group.create_task(make(episode, index))
    together, settled = dict(results), list(order)
    async with await target.environment.start(**start) as episode:  # type: ignore[arg-type]
        for index in settled:
            await make(episode, index)
            if results[index] != together[index]:
                return (
                    f"call {index + 1} of {len(calls)} at the same time: {short(repr(together[index]), 90)}, "
                    f"and one at a time {short(repr(results[index]), 90)}"
                )
    return None


def _comparable(result: StepResult) -> Any:
    text = "\n".join(str(getattr(block, "text", block)) for block in result.content)
    return (text, reward_json(result.reward), result.error.code if result.error is not None else None)
