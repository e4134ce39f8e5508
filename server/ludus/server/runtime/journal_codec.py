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

STARTED, ASKED, SETTLED, ENDED, EVICTED = range(5)
"""The numbers of the kinds of entries."""

_PLAIN: Final = (
    "group", "place", "size", "environment", "version", "split", "task", "index", "seed", "owner", "key", "fork",
    "origin", "has_secrets",
)  # fmt: skip
"""The fields of `Started` that are JSON values."""


def encode(entry: Entry) -> tuple[int, bytes]:
    """Return the number of an entry's kind, and the rest of the entry as JSON, without its episode."""
    match entry:
        case Settled(outcome=outcome):
            body: dict[str, Any] = {"key": entry.key}
            if isinstance(outcome, LudusError):
                body["error"] = to_wire(outcome)
            else:
                body["result"] = outcome
            if entry.entries:
                body["entries"] = entry.entries
            return SETTLED, to_json(body)
        case Asked():
            body = {"step": entry.step, "key": entry.key, "tool": entry.tool, "arguments": entry.arguments}
            if entry.turn is not None:
                body["turn"] = entry.turn
            if entry.digest is not None:
                body["digest"] = entry.digest.hex()
            if entry.refused is not None:
                body["refused"] = entry.refused
            return ASKED, to_json(body, inf_nan_mode="constants")
        case Started():
            body = {name: getattr(entry, name) for name in _PLAIN}
            body |= {"limits": entry.limits, "tools": entry.tools, "prompt": entry.prompt, "digest": entry.digest.hex()}
            return STARTED, to_json(body)
        case Ended():
            return ENDED, to_json({"reason": entry.reason, "incident": entry.incident})
        case Evicted():
            return EVICTED, b"{}"


def decode(kind: int, episode: str, body: bytes) -> Entry:
    """Return the entry that `encode` wrote.

    Raises:
        ValueError: there is no such kind, or the body is not one of it.
    """
    try:
        given: dict[str, Any] = from_json(body, allow_inf_nan=True)
        match kind:
            case 0:
                return _started(episode, given)
            case 1:
                return _asked(episode, given)
            case 2:
                return _settled(episode, given)
            case 3:
                return Ended(episode, EndReason(given["reason"]), given["incident"])
            case 4:
                return Evicted(episode)
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
    )  # fmt: skip


def _settled(episode: str, given: dict[str, Any]) -> Settled:
    outcome: StepResult | LudusError
    if "error" in given:
        error = ErrorObject.model_validate(given["error"])
        outcome = from_wire(error.code, error.message, error.data)
    else:
        outcome = StepResult.model_validate(given["result"])
    entries = tuple(RewardEntry.model_validate(one) for one in given.get("entries", ()))
    return Settled(episode, given["key"], outcome, entries)
