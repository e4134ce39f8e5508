"""Checks of access rights over both control wires: tokens, scopes, other principals, ids and test splits."""

from __future__ import annotations

import os.path
from typing import Any, Final

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.context import NO_TOOL, CheckContext, new_key
from ludus.conformance.http_probe import Answer, bearer
from ludus.conformance.leaks import find_leak
from ludus.conformance.probes import envelope
from ludus.protocol.identifiers import CONTROL_PATH
from ludus.protocol.modules import Module

suite = Suite(Module.TOKENS)
WRONG_TOKEN = "ludus_wrong-wrong-wrong-wrong-wrong-wrong-wrong"
_RANDOM_CHARS: Final = 11
"""The number of base-64 characters that hold 64 bits."""


async def knock(context: CheckContext, token: str | None) -> Answer:
    """Send a first request with a token (None sends none) and return the HTTP answer."""
    if context.control.name == "channel":
        return await context.probe.upgrade(token)
    params = {"_meta": envelope(extension=True)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/environments/list", "params": params}
    return (await context.probe.mcp("mcp", CONTROL_PATH, body, headers=bearer(token)))[1]


def needed(token: str | None, option: str) -> str:
    """Return a token that a check requires.

    Raises:
        NotApplicable: the token was not given with `option`.
    """
    if token is None:
        raise NotApplicable(f"no {option} was given")
    return token


@suite.check("every request without a token is refused", "CRED-2", negative=True)
async def no_token(context: CheckContext) -> None:
    needed(context.target.token, "--token")
    answer = await knock(context, None)
    expect(
        answer.status == 401,
        f"a request without a token got the status {answer.status}, expected 401 (leave --token out for open servers)",
    )
    error = (answer.value or {}).get("error") or {}
    expect_equal(error.get("code"), 4010, "the code in the answer without a token")


@suite.check("a wrong token is refused", "CRED-2", negative=True)
async def wrong_token(context: CheckContext) -> None:
    token = needed(context.target.token, "--token")
    for wrong in (WRONG_TOKEN, token[:-1], token + "x", token.swapcase()):
        answer = await knock(context, wrong)
        expect(answer.status == 401, f"a token that was never issued got the status {answer.status}, expected 401")


@suite.check("another principal's episodes and groups do not exist", "CRED-5", negative=True)
async def other_principal(context: CheckContext) -> None:
    intruder = context.through(token=needed(context.target.other_token, "--other-token"))
    group = await context.start_group(1)
    episode = group["episodes"][0]["episode"]
    step = {"episode": episode, "step": 1, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    scoring = {"group": group["group"], "candidates": {episode: {"messages": [message]}}, "key": new_key()}
    for method, params in (
        ("episodes/get", {"episode": episode}),
        ("episodes/step", step),
        ("episodes/rewards", {"episode": episode}),
        ("episodes/grade", {"episode": episode, "answer": "x", "key": new_key()}),
        ("episodes/close", {"episode": episode}),
        *([("episodes/fork", {"episode": episode, "key": new_key()})] if context.offers(Module.FORK) else ()),
        *([("groups/score", scoring)] if context.offers(Module.GROUP_SCORING) else ()),
    ):
        try:
            await intruder.refused((4044, 4045), method, **params)
        except ConformanceFailure as fault:
            raise ConformanceFailure(f"to another principal: {fault}") from None
    info = await context.info(episode)
    expect_equal((info["status"], info["steps"]), ("running", 0), "the episode after another principal's requests")


@suite.check("ids are unguessable, or useless to other principals", "SEC-6", negative=True)
async def ids(context: CheckContext) -> None:
    groups = [await context.start_group(2) for _ in range(4)]
    episodes = [started["episode"] for group in groups for started in group["episodes"]]
    guessable = [
        kind
        for kind, ids in (("episode", episodes), ("group", [group["group"] for group in groups]))
        if min(map(len, ids)) - len(os.path.commonprefix(ids)) < _RANDOM_CHARS
    ]
    if not guessable:
        return
    intruder = context.through(token=needed(context.target.other_token, "--other-token"))
    reply = await intruder.ask("episodes/get", episode=episodes[0])
    guessable_kinds = " and ".join(guessable)
    expect(
        reply.code == 4044,
        f"{guessable_kinds} ids have too few characters for 64 random bits, and open others' episodes",
    )


@suite.check("keys of different principals are separate", "KEY-5", negative=True)
async def keys_of_principals(context: CheckContext) -> None:
    neighbor = context.through(token=needed(context.target.other_token, "--other-token"))
    key = new_key()
    mine, foreign = await context.start(key=key), await neighbor.start(key=key)
    expect(mine["episode"] != foreign["episode"], "another principal's start under the same key got the same episode")


@suite.check("a token without `rewards:read` reads no rewards", "CRED-3", negative=True)
async def scopes(context: CheckContext) -> None:
    limited = context.through(token=needed(context.target.limited_token, "--limited-token"))
    group = await limited.start_group(1)
    episode = group["episodes"][0]["episode"]
    await limited.refused(4030, "episodes/rewards", episode=episode)
    if context.offers(Module.GROUP_SCORING):
        await limited.refused(4030, "groups/score", group=group["group"], candidates={}, key=new_key())


@suite.check("results hold no reward and no metadata for a token without `rewards:read`", "CRED-6", negative=True)
async def hidden_rewards(context: CheckContext) -> None:
    limited = context.through(token=needed(context.target.limited_token, "--limited-token"))
    started = await limited.start()
    episode = started["episode"]
    replies = []
    for number in range(1, 5):
        reply = await limited.step(episode, number, limited.some_call(started, number - 1))
        replies.append(reply)
        result = reply.result or {}
        expect(result.get("reward") is None and not result.get("metadata"), f"step {number} shows a reward or metadata")
        if result.get("endReason") is not None:
            break
    state = await limited.ask("episodes/get", episode=episode)
    expect((state.result or {})["info"]["reward"] is None, "episodes/get shows the total")
    graded = await limited.ask("episodes/grade", episode=episode, answer="x", key=new_key())
    if graded.result is not None:
        shows = graded.result["reward"] is not None or graded.result["info"]["reward"] is not None
        expect(not shows, "episodes/grade shows the grade")
    closed = await limited.ask("episodes/close", episode=episode)
    expect((closed.result or {})["info"]["reward"] is None, "episodes/close shows the total")
    for reply in (*replies, state, graded, closed):
        leak = find_leak(reply.whole.get("_meta"), "`_meta`")
        expect(leak is None, f"{leak} of a reply holds what this token may not read")


@suite.check("a test split is closed to a token without its scope", "CRED-4", negative=True)
async def test_split(context: CheckContext) -> None:
    limited = context.through(token=needed(context.target.limited_token, "--limited-token"))
    test_split: dict[str, Any] = {"environment": context.name, "split": context.split_of("test")["name"]}
    await limited.refused(4030, "tasks/list", **test_split)
    await limited.refused(4030, "tasks/get", **test_split, index=0)
    if context.offers(Module.SAMPLING):
        await limited.refused(4030, "tasks/sample", **test_split)
    await limited.refused(4030, "episodes/start", **test_split, key=new_key())
