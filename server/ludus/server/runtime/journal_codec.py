"""Journal entries as JSON, for journals on disk.

The fields of wire types have the names that they have on the wire; a step's outcome is encoded as it is sent.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json, to_json

from ludus.protocol.content import Message
from ludus.protocol.episodes import EpisodeLimits, StepError, StepResult, TurnMark
from ludus.protocol.errors import ErrorObject, LudusError, from_wire, to_wire
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.server.runtime.journal import Asked, Ended, Entry, Evicted, Settled, Started

STARTED, ASKED, SETTLED, ENDED, EVICTED, CALLED = range(6)
"""The numbers of the kinds of entries."""

_PLAIN: Final = (
    "group", "place", "size", "environment", "version", "split", "task", "index", "seed", "owner", "key", "fork",
    "origin", "has_secrets",
)  # fmt: skip
"""The fields of `Started` that are JSON values."""


def encode(entry: Entry) -> tuple[int, bytes, bytes]:
    """Return the number of an entry's kind, the rest of the entry as JSON without its episode, and a call's outcome."""
    match entry:
        case Settled():
            return SETTLED, to_json({"key": entry.key}), encode_outcome(entry)
        case Asked():
            return ASKED, to_json(_call(entry), inf_nan_mode="constants"), b""
        case Started():
            body = {name: getattr(entry, name) for name in _PLAIN}
            body |= {"limits": entry.limits, "tools": entry.tools, "prompt": entry.prompt, "digest": entry.digest.hex()}
            return STARTED, to_json(body), b""
        case Ended():
            return ENDED, to_json({"reason": entry.reason, "incident": entry.incident}), b""
        case Evicted():
            return EVICTED, b"{}", b""


def encode_call(asked: Asked, settled: Settled) -> tuple[int, bytes, bytes]:
    """Return what `encode` does, for a call and its outcome in one: most calls are written when they have one."""
    return CALLED, to_json(_call(asked), inf_nan_mode="constants"), encode_outcome(settled)


def encode_outcome(settled: Settled) -> bytes:
    """Return a call's outcome as JSON."""
    outcome = settled.outcome
    if isinstance(outcome, LudusError):
        return to_json({"error": to_wire(outcome)})
    result = outcome.__pydantic_serializer__.to_json(outcome)
    if not settled.entries:
        return b'{"result":' + result + b"}"
    return b'{"result":' + result + b',"entries":' + to_json(settled.entries) + b"}"


def _call(asked: Asked) -> dict[str, Any]:
    body: dict[str, Any] = {
        "step": asked.step, "key": asked.key, "tool": asked.tool, "arguments": asked.arguments
    }  # fmt: skip
    if asked.turn is not None:
        body["turn"] = asked.turn
    if asked.digest is not None:
        body["digest"] = asked.digest.hex()
    if asked.refused is not None:
        body["refused"] = asked.refused
    if asked.overlaps:
        body["overlaps"] = True
    return body


def decode(kind: int, episode: str, body: bytes, outcome: bytes) -> tuple[Entry, ...]:
    """Return the entry that `encode` wrote, or the two of `encode_call`.

    Raises:
        ValueError: there is no such kind, or the body is not one of it.
    """
    try:
        given: dict[str, Any] = from_json(body, allow_inf_nan=True)
        match kind:
            case 0:
                return (_started(episode, given),)
            case 1:
                return (_asked(episode, given),)
            case 2:
                return (_settled(episode, given["key"], outcome),)
            case 3:
                return (Ended(episode, EndReason(given["reason"]), given["incident"]),)
            case 4:
                return (Evicted(episode),)
            case 5:
                return _asked(episode, given), _settled(episode, given["key"], outcome)
            case _:
                raise ValueError(f"there is no kind {kind} of entries")
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"an entry of kind {kind} lacks what it needs: {error!r}") from None


def _started(episode: str, given: dict[str, Any]) -> Started:
    tools = given["tools"]
    return Started(
        episode=episode,
        limits=EpisodeLimits.model_validate(given["limits"]),
        tools=None if tools is None else tuple(tools),
        prompt=tuple(Message.model_validate(one) for one in given["prompt"]),
        digest=bytes.fromhex(given["digest"]),
        **{name: given[name] for name in _PLAIN},
    )


def _asked(episode: str, given: dict[str, Any]) -> Asked:
    turn, digest, refused = given.get("turn"), given.get("digest"), given.get("refused")
    return Asked(
        episode, given["step"], given["key"], given["tool"], given["arguments"],
        None if turn is None else TurnMark.model_validate(turn),
        None if digest is None else bytes.fromhex(digest),
        None if refused is None else StepError.model_validate(refused),
        given.get("overlaps", False),
    )  # fmt: skip


def _settled(episode: str, key: str, body: bytes) -> Settled:
    given: dict[str, Any] = from_json(body, allow_inf_nan=True)
    outcome: StepResult | LudusError
    if "error" in given:
        error = ErrorObject.model_validate(given["error"])
        outcome = from_wire(error.code, error.message, error.data)
    else:
        outcome = StepResult.model_validate(given["result"])
    entries = tuple(RewardEntry.model_validate(one) for one in given.get("entries", ()))
    return Settled(episode, key, outcome, entries)
