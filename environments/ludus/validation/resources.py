"""Checks of the resources that an environment uses and leaves behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

from ludus.client.policies import Policy, RandomPolicy
from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.policies import NoOp
from ludus.validation.core.server_process import ServerProcess, Usage, seconds_without_processor
from ludus.validation.core.target import ValidationTarget, evidence, evidence_of
from ludus.validation.core.transcripts import Performance, Script

T = TypeVar("T")

suite = Suite()

ROUNDS: Final = 30
"""The episodes of each policy in a measurement of leaks; the same number of each warms the server up before."""

LEAK: Final = 0.5
"""From this number of files, processes, threads or temporary files per episode, growth is a leak, not a pool."""

SLOW: Final = 0.1
"""The least duration of an action, in seconds, for which the check can see whether other requests wait for it."""

PING_SECONDS: Final = 0.01

SLOW_PLAYS: Final = 3
"""The episodes with slow steps that are played again alone."""


@suite.check("crash", "No action of a policy breaks the environment", "runtime.startup")
async def crash(target: ValidationTarget) -> AsyncIterator[Problem]:
    for name in ("no-op", "empty", "random"):
        await target.played(name)
    if target.local is not None and target.has_oracle:
        await target.played("oracle")
    broken: dict[str, Evidence] = {}
    for play in [play for plays in target.plays.values() for play in plays]:
        if play.failure is not None and play.failure.kind in ("environment", "infrastructure"):
            cause = await target.cause(play)
            broken.setdefault(cause, evidence(play, short(cause)))
    tricks = {trick.detail: trick for trick in target.broken}
    if broken or tricks:
        examples = [*broken.values(), *tricks.values()]
        yield error("episodes failed: raise `ToolError` for mistakes of the policy, and fix the other errors", examples)
    oracle_failures: dict[str, Evidence] = {}
    for play in [play for plays in target.plays.values() for play in plays]:
        if play.failure is not None and play.failure.kind == "policy":
            oracle_failures.setdefault(play.failure.message, evidence(play, short(play.failure.message)))
    if oracle_failures:
        yield error("the oracle itself raised", oracle_failures.values())


@suite.check("blocking", "While one episode works, the others continue")
async def blocking(target: ValidationTarget) -> AsyncIterator[Problem]:
    stalls: list[Evidence] = []
    for script in await target.scripts(each=2):
        # A stall must show twice, because a busy machine can delay a server once.
        if await _stalled(target, script) and (stall := await _stalled(target, script)):
            stalls.append(evidence_of(script, stall))
            break
    if stalls:
        yield error(
            "the whole server waits while an episode works: an `async def` must await, and a `def` with "
            "`blocking = False` or `inline=True` must be quick; drop those, or move the work to a thread",
            stalls,
        )


async def _stalled(target: ValidationTarget, script: Script) -> str | None:
    """Describe the part of an episode that delays other requests; return None if no part does."""
    beginning = Performance.begin(target.environment, script, target.settings.secrets)
    stall, running = await _watched(target, "the start", beginning)
    async with running.episode:
        going = True
        while going and stall is None:
            stall, going = await _watched(target, "an action", running.act())
        if stall is None:
            stall, _ = await _watched(target, "the end", running.finish())
    return stall


async def _watched(target: ValidationTarget, operation: str, work: Coroutine[Any, Any, T]) -> tuple[str | None, T]:
    """Run something and send other requests meanwhile.

    Returns:
        A description of the delay if the other requests waited too long, else None; and the result of `work`.
    """
    longest = 0.0
    began, waited_before = time.perf_counter(), _seconds_starved(target)
    task = asyncio.create_task(work)
    while not task.done():
        before, waited = time.perf_counter(), _seconds_starved(target)
        await target.environment.splits()
        longest = max(longest, time.perf_counter() - before - (_seconds_starved(target) - waited))
        await asyncio.wait((task,), timeout=PING_SECONDS)
    took = time.perf_counter() - began - (_seconds_starved(target) - waited_before)
    blocked = took >= SLOW and longest >= 0.5 * took
    stall = f"{operation}, of {took:.2f} s, blocked the server for {longest:.2f} s" if blocked else None
    return stall, await task


def _seconds_starved(target: ValidationTarget) -> float:
    """Return how long the server's and this process's main threads have waited for a processor so far.

    A machine with too few processors delays replies, too, and that is no fault of the environment.
    """
    seconds = seconds_without_processor(os.getpid())
    return seconds + (target.process.seconds_without_processor() if target.process is not None else 0.0)


@suite.check("latency", "Starts and steps are fast enough for training", "semantic.resource_envelope",
             "hub.time_to_first_work")  # fmt: skip
async def latency(target: ValidationTarget) -> AsyncIterator[Problem]:
    if "blocking" in target.failed:
        raise NotApplicable("episodes wait for each other (see `blocking`)")
    plays = [*await target.played("random"), *await target.played("empty")]
    steps = sorted(step.seconds for play in plays for step in play.steps)
    _note(target, "step", steps)
    if steps and _quantile(steps, 0.95) > target.settings.step_seconds:
        slow = [play for play in plays if max((step.seconds for step in play.steps), default=0.0)
                > target.settings.step_seconds]  # fmt: skip
        alone = [await _slowest_step(target, target.script(play)) for play in slow[:SLOW_PLAYS]]
        late = [example for seconds, example in alone if seconds > target.settings.step_seconds]
        if late:
            yield warning(
                f"5 % of the tool calls take longer than {target.settings.step_seconds:g} s, also when nothing else "
                "runs; a group of rollouts waits for its slowest",
                late,
            )
    starts: list[tuple[float, Evidence]] = []
    for row in target.sample_tasks(4):
        before, waited = time.perf_counter(), _seconds_starved(target)
        try:
            async with target.environment.episode(
                split=row.split, task=row.id, seed=target.seed(), secrets=target.settings.secrets
            ):
                seconds = time.perf_counter() - before - (_seconds_starved(target) - waited)
        except LudusError:
            continue
        starts.append((seconds, Evidence(f"{seconds:.2f} s", row.split, row.id)))
    _note(target, "start", sorted(seconds for seconds, _ in starts))
    late = [example for seconds, example in starts if seconds > target.settings.setup_seconds]
    if late:
        yield warning("episodes start slowly: prepare once per process what all episodes share", late)


async def _slowest_step(target: ValidationTarget, script: Script) -> tuple[float, Evidence]:
    """Play a script alone, and return the longest time of an action, without waits for a processor."""
    longest, number = 0.0, 0
    running = await Performance.begin(target.environment, script, target.settings.secrets)
    async with running.episode:
        going = True
        while going:
            before, waited = time.perf_counter(), _seconds_starved(target)
            going = await running.act()
            seconds = time.perf_counter() - before - (_seconds_starved(target) - waited)
            if seconds > longest:
                longest, number = seconds, running.done
        await running.finish()
    return longest, evidence_of(script, f"action {number} took {longest:.2f} s")


def _note(target: ValidationTarget, operation: str, seconds: Sequence[float]) -> None:
    if seconds:
        target.measured[f"{operation}_seconds_p50"] = round(_quantile(seconds, 0.5), 6)
        target.measured[f"{operation}_seconds_p95"] = round(_quantile(seconds, 0.95), 6)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


@suite.check("teardown", "An episode leaves nothing behind when it has ended", "runtime.resource_bounds")
async def teardown(target: ValidationTarget) -> AsyncIterator[Problem]:
    process = target.process
    if process is None:
        raise NotApplicable(
            "this needs the server's process, which is available for names and classes, not for addresses"
        )
    usages = await target.once("usage", lambda: _measured(target))
    failed = {
        str(line.get("exception", line.get("message"))).strip().splitlines()[-1]
        for line in process.log
        if line.get("level") == "error"
        and str(line.get("message")).startswith("teardown of environment")
        and line.get("environment", target.info.name) == target.info.name
    }
    if failed:
        yield error(
            "`teardown` fails, so the resources that it should free stay",
            [Evidence(short(reason)) for reason in failed],
        )
    for resource_name, counts in (
        ("open files", [usage.files for _, usage in usages]),
        ("processes", [usage.children for _, usage in usages]),
        ("threads", [usage.threads for _, usage in usages]),
        ("temporary files", [usage.left_files for _, usage in usages]),
    ):
        names = [name for name, _ in usages[1:]]
        leaks = [
            Evidence(f"{before} before {ROUNDS} episodes, {after} after them", policy=name)
            for name, (before, after) in zip(names, pairwise(counts), strict=True)
            if after - before >= LEAK * ROUNDS
        ]
        if leaks:
            yield error(
                f"episodes leave {resource_name} behind: free in `teardown` everything that `setup`, the tools and "
                "`grade` take",
                leaks,
            )


@suite.check("memory", "Episodes do not fill the server's memory", "semantic.resource_envelope")
async def memory(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.process is None:
        raise NotApplicable(
            "this needs the server's process, which is available for names and classes, not for addresses"
        )
    usages = await target.once("usage", lambda: _measured(target))
    before, after, episodes = usages[0][1], usages[-1][1], ROUNDS * (len(usages) - 1)
    per_episode = (after.kilobytes - before.kilobytes) / episodes
    target.measured["episode_kilobytes"] = round(max(0.0, per_episode), 1)
    target.measured["server_kilobytes"] = after.kilobytes
    if per_episode >= target.settings.episode_kilobytes:
        yield error(
            "episodes leave memory behind: keep an episode's state in `self`, and no list or cache that only grows",
            [Evidence(f"{per_episode:.0f} KB for each of {episodes} episodes; {after.kilobytes // 1024} MB in total")],
        )


async def _measured(target: ValidationTarget) -> list[tuple[str, Usage]]:
    """Return the usage of the process after a warm-up, and then after `ROUNDS` episodes of each policy, by policy."""
    assert target.process is not None
    if not target.sample_tasks(1):
        raise NotApplicable("there are no tasks")
    seed, oracle = target.settings.seed, target.oracle
    policies: dict[str, Callable[[int], Policy]] = {
        "random": lambda start: RandomPolicy(seed + start),
        "no-op": lambda start: NoOp(),
    }
    if oracle is not None and target.has_oracle:
        policies["oracle"] = lambda start: oracle
    # The warm-up plays the random policy twice, because allocators grow in large steps.
    for name in ("random", *policies):
        await _rounds(target, policies[name])
    usages = [("", await _settled(target.process))]
    for name, policy in policies.items():
        await _rounds(target, policy)
        usages.append((name, await _settled(target.process)))
    return usages


async def _settled(process: ServerProcess) -> Usage:
    usage = await process.settled_usage()
    if usage is None:
        raise NotApplicable("this system does not report a process's resources (there is no /proc)")
    return usage


async def _rounds(target: ValidationTarget, policy: Callable[[int], Policy]) -> None:
    chosen = target.sample_tasks(10)
    for start in range(0, ROUNDS, len(chosen)):
        await target.play(policy(start), tasks=chosen[: ROUNDS - start])
