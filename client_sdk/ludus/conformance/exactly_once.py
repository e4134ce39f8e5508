"""Checks of keys and step numbers: nothing runs twice, and nothing is skipped."""

from __future__ import annotations

import asyncio

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.context import NO_TOOL, CheckContext, new_key
from ludus.protocol.modules import Module

suite = Suite()


@suite.check("a start repeated under its key starts no new episode", "KEY-2", "KEEP-1", negative=True)
async def start_once(context: CheckContext) -> None:
    key = new_key()
    original, repeat = await asyncio.gather(context.start_group(2, key=key), context.start_group(2, key=key))
    third = await context.start_group(2, key=key)
    for again in (repeat, third):
        expect_equal(
            [x["episode"] for x in again["episodes"]], [x["episode"] for x in original["episodes"]], "the repeat"
        )


@suite.check("a start's key with other params is refused", "KEY-4", negative=True)
async def start_key(context: CheckContext) -> None:
    key = new_key()
    await context.start_group(2, key=key)
    await context.refused(4092, "episodes/start", **context.place, key=key, count=3)


@suite.check("a step repeated under its key runs once", "KEY-2", "STEP-3", negative=True)
async def step_once(context: CheckContext) -> None:
    started = await context.start()
    episode, call, key = started["episode"], context.some_call(started), new_key()
    replies = await asyncio.gather(*(context.step(episode, 1, call, key) for _ in range(4)))
    replies.append(await context.step(episode, 1, call, key))
    for reply in replies[1:]:
        expect_equal((reply.result, reply.code), (replies[0].result, replies[0].code), "the repeated step")
    expect_equal(await context.count_steps(episode), 1, "steps taken after five requests under one key")
    log = await context.must("episodes/rewards", episode=episode)
    expect(len(log["entries"]) <= 1, "the repeated step was rewarded more than once")


@suite.check("a step repeated after the end gets its first result", "STEP-3", "KEEP-2")
async def step_again_after_the_end(context: CheckContext) -> None:
    started = await context.start()
    episode, key = started["episode"], new_key()
    original = await context.step(episode, 1, NO_TOOL, key)
    if original.result is None:
        raise ConformanceFailure(f"step 1 failed with {original.code}: {original.message}")
    await context.must("episodes/grade", episode=episode, answer="x", key=new_key())
    again = await context.step(episode, 1, NO_TOOL, key)
    expect_equal(again.result, original.result, "step 1, repeated after the end")


@suite.check("a step that skips a number is refused, and the error names the expected number", "STEP-2", negative=True)
async def gaps(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    for number in (2, 7):
        params = {"episode": episode, "step": number, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
        gap = await context.refused(4091, "episodes/step", **params)
        expect("1" in gap.message, f"the error for step {number} does not say that step 1 is expected: {gap.message!r}")
    expect_equal(await context.count_steps(episode), 0, "steps after the refusals")


@suite.check("a step number repeated under another key is refused", "STEP-3", negative=True)
async def old_numbers(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    await context.step(episode, 1, NO_TOOL)
    await context.step(episode, 2, NO_TOOL)
    for number in (1, 2):
        params = {"episode": episode, "step": number, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
        await context.refused(4091, "episodes/step", **params)
    expect_equal(await context.count_steps(episode), 2, "steps after the refusals")


@suite.check("a step's key with other params is refused", "KEY-4", negative=True)
async def step_key(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    key = new_key()
    await context.step(episode, 1, NO_TOOL, key)
    params = {"episode": episode, "step": 1, "tool": NO_TOOL[0], "arguments": {}, "key": key}
    for change in ({"tool": "another tool"}, {"arguments": {"x": 1}}, {"step": 2}):
        await context.refused(4092, "episodes/step", **{**params, **change})


@suite.check("a step's key with another turn is refused", "TURN-4", module=Module.TURNS, negative=True)
async def turn_key(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    params = {"episode": episode, "step": 1, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
    await context.must("episodes/step", **params, turn={"number": 1})
    for change in ({"turn": {"number": 2}}, {"turn": {"number": 1, "last": False}}, {}):
        await context.refused(4092, "episodes/step", **params, **change)


@suite.check(
    "a call of a past turn is refused and consumes no step number",
    "CALL-6",
    "KEY-6",
    module=Module.TURNS,
    negative=True,
)
async def turns_over(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    step = {"episode": episode, "tool": NO_TOOL[0], "arguments": {}}
    marks = ({"number": 2, "last": False}, {"number": 2}, {"number": 4})
    for number, turn_mark in enumerate(marks, start=1):
        await context.must("episodes/step", **step, step=number, turn=turn_mark, key=new_key())
        for over in (1, 2) if turn_mark.get("last", True) else (1,):
            turn = {"number": over}
            await context.refused(-32602, "episodes/step", **step, step=number + 1, turn=turn, key=new_key())
    expect_equal(await context.count_steps(episode), len(marks), "steps after the refusals")


@suite.check("one key used in two episodes, or for a start and a step, counts as two keys", "KEY-5")
async def keys_apart(context: CheckContext) -> None:
    key = new_key()
    episodes = (await context.start_group(2, key=key))["episodes"]
    for episode in episodes:
        reply = await context.step(episode["episode"], 1, NO_TOOL, key)
        if reply.result is None:
            raise ConformanceFailure(f"a key that another episode used is refused with {reply.code}: {reply.message}")
        expect_equal(await context.count_steps(episode["episode"]), 1, "steps of each episode")


@suite.check("an answer is graded once, and a repeated request gets the same grade", "KEY-2", negative=True)
async def grade_once(context: CheckContext) -> None:
    started = await context.start()
    params = {"episode": started["episode"], "answer": "an answer", "key": new_key()}
    original, repeat = await asyncio.gather(*(context.ask("episodes/grade", **params) for _ in range(2)))
    if original.result is None:
        raise ConformanceFailure(f"episodes/grade failed with {original.code}: {original.message}")
    third = await context.ask("episodes/grade", **params)
    for again in (repeat, third):
        expect_equal((again.result, again.code), (original.result, original.code), "the repeated grade")
    log = await context.must("episodes/rewards", episode=started["episode"])
    grades = [entry for entry in log["entries"] if entry["source"] == "grade"]
    expect(len(grades) <= 1, f"one answer was graded {len(grades)} times")


@suite.check("a grade's key with another answer is refused", "KEY-4", negative=True)
async def grade_key(context: CheckContext) -> None:
    params = {"episode": (await context.start())["episode"], "answer": "an answer", "key": new_key()}
    await context.must("episodes/grade", **params)
    await context.refused(4092, "episodes/grade", **{**params, "answer": "another"})


@suite.check("a fork repeated under its key makes one episode", "KEY-2", module=Module.FORK, negative=True)
async def fork_once(context: CheckContext) -> None:
    if not context.target.environment.get("forkable"):
        raise NotApplicable("the environment is not forkable")
    params = {"episode": (await context.start())["episode"], "key": new_key()}
    original, repeat = await context.must("episodes/fork", **params), await context.must("episodes/fork", **params)
    for fork in (original, repeat):
        context.remember_episode(fork["episode"]["episode"])
    expect_equal(repeat["episode"]["episode"], original["episode"]["episode"], "the repeated fork")
