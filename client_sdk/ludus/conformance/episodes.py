"""Checks of an episode from its start to its end, over both control wires."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal, require
from ludus.conformance.context import NO_TOOL, CheckContext, new_key, read
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.lifecycle import EVENT_OF_REASON, EpisodeStatus, advance
from ludus.protocol.modules import Module

suite = Suite()


@suite.check("a started episode is running and has a prompt, tools and a seed", "START-1", "START-5", "CONT-1")
async def starting(context: CheckContext) -> None:
    raw = await context.start_group(1)
    result = read("episodes/start", raw)
    started = result.episodes[0]
    expect(started.prompt, "the prompt is empty")
    info = read("episodes/get", await context.must("episodes/get", episode=started.episode)).info
    expect_equal((info.status, info.end_reason, info.steps), ("running", None, 0), "a new episode")
    expect_equal((info.seed, info.task, info.group), (started.seed, started.task, result.group), "its data")


@suite.check("a group has distinct episodes with the same task and seed", "START-1")
async def groups(context: CheckContext) -> None:
    episodes = (await context.start_group(3))["episodes"]
    expect_equal(len({episode["episode"] for episode in episodes}), 3, "distinct ids")
    expect_equal(len({(episode["task"]["id"], episode["seed"]) for episode in episodes}), 1, "one task and one seed")


@suite.check("the episode has the requested task", "TASK-1")
async def named_task(context: CheckContext) -> None:
    row = (await context.must("tasks/get", **context.place, index=0))["task"]
    by_id, by_index = await context.start(task=row["id"]), await context.start(index=0)
    expect_equal(by_id["task"], row, "the task started by its id")
    expect_equal(by_index["task"], row, "the task started by its index")


@suite.check("the seed determines the task and the observations, or is refused", "START-5", "START-7", "START-8")
async def seeds(context: CheckContext) -> None:
    if not context.target.environment["seedable"]:
        await context.refused(4220, "episodes/start", **context.place, seed=1, key=new_key())
        return
    episode_a, episode_b = await context.start(seed=5), await context.start(seed=5)
    expect_equal((episode_a["seed"], episode_b["seed"]), (5, 5), "the seeds of two episodes")
    expect_equal(
        (episode_b["task"], episode_b["prompt"]),
        (episode_a["task"], episode_a["prompt"]),
        "task and prompt under the same seed",
    )
    for number in range(1, 4):
        if not episode_a["tools"]:
            break  # the task and the prompt were compared
        call = context.some_call(episode_a, number - 1)
        step_a, step_b = [await context.step(episode["episode"], number, call) for episode in (episode_a, episode_b)]
        expect_equal(step_b.result, step_a.result, f"step {number} of the same seed")


@suite.check("the greatest seed arrives digit for digit, and a greater one is refused", "MTH-7", "START-5")
async def great_seeds(context: CheckContext) -> None:
    if not context.target.environment["seedable"]:
        raise NotApplicable("the environment accepts no seeds")
    started = await context.start(seed=LARGEST_INTEGER)
    expect_equal(started["seed"], LARGEST_INTEGER, "the seed in the result of the start")
    expect_equal((await context.info(started["episode"]))["seed"], LARGEST_INTEGER, "the seed in the episode's state")
    await context.refused(-32602, "episodes/start", **context.place, seed=LARGEST_INTEGER + 1, key=new_key())


@suite.check("the episode has only the requested tools", "START-10", module=Module.LIMITS)
async def chosen_tools(context: CheckContext) -> None:
    everything = await context.start()
    names = [tool["name"] for tool in everything["tools"]]
    if len(names) < 2:
        raise NotApplicable("the environment has fewer than two tools")
    started = await context.start(tools=names[:1])
    expect_equal([tool["name"] for tool in started["tools"]], names[:1], "the tools of the episode")
    reply = await context.step(started["episode"], 1, context.some_call(everything, 1))
    error = (reply.result or {}).get("error") or {}
    expect_equal(error.get("code"), "unknown_tool", "the call of a tool that was not requested")
    await context.refused(-32602, "episodes/start", **context.place, tools=["no such tool"], key=new_key())


@suite.check("no reply contains a secret that was given to a start", "START-11", module=Module.SECRETS, negative=True)
async def secrets(context: CheckContext) -> None:
    secret = f"secret-{new_key()}"
    begun = await context.ask("episodes/start", **context.place, key=new_key(), secrets={"CONFORM_PROBE": secret})
    if begun.result is None:
        raise ConformanceFailure(f"a start with a secret failed with {begun.code}: {begun.message}")
    context.remember(begun.result)
    episode = begun.result["episodes"][0]["episode"]
    start = {**context.place, "key": new_key()}
    answers = {
        "the reply to episodes/start": begun.raw,
        "the reply to episodes/get": (await context.ask("episodes/get", episode=episode)).raw,
        "the reply to episodes/rewards": (await context.ask("episodes/rewards", episode=episode)).raw,
        "a refused start": (await context.ask("episodes/start", **start, count=0, secrets={"A": secret})).raw,
        "the error for a secret of the wrong type": (
            await context.ask("episodes/start", **start, secrets={"A": [secret]})
        ).raw,
    }
    for method, answer in answers.items():
        expect(secret not in json.dumps(answer), f"{method} contains a secret that was given to a start")


@suite.check("an agent's mistake becomes an observation, and the episode continues", "CALL-1", "CALL-4", "STEP-1")
async def mistakes(context: CheckContext) -> None:
    started = await context.start()
    cases: list[tuple[str, dict[str, Any], str]] = [("no such tool", {}, "unknown_tool")]
    if started["tools"]:
        cases.append((started["tools"][0]["name"], {"no such argument, surely": "x"}, "invalid_arguments"))
    for number, (name, arguments, code) in enumerate(cases, 1):
        result = (await context.step(started["episode"], number, (name, arguments))).result
        if result is None:
            raise ConformanceFailure(
                f"a call of {name!r} failed as a request, instead of returning an observation to the agent"
            )
        step = read("episodes/step", result)
        limited = step.end_reason is not None and step.truncated
        expect_equal(
            (step.step, step.error and step.error.code),
            (number, code),
            "the number and the error flag of the mistaken step",
        )
        expect(step.content, "the agent sees no message about its mistake")
        expect(limited or step.status == "running", f"the episode is {step.status} after a mistake of the agent")
        if limited:
            return


@suite.check("each result has its number and status, and an end reason only at the end", "STEP-1", "CALL-5", "GET-2")
async def results(context: CheckContext) -> None:
    started = await context.start()
    for number in range(1, 5):
        reply = await context.step(started["episode"], number, context.some_call(started, number - 1))
        if reply.result is None:
            expect(reply.code in (5001, 5002), f"step {number} failed with {reply.code}: {reply.message}")
            require(number > 1, "the environment failed in its first step")
            return
        step = read("episodes/step", reply.result)
        expect_equal(step.step, number, "the number in the result")
        expect_equal(await context.count_steps(started["episode"]), number, "`steps` of episodes/get")
        if step.end_reason is not None:
            status = advance(EpisodeStatus.RUNNING, EVENT_OF_REASON[step.end_reason])
            expect_equal(step.status, status, f"the status for {step.end_reason}")
            return
        expect_equal(step.status, "running", "the status of a step that did not end the episode")


@suite.check("a graded answer ends the episode", "GRADE-1", "GRADE-2", "GRADE-3")
async def grading(context: CheckContext) -> None:
    started = await context.start()
    params = {"episode": started["episode"], "answer": "an answer", "key": new_key()}
    graded = read("episodes/grade", await context.must("episodes/grade", **params))
    expect_equal((graded.info.status, graded.info.end_reason), ("completed", "submitted"), "the end")
    log = read("episodes/rewards", await context.must("episodes/rewards", episode=started["episode"]))
    if not started["gradable"]:
        expect_equal(graded.reward, None, "the grade of an episode that is not gradable")
        expect_equal([entry for entry in log.entries if entry.source == "grade"], [], "entries for the grade")
    elif graded.reward is not None:
        final = log.entries[-1] if log.entries else None
        expect_equal(final and (final.source, final.reward), ("grade", graded.reward), "the last entry of the log")
    values = [entry.reward.value for entry in log.entries]
    total = graded.info.reward.value if graded.info.reward is not None else None
    if None not in values and total is not None:
        expect(math.isclose(total, math.fsum(values), abs_tol=1e-9), f"the total in the grade is {total}, "
               f"the sum of the log is {math.fsum(values)}")  # fmt: skip


@suite.check("a request after the end is refused with the end reason", "LIFE-9", "LIFE-1", negative=True)
async def after_the_end(context: CheckContext) -> None:
    started = await context.start()
    episode = started["episode"]
    await context.must("episodes/grade", episode=episode, answer="an answer", key=new_key())
    before = await context.info(episode)
    tool, arguments = context.some_call(started)
    step = {"episode": episode, "step": 1, "tool": tool, "arguments": arguments, "key": new_key()}
    for method, params in (
        ("episodes/step", step),
        ("episodes/grade", {"episode": episode, "answer": "another", "key": new_key()}),
    ):
        ended = await context.refused(4093, method, **params)
        expect_equal(ended.data.get("endReason"), "submitted", f"data.endReason of the refused {method}")
    expect_equal(await context.info(episode), before, "the episode after requests past its end")


@suite.check("closing ends the episode, and a second close has no effect", "CLOSE-1")
async def closing(context: CheckContext) -> None:
    started = await context.start()
    closed = await context.must("episodes/close", episode=started["episode"])
    info = read("episodes/close", closed).info
    expect_equal((info.status, info.end_reason), ("truncated", "closed"), "the end")
    again = (await context.must("episodes/close", episode=started["episode"]))["info"]
    expect_equal((again["status"], again["endReason"]), ("truncated", "closed"), "the end after a second close")
    reply = await context.step(started["episode"], 1, context.some_call(started))
    expect(reply.code in (4093, 4044), f"a step after the close was answered with {reply.code or 'a result'}")


@suite.check("closing an ended episode does not change its end", "CLOSE-1", "LIFE-1")
async def closing_late(context: CheckContext) -> None:
    started = await context.start()
    await context.must("episodes/grade", episode=started["episode"], answer="x", key=new_key())
    info = (await context.must("episodes/close", episode=started["episode"]))["info"]
    expect_equal((info["status"], info["endReason"]), ("completed", "submitted"), "the end after the close")


@suite.check("a client's limits can only tighten the episode's limits", "START-9", module=Module.LIMITS)
async def limits(context: CheckContext) -> None:
    usual = (await context.start())["limits"]
    tight = (await context.start(limits={"maxSteps": 1, "idleSeconds": 5}))["limits"]
    expect_equal((tight["maxSteps"], tight["idleSeconds"]), (1, 5), "the limits after tightening")
    loose = (await context.start(limits={"maxSteps": 10**9, "idleSeconds": 10.0**9}))["limits"]
    for name in ("maxSteps", "idleSeconds"):
        if usual.get(name) is not None:
            expect(loose[name] <= usual[name], f"{name} of {usual[name]} was loosened to {loose[name]}")


@suite.check("the last allowed step ends the episode with `step_limit`", "LIM-1", "CALL-5", module=Module.LIMITS)
async def step_limit(context: CheckContext) -> None:
    started = await context.start(limits={"maxSteps": 1})
    reply = await context.step(started["episode"], 1, NO_TOOL)
    if reply.result is None:
        raise ConformanceFailure(f"the only allowed step failed with {reply.code}: {reply.message}")
    step = read("episodes/step", reply.result)
    expect_equal((step.status, step.end_reason), ("truncated", "step_limit"), "after the last step")


@suite.check(
    "an episode ends at its time limit, and an unused one ends unscored", "LIM-2", "LIM-6", "REW-3",
    module=Module.LIMITS,
)  # fmt: skip
async def time_limits(context: CheckContext) -> None:
    timed, idle = await context.start(limits={"seconds": 0.2}), await context.start(limits={"idleSeconds": 0.2})
    # Reading an episode resets its idle timer, so the pauses of the idle one exceed its limit, and they grow.
    await asyncio.gather(
        _comes_to(context, timed["episode"], ("truncated", "time_limit"), (0.4, 0.4, 0.8, 1.6, 3.2)),
        _comes_to(context, idle["episode"], ("closed", "expired"), (0.5, 1.5, 3.0)),
    )


async def _comes_to(context: CheckContext, episode: str, end: tuple[str, str], pauses: tuple[float, ...]) -> None:
    reached: tuple[Any, Any] = ("", "")
    for pause in pauses:
        await asyncio.sleep(pause)
        reply = await context.ask("episodes/get", episode=episode)
        if reply.code == 4044 and end[0] == "closed":
            return
        info = (reply.result or {}).get("info", {})
        reached = (info.get("status"), info.get("endReason"))
        if reached == end:
            reward = info.get("reward")
            if reward is not None and end[1] == "expired":
                expect_equal(reward["value"], None, "the reward of an episode that expired")
            return
    expect_equal(reached, end, f"the end of an episode with a limit of 0.2 s, {sum(pauses):g} s later")


@suite.check(
    "a fork continues from its source's state without changing the source, or is refused", "FORK-1", "FORK-2", "FORK-3",
    module=Module.FORK,
)  # fmt: skip
async def forks(context: CheckContext) -> None:
    started = await context.start()
    episode = started["episode"]
    if not context.target.environment.get("forkable"):
        await context.refused(4220, "episodes/fork", episode=episode, key=new_key())
        return
    for number in (1, 2):
        await context.step(episode, number, NO_TOOL)
    before = await context.info(episode)
    fork = (await context.must("episodes/fork", episode=episode, step=1, key=new_key()))["episode"]
    context.remember_episode(fork["episode"])
    expect(fork["episode"] != episode, "a fork has the id of its source")
    expect_equal((fork["task"], fork["seed"]), (started["task"], started["seed"]), "task and seed of the fork")
    expect_equal(await context.count_steps(fork["episode"]), 1, "steps of a fork after step 1")
    await context.step(fork["episode"], 2, NO_TOOL)
    expect_equal(await context.info(episode), before, "the source after the fork")
    await context.refused(-32602, "episodes/fork", episode=episode, step=9, key=new_key())


@suite.check(
    "the candidates of a group are scored, or scoring is refused",
    "GROUP-1",
    "GROUP-2",
    "GROUP-3",
    module=Module.GROUP_SCORING,
)
async def group_scores(context: CheckContext) -> None:
    group, foreign = await context.start_group(2), await context.start_group(1)
    episodes = [started["episode"] for started in group["episodes"]]
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    candidates = {episode: {"messages": [message]} for episode in episodes}
    params = {"group": group["group"], "candidates": candidates, "key": new_key()}
    nobody = {"group": "no such group", "candidates": {}, "key": new_key()}
    await context.refused((4044, 4045), "groups/score", **nobody)
    if not context.target.environment.get("groupScoring"):
        await context.refused(4220, "groups/score", **params)
        return
    scored = await context.must("groups/score", **params)
    read("groups/score", scored)
    expect_equal(sorted(scored["rewards"]), sorted(episodes), "scored episodes")
    expect_equal(await context.must("groups/score", **params), scored, "the scores, requested again")
    stranger = {foreign["episodes"][0]["episode"]: {"messages": [message]}}
    await context.refused((4044, 4045), "groups/score", **{**params, "candidates": stranger, "key": new_key()})
