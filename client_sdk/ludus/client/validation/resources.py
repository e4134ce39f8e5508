"""What an environment costs, and what it leaves behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from ludus.client.policies import RandomPolicy
from ludus.client.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.client.validation.served import Usage
from ludus.client.validation.subject import Subject, evidence, evidence_of
from ludus.client.validation.transcripts import Performance
from ludus.protocol.errors import LudusError

suite = Suite()

ROUNDS: Final = 30
"""Episodes of a measurement of what is left behind; so many warm the server up before."""

LEAK: Final = 0.5
"""So many files, processes, threads or temporary files per episode are a leak, and not a pool that fills."""

SLOW: Final = 0.1
"""Seconds from which on an action is long enough to see whether others have to wait for it."""

PING_SECONDS: Final = 0.01


@suite.check("crash", "No action of a policy breaks the environment", "runtime.startup")
async def crash(subject: Subject) -> AsyncIterator[Problem]:
    for name in ("no-op", "empty", "random"):
        await subject.played(name)
    if subject.authored is not None and subject.has_oracle:
        await subject.played("oracle")
    broken: dict[str, Evidence] = {}
    for play in [play for plays in subject.plays.values() for play in plays]:
        if play.failure is not None and play.failure.kind in ("environment", "infrastructure"):
            broken.setdefault(subject.cause(play), evidence(play, short(subject.cause(play))))
    tricks = {one.detail: one for one in subject.broken}
    if broken or tricks:
        places = [*broken.values(), *tricks.values()]
        yield error("episodes broke: raise `ToolError` for mistakes of the policy, and mend the rest", places)
    own: dict[str, Evidence] = {}
    for play in [play for plays in subject.plays.values() for play in plays]:
        if play.failure is not None and play.failure.kind == "policy":
            own.setdefault(play.failure.message, evidence(play, short(play.failure.message)))
    if own:
        yield error("the oracle itself raised", own.values())


@suite.check("blocking", "While one episode works, the others go on")
async def blocking(subject: Subject) -> AsyncIterator[Problem]:
    held: list[Evidence] = []
    for script in await subject.scripts(each=2):
        running = await Performance.begin(subject.environment, script, subject.settings.secrets)
        async with running.episode:
            going = True
            while going and not held:
                stall, took, going = await _watched(subject, running)
                if took >= SLOW and stall >= 0.5 * took:
                    held.append(evidence_of(script, f"an action of {took:.2f} s held the server up for {stall:.2f} s"))
    if held:
        yield error(
            "the whole server waits while a tool works: an `async def` tool must await, and a `def` tool with "
            "`blocking = False` or `inline=True` must be quick; drop those, or move the work to a thread",
            held,
        )


async def _watched(subject: Subject, running: Performance) -> tuple[float, float, bool]:
    """The longest wait of another request while an action ran, the action's seconds, and whether more follow."""
    longest = 0.0
    began = time.perf_counter()
    action = asyncio.create_task(running.act())
    while not action.done():
        before = time.perf_counter()
        await subject.environment.splits()
        longest = max(longest, time.perf_counter() - before)
        await asyncio.wait((action,), timeout=PING_SECONDS)
    return longest, time.perf_counter() - began, await action


@suite.check("latency", "Starts and steps are quick enough to train with", "semantic.resource_envelope",
             "hub.time_to_first_work")  # fmt: skip
