"""Who ended an episode whose harness ended with an error: the policy, or the harness and what it runs on.

An episode without a reward is in no mean and in no loss. So if the policy could end its agent program with an error, it
could learn to make its bad episodes disappear. Agent programs make that easy: they exit with an error when replies are
cut, when the context is full, or when a command of the policy kills them. What the policy caused is therefore an end of
its own, which keeps what it has earned; what broke by itself stays unscored. In this order:

    nothing was sampled                            the platform: there was no policy yet
    the sandbox was lost                           the platform
    another destination was asked for              the policy, if it has used tools of the program's own, which may have
                                                   asked; otherwise the program did, and its episode is worth nothing
    the last answer was a cut or empty reply, a    the policy
    call that cannot be read, or a refusal of the
    context or its content
    the last answer was a call, and then nothing   the policy, if the program hung or ended without a word
    a signal ended the program, and the policy     the policy, unless the machine ran out of memory meanwhile
    has used tools of the program's own
    anything else                                  unclear: the replies are played once more (`replayed.py`)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ludus.gateway.harness import HarnessFailed, HarnessNetworkRefused, HarnessSandboxLost
from ludus.gateway.session import EpisodeSession, ModelCall
from ludus.gateway.wires.requests import Refusal
from ludus.protocol.items import CallItem
from ludus.protocol.trajectory import Stop

_OOM: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_OF_POLICY: Final = ("context", "content", "too_large")
"""The refusals that a policy brings about by what it adds to a conversation."""


class Blame(NamedTuple):
    """Who ended an episode."""

    who: Literal["policy", "platform", "unclear"]
    cause: str = ""
    """What the policy did, for metrics."""
    stopped: Stop = "turn_limit"
    """The end of an episode that the policy has ended."""


def blame(error: HarnessFailed, session: EpisodeSession, tools: frozenset[str], *, out_of_memory: bool) -> Blame:
    """Return who caused the error of a harness.

    Args:
        error: the error.
        session: the model calls of the episode.
        tools: the names of the environment's tools.
        out_of_memory: whether the machine has killed a process for its memory since the episode began.
    """
    if not session.calls or isinstance(error, HarnessSandboxLost):
        return Blame("platform")
    outside = any(_is_outside(call, tools) for call in session.calls)
    if isinstance(error, HarnessNetworkRefused):
        return Blame("policy", "network") if outside else Blame("platform")
    last = session.last
    if isinstance(last, Refusal) and last.kind in _OF_POLICY:
        return Blame("policy", last.kind, "context_limit" if last.kind == "context" else "turn_limit")
    if isinstance(last, ModelCall):
        if (cause := useless(last)) is not None:
            return Blame("policy", cause)
        is_open = any(isinstance(item, CallItem) for item in last.turn.items)
        if is_open and error.how == "idle":
            return Blame("policy", "idle", "time_limit")
        if is_open and not error.printed and not out_of_memory:
            return Blame("policy", "call")
    if outside and error.how == "signal" and not out_of_memory:
        return Blame("policy", "signal")
    return Blame("unclear", error.how, "time_limit" if error.how == "idle" else "turn_limit")


def useless(call: ModelCall) -> str | None:
    """Return why no program can go on from a reply: it was cut, cannot be read or is empty; None if one can."""
    turn = call.turn
    if turn.cut:
        return "cut"
    if turn.error is not None:
        return "malformed"
    return None if turn.message.strip() or any(isinstance(item, CallItem) for item in turn.items) else "empty"


def environment_tool(name: str, tools: frozenset[str]) -> str | None:
    """Return the tool of the environment that a name means; None if it means none of them.

    Agent programs put the name of the server before it, each in a way of its own: `mcp__ludus__guess`, `ludus_guess`,
    `ludus-guess`, `ludus.guess`.
    """
    if name in tools:
        return name
    ends = [tool for tool in tools if name.endswith(tool) and not name[: -len(tool)][-1:].isalnum()]
    return max(ends, key=len, default=None)


def _is_outside(call: ModelCall, tools: frozenset[str]) -> bool:
    """Return whether a turn calls a tool of the agent program's own, such as a shell."""
    made = (item.call.tool for item in call.turn.items if isinstance(item, CallItem))
    return any(environment_tool(tool, tools) is None for tool in made)


def memory_kills() -> int:
    """Return how many processes this machine has ended since its start for lack of memory; 0 where nothing counts."""
    try:
        match = _OOM.search(Path("/proc/vmstat").read_text())
    except OSError:
        return 0
    return int(match[1]) if match else 0
