"""Journal entries as JSON, for journals on disk.

The fields of wire types have the names that they have on the wire; a step's outcome is encoded as it is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import from_json, to_json

from ludus.protocol.content import Message
from ludus.protocol.episodes import EpisodeLimits, StepError, StepResult, TurnMark
from ludus.protocol.errors import ErrorObject, LudusError, from_wire, to_wire
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.protocol.text import replace_surrogates
from ludus.server.runtime.journal import Asked, Ended, Entry, Evicted, Settled, Started

STARTED, ASKED, SETTLED, ENDED, EVICTED, CALLED = range(6)
"""The numbers of the kinds of entries."""

_FRAME: Final = struct.Struct("<BIII")
"""What begins an entry: its kind, and the sizes of its episode's id and of its two parts."""

_PLAIN: Final = (
    "group", "size", "environment", "version", "split", "task", "seed", "owner", "key", "fork",
    "origin", "has_secrets",
)  # fmt: skip
"""The fields of `Started` that are JSON values."""


def encode(entry: Entry) -> bytes:
    """Return an entry as bytes, which `decode_all` reads."""
    match entry:
        case Settled():
            return _framed(SETTLED, entry.episode, to_json({"key": entry.key}), _outcome(entry, None))
        case Asked():
            return _framed(ASKED, entry.episode, to_json(_call(entry), inf_nan_mode="constants"))
        case Started():
            body = {name: replace_surrogates(getattr(entry, name)) for name in _PLAIN}
            body |= {"limits": entry.limits, "tools": entry.tools, "prompt": entry.prompt, "digest": entry.digest.hex()}
            return _framed(STARTED, entry.episode, to_json(body))
        case Ended():
            return _framed(ENDED, entry.episode, to_json({"reason": entry.reason, "incident": entry.incident}))
        case Evicted():
            return _framed(EVICTED, entry.episode, b"{}")


def encode_call(asked: Asked, settled: Settled) -> bytes:
    """Return what `encode` does, for a call and its outcome in one: most calls are written when they have one."""
    body = to_json(_call(asked), inf_nan_mode="constants")
    return _framed(CALLED, asked.episode, body, _outcome(settled, asked))


def split(batch: bytes) -> Iterator[tuple[int, str, bytes, bytes, bytes]]:
    """Yield the kind, the episode, the two parts and the whole of each entry of a batch.

    Raises:
        ValueError: the batch is cut off, or no batch.
    """
    start = 0
    while start < len(batch):
        try:
            kind, *sizes = _FRAME.unpack_from(batch, start)
        except struct.error:
            raise ValueError("a batch of entries is cut off") from None
        places = [start + _FRAME.size]
        for size in sizes:
            places.append(places[-1] + size)
        if places[-1] > len(batch):
            raise ValueError("a batch of entries is cut off")
        name, body, outcome = (batch[one:other] for one, other in zip(places, places[1:], strict=False))
        yield kind, name.decode(), body, outcome, batch[start : places[-1]]
        start = places[-1]


def decode_all(batch: bytes) -> Iterator[Entry]:
    """Yield the entries that were encoded and joined.

    Raises:
        ValueError: the bytes are no entries.
    """
    for kind, episode, body, outcome, _ in split(batch):
        yield from decode(kind, episode, body, outcome)


def _framed(kind: int, episode: str, body: bytes, outcome: bytes = b"") -> bytes:
    name = episode.encode()
    return _FRAME.pack(kind, len(name), len(body), len(outcome)) + name + body + outcome


def _outcome(settled: Settled, asked: Asked | None) -> bytes:
    """Return a call's outcome as JSON. What it added to the log is left out if it is just the reward of the step."""
    outcome = settled.outcome
    if isinstance(outcome, LudusError):
        return to_json({"error": to_wire(outcome)})
    result = outcome.__pydantic_serializer__.to_json(outcome)
    entries = settled.entries
    if not entries or (asked is not None and asked.tool is not None and _is_own(entries, outcome)):
        return b'{"result":' + result + (b',"logged":true}' if entries else b"}")
    return b'{"result":' + result + b',"entries":' + to_json(entries) + b"}"


def _is_own(entries: tuple[RewardEntry, ...], outcome: StepResult) -> bool:
    one = entries[0]
    return len(entries) == 1 and one.source == "step" and one.reward is outcome.reward and one.step == outcome.step


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
    """Return the entry with these parts, or the two of a call with its outcome.

    Raises:
        ValueError: there is no such kind, or the body is not one of it.
    """
    try:
        given: dict[str, Any] = from_json(body, allow_inf_nan=True)
        if kind == STARTED:
            return (_started(episode, given),)
        if kind == ASKED:
            return (_asked(episode, given),)
        if kind == SETTLED:
            return (_settled(episode, given["key"], outcome),)
        if kind == CALLED:
            return _asked(episode, given), _settled(episode, given["key"], outcome)
        if kind == ENDED:
            return (Ended(episode, EndReason(given["reason"]), given["incident"]),)
        if kind == EVICTED:
            return (Evicted(episode),)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"an entry of kind {kind} lacks what it needs: {error!r}") from None
    raise ValueError(f"there is no kind {kind} of entries")


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
    if given.get("logged") and isinstance(outcome, StepResult) and outcome.reward is not None:
        entries = (RewardEntry(step=outcome.step, source="step", reward=outcome.reward),)
    return Settled(episode, key, outcome, entries)
