"""Checks of rewards: the rewards of steps, the reward log, and unscored episodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ludus.conformance.checks import NotApplicable, Suite, expect, expect_equal, require
from ludus.conformance.context import NO_TOOL, CheckContext, new_key, read

suite = Suite()
_STEPS = 6


async def play(context: CheckContext) -> tuple[str, list[tuple[int, dict[str, Any]]]]:
    """Take some steps of a new episode; return its id, and each reward with the number of its step."""
    started = await context.start()
    earned = []
    for number in range(1, _STEPS):
        reply = await context.step(started["episode"], number, context.some_call(started, number - 1))
        if reply.result is None:
            break
        if reply.result.get("reward") is not None:
            earned.append((number, reply.result["reward"]))
        if reply.result.get("endReason") is not None:
            break
    return started["episode"], earned


@suite.check("the log has exactly one entry for each rewarded step", "REW-9")
async def log(context: CheckContext) -> None:
    episode, earned = await play(context)
    log = await context.must("episodes/rewards", episode=episode)
    entries = [(entry["step"], entry["reward"]) for entry in log["entries"] if entry["source"] == "step"]
    expect_equal(entries, earned, "the log, compared with the rewards of the steps")
    require(earned, "no step earned a reward")


@suite.check("the entry of a grade has the number of the last step before it", "REW-9")
async def grade_entry(context: CheckContext) -> None:
    if not context.target.environment["gradable"]:
        raise NotApplicable("the environment grades no answers")
    started = await context.start()
    for number in (1, 2):
        if ((await context.step(started["episode"], number, NO_TOOL)).result or {}).get("endReason") is not None:
            raise NotApplicable("the episode ends with its first mistakes")
    await context.must("episodes/grade", episode=started["episode"], answer="x", key=new_key())
    log = await context.must("episodes/rewards", episode=started["episode"])
    steps = [entry["step"] for entry in log["entries"] if entry["source"] == "grade"]
    expect(steps in ([], [2]), f"the entry of a grade after two steps has the step {steps}")
    require(steps, "the grade earned nothing")


@suite.check("the total is the sum of the log", "REW-5", "REW-8")
async def total(context: CheckContext) -> None:
    episode, _ = await play(context)
    await context.ask("episodes/grade", episode=episode, answer="x", key=new_key())
    log = await context.must("episodes/rewards", episode=episode)
    values = [entry["reward"]["value"] for entry in log["entries"]]
    if None in values:
        expect_equal(log["total"]["value"], None, "the total of a log with an unscored entry")
    elif log["status"] in ("running", "completed", "truncated"):
        expect(
            log["total"]["value"] is not None
            and math.isclose(log["total"]["value"], math.fsum(values), rel_tol=1e-9, abs_tol=1e-9),
            f"the total is {log['total']['value']}, the sum of the log is {math.fsum(values)}",
        )
        require(values, "neither the steps nor the grade earned a reward")
    else:
        raise NotApplicable(f"the episode is {log['status']}, so its total is not the sum of its log")


@suite.check("the components of the total are the sums of the log's components", "REW-6")
async def components(context: CheckContext) -> None:
    episode, _ = await play(context)
    log = await context.must("episodes/rewards", episode=episode)
    if log["total"]["value"] is None:
        raise NotApplicable("the total is unscored")
    sums: dict[str, float] = defaultdict(float)
    for entry in log["entries"]:
        for name, part in entry["reward"].get("components", {}).items():
            sums[name] += part["value"]
    components = {name: part["value"] for name, part in log["total"].get("components", {}).items()}
    expect_equal(sorted(components), sorted(sums), "names of the total's components")
    for name, value in sums.items():
        expect(
            math.isclose(components[name], value, abs_tol=1e-9),
            f"component {name!r} is {components[name]}, its sum is {value}",
        )
    require(sums, "no reward has components")


@suite.check("a client can skip entries that it has read", "REW-11")
async def after(context: CheckContext) -> None:
    episode, _ = await play(context)
    full_log = await context.must("episodes/rewards", episode=episode)
    for count in (0, 1, len(full_log["entries"]) + 3):
        tail = await context.must("episodes/rewards", episode=episode, after=count)
        expect_equal(tail["entries"], full_log["entries"][count:], f"entries after the first {count}")
        expect_equal(tail["total"], full_log["total"], f"the total after the first {count} entries")
    require(full_log["entries"], "no step earned a reward")


@suite.check("a reward is a finite number, or is unscored with a reason", "REW-1", "REW-2", "MTH-1")
async def shape(context: CheckContext) -> None:
    episode, earned = await play(context)
    log = await context.must("episodes/rewards", episode=episode)
    read("episodes/rewards", log)
    for reward in [reward for _, reward in earned] + [log["total"]]:
        _well_formed(reward)


@suite.check("an episode without a reward has the total 0, with a reason", "REW-8")
async def nothing_earned(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    totals = {"of a new episode": (await context.must("episodes/rewards", episode=episode))["total"]}
    await context.must("episodes/close", episode=episode)
    log = (await context.ask("episodes/rewards", episode=episode)).result
    if log is not None:
        totals["of an episode that was closed before any reward"] = log["total"]
    for whose, total in totals.items():
        expect_equal(total["value"], 0, f"the total {whose}")
        expect(total.get("reason"), f"the total {whose} gives no reason")


@suite.check("an episode closed before its end keeps its rewards", "REW-8")
async def closed(context: CheckContext) -> None:
    episode, earned = await play(context)
    before = await context.must("episodes/rewards", episode=episode)
    if before["endReason"] is not None:
        raise NotApplicable("the calls ended the episode")
    info = (await context.must("episodes/close", episode=episode))["info"]
    log = await context.ask("episodes/rewards", episode=episode)
    for reward in (info["reward"], (log.result or {}).get("total")):
        if reward is not None:
            expect_equal(reward["value"], before["total"]["value"], "the reward of an episode after its close")
            _well_formed(reward)
    require(earned, "no step earned a reward")


def _well_formed(reward: Mapping[str, Any]) -> None:
    value = reward["value"]
    numbers = [part["value"] for part in reward.get("components", {}).values()]
    numbers += [] if value is None else [value]
    for number in numbers:
        finite = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
        expect(finite, f"a reward contains {number!r}, expected a finite number")
    expect(value is not None or reward.get("reason"), "an unscored reward gives no reason")