async def latency(subject: Subject) -> AsyncIterator[Problem]:
    if "blocking" in subject.failed:
        raise NotApplicable("episodes wait for each other (see `blocking`)")
    plays = [*await subject.played("random"), *await subject.played("empty")]
    steps = sorted(step.seconds for play in plays for step in play.steps)
    _note(subject, "step", steps)
    if steps and (slow := _quantile(steps, 0.95)) > subject.settings.step_seconds:
        yield warning(
            f"5 % of the tool calls take longer than {slow:.2f} s; a group of rollouts waits for its slowest",
            [evidence(play, f"{max(step.seconds for step in play.steps):.2f} s") for play in plays if play.steps
             and max(step.seconds for step in play.steps) >= slow],
        )  # fmt: skip
    starts: list[tuple[float, Evidence]] = []
    for row in subject.few(4):
        before = time.perf_counter()
        try:
            async with subject.environment.episode(
                split=row.split, task=row.id, seed=subject.seed(), secrets=subject.settings.secrets
            ):
                seconds = time.perf_counter() - before
        except LudusError:
            continue
        starts.append((seconds, Evidence(f"{seconds:.2f} s", row.split, row.id)))
    _note(subject, "start", sorted(seconds for seconds, _ in starts))
    late = [where for seconds, where in starts if seconds > subject.settings.setup_seconds]
    if late:
        yield warning("episodes take long to start: prepare once per process what all episodes share", late)


def _note(subject: Subject, what: str, seconds: Sequence[float]) -> None:
    if seconds:
        subject.measured[f"{what}_seconds_p50"] = round(_quantile(seconds, 0.5), 6)
        subject.measured[f"{what}_seconds_p95"] = round(_quantile(seconds, 0.95), 6)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


@suite.check("teardown", "Nothing of an episode is left when it is over", "runtime.resource_bounds")
async def teardown(subject: Subject) -> AsyncIterator[Problem]:
    process = subject.process
    if process is None:
        raise NotApplicable("this needs the server's process, which is ours for names and classes, not for addresses")
    before, after = await subject.once("usage", lambda: _measured(subject))
    failed = {
        str(line.get("exception", line.get("message"))).strip().splitlines()[-1]
        for line in process.log
        if line.get("level") == "error"
        and str(line.get("message")).startswith("teardown of environment")
        and line.get("environment", subject.info.name) == subject.info.name
    }
    if failed:
        yield error("`teardown` fails: what it should have freed stays", [Evidence(short(why)) for why in failed])
    for what, one, other in (
        ("open files", before.files, after.files),
        ("processes", before.children, after.children),
        ("threads", before.threads, after.threads),
        ("temporary files", before.left_files, after.left_files),
    ):
        if other - one >= LEAK * ROUNDS:
            yield error(
                f"episodes leave {what} behind: free in `teardown` what `setup` and the tools take",
                [Evidence(f"{one} before {ROUNDS} episodes, {other} after them")],
            )


@suite.check("memory", "Episodes do not fill the server's memory", "semantic.resource_envelope")
async def memory(subject: Subject) -> AsyncIterator[Problem]:
    if subject.process is None:
        raise NotApplicable("this needs the server's process, which is ours for names and classes, not for addresses")
    before, after = await subject.once("usage", lambda: _measured(subject))
    each = (after.kilobytes - before.kilobytes) / ROUNDS
    subject.measured["episode_kilobytes"] = round(max(0.0, each), 1)
    subject.measured["server_kilobytes"] = after.kilobytes
    if each >= subject.settings.episode_kilobytes:
        yield error(
            "episodes leave memory behind: keep what belongs to one in `self`, and no list or cache that only grows",
            [Evidence(f"{each:.0f} KB for each of {ROUNDS} episodes; {after.kilobytes // 1024} MB in all")],
        )


async def _measured(subject: Subject) -> tuple[Usage, Usage]:
    """What the process holds after some episodes, and after as many more."""
    assert subject.process is not None
    rows = subject.few(10)
    if not rows:
        raise NotApplicable("there are no tasks")
    found: list[Usage] = []
    for _ in range(2):
        # Twice the rounds to warm up, once to measure: allocators grow in strides.
        await _rounds(subject, rows, ROUNDS if found else 2 * ROUNDS)
        usage = await subject.process.settled_usage()
        if usage is None:
            raise NotApplicable("this system does not tell what a process holds (there is no /proc)")
        found.append(usage)
    return found[0], found[1]


async def _rounds(subject: Subject, rows: Sequence[object], count: int) -> None:
    chosen = subject.few(count)
    for start in range(0, count, len(chosen)):
        part = chosen[: count - start]
        await subject.play(RandomPolicy(subject.settings.seed + start), tasks=part)
