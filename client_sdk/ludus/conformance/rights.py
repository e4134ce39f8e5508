"""Checks of who may do what, over both control wires: tokens, scopes, other principals, test splits."""

from __future__ import annotations

import json
from typing import Any

from ludus.conformance.bench import NO_TOOL, Bench, new_key
from ludus.conformance.checks import Fault, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.link import Answer, bearer
from ludus.conformance.probes import envelope
from ludus.protocol.identifiers import CONTROL_PATH

suite = Suite()
WRONG_TOKEN = "ludus_wrong-wrong-wrong-wrong-wrong-wrong-wrong"


async def knock(bench: Bench, token: str | None) -> Answer:
    """The answer to a first request with a token."""
    if bench.control.name == "channel":
        return await bench.link.upgrade(token)
    params = {"_meta": envelope(extension=True)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/environments/list", "params": params}
    return (await bench.link.mcp("mcp", CONTROL_PATH, body, headers=bearer(token)))[1]


def needed(token: str | None, option: str) -> str:
    """A token that the check cannot do without.

    Raises:
        NotApplicable: it was not given.
    """
    if token is None:
        raise NotApplicable(f"no {option} was given")
    return token


@suite.check("without a token nothing is answered", "CRED-2", "CHAN-2", "CHAN-4", negative=True)
async def no_token(bench: Bench) -> None:
    needed(bench.target.token, "--token")
    answer = await knock(bench, None)
    expect(
        answer.status == 401,
        f"a request without a token got the status {answer.status}, expected 401 (leave --token out for open servers)",
    )
    error = (answer.value or {}).get("error") or {}
    expect_equal(error.get("code"), 4010, "the code in the answer without a token")


@suite.check("a wrong token opens nothing", "CRED-2", "CHAN-2", negative=True)
async def wrong_token(bench: Bench) -> None:
    token = needed(bench.target.token, "--token")
    for wrong in (WRONG_TOKEN, token[:-1], token + "x", token.swapcase()):
        answer = await knock(bench, wrong)
        expect(answer.status == 401, f"a token that was never given out got the status {answer.status}, expected 401")


@suite.check("a play capability is no token", "CRED-11", negative=True)
async def capability_as_token(bench: Bench) -> None:
    needed(bench.target.token, "--token")
    play = (await bench.start())["play"]
    if play is None:
        raise NotApplicable("the server has no play plane")
    for token in (play["path"].split("/")[2], play["path"]):
        answer = await knock(bench, token)
        expect(answer.status == 401, f"a play capability opens the control plane (status {answer.status})")


@suite.check("another principal's episodes and groups do not exist", "CRED-5", negative=True)
async def other_principal(bench: Bench) -> None:
    other = bench.through(token=needed(bench.target.other_token, "--other-token"))
    group = await bench.start_group(1)
    episode = group["episodes"][0]["episode"]
    step = {"episode": episode, "step": 1, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    candidates = {episode: {"messages": [message]}}
    for method, params in (
        ("episodes/get", {"episode": episode}),
        ("episodes/step", step),
        ("episodes/rewards", {"episode": episode}),
        ("episodes/fork", {"episode": episode, "key": new_key()}),
        ("episodes/grade", {"episode": episode, "answer": "x", "key": new_key()}),
        ("episodes/close", {"episode": episode}),
        ("groups/score", {"group": group["group"], "candidates": candidates, "key": new_key()}),
    ):
        try:
            await other.refused((4044, 4045), method, **params)
        except Fault as fault:
            raise Fault(f"to another principal: {fault}") from None
    info = await bench.info(episode)
    expect_equal((info["status"], info["steps"]), ("running", 0), "the episode after another principal's requests")


@suite.check("another principal's key has nothing to do with one's own", "KEY-5", negative=True)
async def keys_of_principals(bench: Bench) -> None:
    other = bench.through(token=needed(bench.target.other_token, "--other-token"))
    key = new_key()
    mine, theirs = await bench.start(key=key), await other.start(key=key)
    expect(mine["episode"] != theirs["episode"], "another principal's start under the same key got the same episode")


@suite.check("a token without `rewards:read` reads no rewards", "CRED-3", negative=True)
async def scopes(bench: Bench) -> None:
    limited = bench.through(token=needed(bench.target.limited_token, "--limited-token"))
    group = await limited.start_group(1)
    episode = group["episodes"][0]["episode"]
    await limited.refused(4030, "episodes/rewards", episode=episode)
    await limited.refused(4030, "groups/score", group=group["group"], candidates={}, key=new_key())


@suite.check("results hold no reward and no metadata for a token without `rewards:read`", "CRED-6", negative=True)
async def hidden_rewards(bench: Bench) -> None:
    limited = bench.through(token=needed(bench.target.limited_token, "--limited-token"))
    started = await limited.start()
    episode = started["episode"]
    for number in range(1, 5):
        result = (await limited.step(episode, number, limited.some_call(started, number - 1))).result or {}
        expect(result.get("reward") is None and not result.get("metadata"), f"step {number} tells a reward or metadata")
        if result.get("endReason") is not None:
            break
    expect((await limited.info(episode))["reward"] is None, "episodes/get tells the total")
    answer = {"episode": episode, "answer": "x", "key": new_key()}
    graded = (await limited.ask("episodes/grade", **answer)).result
    if graded is not None:
        expect(graded["reward"] is None and graded["info"]["reward"] is None, "episodes/grade tells the grade")
    closed = await limited.must("episodes/close", episode=episode)
    expect(closed["info"]["reward"] is None, "episodes/close tells the total")


@suite.check("a test split is closed to a token without its scope", "CRED-4", negative=True)
async def test_split(bench: Bench) -> None:
    limited = bench.through(token=needed(bench.target.limited_token, "--limited-token"))
    place: dict[str, Any] = {"environment": bench.name, "split": bench.split_of("test")["name"]}
    await limited.refused(4030, "tasks/list", **place)
    await limited.refused(4030, "tasks/get", **place, index=0)
    await limited.refused(4030, "tasks/sample", **place)
    await limited.refused(4030, "episodes/start", **place, key=new_key())


@suite.check("rows of a test split hold their id and no fields", "CRED-13", negative=True)
async def test_rows(bench: Bench) -> None:
    place: dict[str, Any] = {"environment": bench.name, "split": bench.split_of("test")["name"]}
    listed = await bench.ask("tasks/list", **place, limit=3)
    if listed.code == 4030:
        raise NotApplicable("the token may not read the test split")
    if listed.result is None:
        raise Fault(f"tasks/list of the test split failed with {listed.code}: {listed.message}")
    started = await bench.start(**place, index=0)
    rows = [
        *listed.result["tasks"],
        (await bench.must("tasks/get", **place, index=0))["task"],
        *(await bench.must("tasks/sample", **place, count=2))["tasks"],
        started["task"],
        (await bench.info(started["episode"]))["task"],
    ]
    for row in rows:
        expect(row["fields"] == {}, f"a row of a test split holds fields: {json.dumps(row['fields'])[:120]}")
