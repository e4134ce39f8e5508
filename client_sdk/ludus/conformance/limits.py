"""Checks of what limits do: cut observations, end episodes, and let use postpone the end; over both control wires."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.context import CheckContext, new_key, read
from ludus.protocol.modules import Module

suite = Suite(Module.LIMITS)
_CHARS: Final = 100
"""The smallest limit on observations that a client may set."""
_MARKER_CHARS: Final = 300
"""The longest text that counts as a marker."""
_LONG_NAME: Final = "n" * 2_000
"""The name of a tool that no episode has: the observation of the mistake usually repeats it."""
_IDLE: Final = (1.2, 4.0, 12.0)
"""Idle limits in seconds. The next one is tried if an answer is so slow that its caller looks idle."""


@suite.check("an unknown limit is refused, and the error names it", "MTH-2", negative=True)
async def unknown_limit(context: CheckContext) -> None:
    limits = {"maxSteps": 2, "limitOfTheFuture": 1}
    reply = await context.refused(-32602, "episodes/start", **context.place, key=new_key(), limits=limits)
    expect("limitOfTheFuture" in reply.message, f"the refusal does not name the unknown limit: {reply.message!r}")


@suite.check("a long observation is cut off, with a marker that says how much is missing", "LIM-4", "START-9")
async def observation_cut(context: CheckContext) -> None:
    full_text = await _mistaken(context)
    if len(full_text) <= _CHARS:
        raise NotApplicable(f"no observation of more than {_CHARS} characters was found")
    short = await _mistaken(context, observationChars=_CHARS)
    expect_equal(short[:_CHARS], full_text[:_CHARS], f"the first {_CHARS} characters of an observation that is cut off")
    marker = short[_CHARS:]
    expect(
        len(marker) <= _MARKER_CHARS and marker != full_text[_CHARS:],
        f"an observation of {len(full_text)} characters is not cut off by `observationChars` of {_CHARS}",
    )
    expect(marker.strip(), "an observation that is cut off has no marker")
    expect(re.search(r"\d", marker), f"the marker does not say how much is missing: {marker!r}")


@suite.check("an episode whose observations reach their total ends with `observation_limit`", "LIM-5", "LIM-17")
async def observation_total(context: CheckContext) -> None:
    if len(await _mistaken(context)) <= _CHARS:
        raise NotApplicable(f"no observation of more than {_CHARS} characters was found")
    started = await context.start(limits={"totalObservationChars": _CHARS})
    step = read("episodes/step", (await context.step(started["episode"], 1, (_LONG_NAME, {}))).result)
    expect_equal((step.status, step.end_reason), ("truncated", "observation_limit"), "after more than the total")


async def _mistaken(context: CheckContext, **limits: Any) -> str:
    """Call a tool with a very long name that does not exist; return the text of the observation."""
    started = await context.start(limits=limits or None)
    reply = await context.step(started["episode"], 1, (_LONG_NAME, {}))
    if reply.result is None:
        raise ConformanceFailure(f"a call of a tool that does not exist failed with {reply.code}: {reply.message}")
    return "".join(_texts(reply.result))


def _texts(step: Mapping[str, Any]) -> list[str]:
    return [str(block["text"]) for block in step["content"] if block["type"] == "text"]


@suite.check("a request for an episode's state postpones its idle expiry", "GET-1", "LIM-6")
async def kept_alive(context: CheckContext) -> None:
    for idle in _IDLE:
        if await _stays(context, idle):
            return
    raise NotApplicable("the server or this machine is too slow to tell use from idleness")


async def _stays(context: CheckContext, idle: float) -> bool:
    """Read an episode more often than its idle limit; return False if an answer took too long to say anything."""
    loop = asyncio.get_running_loop()
    started = await context.start(limits={"idleSeconds": idle})
    used = loop.time()
    for _ in range(4):
        await asyncio.sleep(idle / 2)
        info = await context.info(started["episode"])
        if loop.time() - used > idle * 0.9:
            return False
        used = loop.time()
        expect_equal(
            (info["status"], info["endReason"]), ("running", None),
            f"an episode that is read every {idle / 2:g} s, with an idle limit of {idle:g} s",
        )  # fmt: skip
    return True
