"""Journal entries as JSON, for journals on disk.

The fields of wire types have the names that they have on the wire; a step's outcome is encoded as it is sent.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from ludus.protocol.content import Message
from ludus.protocol.episodes import EpisodeLimits, Outcome, ScoreGroupResult, StepError, StepResult, TurnMark
from ludus.protocol.errors import ErrorObject, LudusError, from_wire, to_wire
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.protocol.text import replace_surrogates
from ludus.server.durability.journal import (
    Asked,
    Ended,
    Entry,
    Evicted,
    Reported,
    Saved,
    Scored,
    Settled,
    SettledCall,
    Started,
    Stored,
    Tallied,
    Undone,
    WorldDeleted,
    WorldMade,
    WorldVersioned,
)

(
    STARTED, ASKED, SETTLED, ENDED, EVICTED, CALLED, REWARDED, SAVED, SCORED, REPORTED, TALLIED, WORLD_VERSIONED,
    WORLD_DELETED,
) = range(13)  # fmt: skip
"""The numbers of the kinds of entries. `CALLED` and `REWARDED` are calls with their results; with `REWARDED`, the call
added its result's reward to the log."""

_FRAME: Final = struct.Struct("<BIII")
"""What begins an entry: its kind, and the sizes of its episode's id and of its two parts. The second part is the
outcome of a call, and empty for other entries."""

_PLAIN: Final = (
    "group", "size", "environment", "version", "split", "task", "seed", "owner", "key", "fork",
    "origin", "has_secrets",
)  # fmt: skip
"""The fields of `Started` that are JSON values."""


_OF_VERSION: Final = ("version", "digest", "size", "at", "by", "task", "reset_to", "key")
"""The fields of `WorldVersioned` that are JSON values."""

_OF_WORLD: Final = ("owner", "environment", "environment_version", "split", "tasks", "origin", "size")


def encode(entry: Entry) -> bytes:
    """Return an entry as bytes, which `decode_all` reads."""
    match entry:
        # The two kinds that come for every call stand first.
        case Settled():
            return _framed(SETTLED, entry.episode, to_json({"key": entry.key}), _outcome(entry))
        case Asked():
            return _framed(ASKED, entry.episode, _json(_call(entry)))
        case Started():
            body = {name: replace_surrogates(getattr(entry, name)) for name in _PLAIN}
            body |= {"limits": entry.limits, "tools": entry.tools, "prompt": entry.prompt, "digest": entry.digest.hex()}
            return _framed(STARTED, entry.episode, to_json(body | _of_match(entry) | _of_world(entry)))
        case Saved():
            return _framed(SAVED, entry.episode, to_json({"step": entry.step, "parts": entry.parts}))
        case Ended():
            ended = {"reason": entry.reason, "incident": entry.incident}
            return _framed(ENDED, entry.episode, to_json(ended | ({"entries": entry.entries} if entry.entries else {})))
        case Evicted():
            return _framed(EVICTED, entry.episode, b"{}")
        case Scored():
            body = {"owner": entry.owner, "key": entry.key, "digest": entry.digest.hex(), "result": entry.result}
            return _framed(SCORED, entry.episode, to_json(body))
        case Reported():
            body = {name: getattr(entry, name) for name in ("environment", "split", "owner", "key", "outcomes")}
            return _framed(REPORTED, entry.episode, to_json({**body, "digest": entry.digest.hex()}))
        case Tallied():
            body = {name: getattr(entry, name) for name in ("environment", "split", "counts", "recorded")}
            keys = [(owner, key, digest.hex()) for owner, key, digest in entry.keys]
            return _framed(TALLIED, entry.episode, to_json({**body, "keys": keys}))
        case WorldVersioned():
            body = {name: getattr(entry, name) for name in _OF_VERSION if getattr(entry, name) is not None}
            world = {name: getattr(entry.made, name) for name in _OF_WORLD} if entry.made else None
            body |= {"request": entry.request.hex(), "made": world}
            return _framed(WORLD_VERSIONED, entry.episode, to_json(replace_surrogates(body)))
        case WorldDeleted():
            return _framed(WORLD_DELETED, entry.episode, b"{}")


def encode_call(
    episode: str, call: SettledCall, outcome: StepResult | LudusError
) -> tuple[tuple[bytes, ...], bytes | None]:
    """Return the pieces of what `encode` returns for a call and its outcome in one, and the result as it is sent.

    Most calls are written when they have an outcome, and most outcomes are results with at most one reward. So this is
    the path on which time counts.
    """
    logged = call.logged
    name = episode.encode()
    plain = call.turn is None and call.digest is None and call.refused is None and call.original_result is None
    if not plain or isinstance(outcome, LudusError) or (logged and not _is_own(call, outcome)):
        accepted = Asked(
            episode, call.number, call.key, call.tool, call.arguments, call.turn, call.digest, call.refused
        )  # fmt: skip
        settled = Settled(episode, call.key, outcome, logged, call.original_result)
        return (encode(accepted), encode(settled)), None
    parts = (call.number, call.key, call.tool, call.arguments)
    try:
        # JSON has no infinity and no NaN, but the arguments of a call may have them, and must be repeated as they were.
        body = to_json(parts, inf_nan_mode="constants")
    except ValueError:
        body = _json(parts)
    # The serializer itself: `model_dump_json` takes longer and returns a string, which would be encoded again.
    result: bytes = outcome.__pydantic_serializer__.to_json(outcome)
    head = _FRAME.pack(REWARDED if logged else CALLED, len(name), len(body), len(result))
    return (head, name, body, result), result


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
        bounds = [start + _FRAME.size]
        for size in sizes:
            bounds.append(bounds[-1] + size)
        # A slice beyond the end would be short without an error.
        if bounds[-1] > len(batch):
            raise ValueError("a batch of entries is cut off")
        name, body, outcome = (batch[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False))
        yield kind, name.decode(), body, outcome, batch[start : bounds[-1]]
        start = bounds[-1]


def without_undone(batch: bytes, undone: Mapping[str, Undone], sizes: Counter[str] | None) -> bytes:
    """Return entries without those that are undone, which are no longer counted in `sizes`."""
    remaining: list[bytes] = []
    for kind, episode, body, outcome, raw in split(batch):
        calls = undone.get(episode)
        # Decoded only for episodes with undone calls. `all`: an entry that holds a call with its outcome is both.
        if calls is not None and all(_is_undone(entry, calls) for entry in decode(kind, episode, body, outcome)):
            if sizes is not None:
                sizes[episode] -= len(raw)
        else:
            remaining.append(raw)
    return b"".join(remaining)


def _is_undone(entry: Entry, undone: Undone) -> bool:
    match entry:
        case Asked():
            return entry.key in undone.asked
        case Settled():
            return entry.key in undone.settled
        case Saved():
            return entry.step > undone.upto
        case _:
            return False


def decode_all(batch: bytes) -> Iterator[Entry]:
    """Yield the entries that were encoded and joined.

    Raises:
        ValueError: the bytes are no entries.
    """
    for kind, episode, body, outcome, _ in split(batch):
        yield from decode(kind, episode, body, outcome)


def stored_in(batch: bytes, at: float, sizes: Counter[str]) -> Iterator[Stored]:
    """Yield the entries of a row, and count the bytes of each episode.

    Raises:
        ValueError: the row cannot be read.
    """
    for kind, episode, body, outcome, raw in split(batch):
        sizes[episode] += len(raw)
        for entry in decode(kind, episode, body, outcome):
            yield Stored(at, entry)


def _framed(kind: int, episode: str, body: bytes, outcome: bytes = b"") -> bytes:
    name = episode.encode()
    return _FRAME.pack(kind, len(name), len(body), len(outcome)) + name + body + outcome


def _outcome(settled: Settled) -> bytes:
    """Return a call's outcome, with what it added to the log, as JSON."""
    outcome = settled.outcome
    body: dict[str, Any] = {"error": to_wire(outcome)} if isinstance(outcome, LudusError) else {"result": outcome}
    if settled.entries:
        body["entries"] = settled.entries
    if settled.original is not None:
        body["original"] = settled.original
    return to_json(body)


def _is_own(call: SettledCall, outcome: StepResult) -> bool:
    """Return whether a step's only entry in the log is its result's reward."""
    logged = call.logged
    logged_entry = logged[0]
    # By identity, which is exact and costs nothing; an equal reward that is another object is written as an entry.
    return (
        len(logged) == 1
        and logged_entry.source == "step"
        and logged_entry.reward is outcome.reward
        and logged_entry.step == outcome.step
    )


def _json(body: Any) -> bytes:
    try:
        return to_json(body, inf_nan_mode="constants")
    except ValueError:  # half a surrogate pair in the arguments of a call, which is refused without being run
        return to_json(replace_surrogates(body), inf_nan_mode="constants")


def _call(call: Asked) -> dict[str, Any]:
    body: dict[str, Any] = {
        "step": call.step, "key": call.key, "tool": call.tool, "arguments": call.arguments
    }  # fmt: skip
    if call.turn is not None:
        body["turn"] = call.turn
    if call.digest is not None:
        body["digest"] = call.digest.hex()
    if call.refused is not None:
        body["refused"] = call.refused
    if call.ahead:
        body["ahead"] = True
    return body


def decode(kind: int, episode: str, body: bytes, outcome: bytes) -> tuple[Entry, ...]:
    """Return the entry with these parts, or the two of a call with its outcome.

    Raises:
        ValueError: there is no such kind, or the body is not one of it.
    """
    try:
        fields: Any = from_json(body, allow_inf_nan=True)
        if kind in (CALLED, REWARDED):
            return _called(episode, fields, outcome, rewarded=kind == REWARDED)
        if kind == STARTED:
            return (_started(episode, fields),)
        if kind == ASKED:
            return (_asked(episode, fields),)
        if kind == SETTLED:
            return (_settled(episode, fields["key"], outcome),)
        if kind == SAVED:
            return (Saved(episode, fields["step"], dict(fields["parts"])),)
        if kind in (SCORED, REPORTED, TALLIED):
            return (_of_request(kind, episode, fields),)
        if kind == ENDED:
            entries = tuple(RewardEntry.model_validate(entry) for entry in fields.get("entries", ()))
            return (Ended(episode, EndReason(fields["reason"]), fields["incident"], entries),)
        if kind == EVICTED:
            return (Evicted(episode),)
        if kind == WORLD_VERSIONED:
            return (_world_versioned(episode, fields),)
        if kind == WORLD_DELETED:
            return (WorldDeleted(episode),)
    # JSON that is whole but of another shape: readers of a journal handle one kind of error.
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"an entry of kind {kind} lacks what it needs: {error!r}") from None
    raise ValueError(f"there is no kind {kind} of entries")


def _of_match(entry: Started) -> dict[str, Any]:
    """Return what only the start of a seat has."""
    if entry.match is None:
        return {}
    return {"match": entry.match, "seat": entry.seat, "played": entry.played, "opponent": entry.opponent}


def _of_world(entry: Started) -> dict[str, Any]:
    """Return what only the start of an episode in a world has."""
    return {} if entry.world is None else {"world": entry.world, "world_version": entry.world_version}


def _world_versioned(episode: str, fields: dict[str, Any]) -> WorldVersioned:
    world = fields["made"]
    if world is not None:
        origin = world.pop("origin")
        world = WorldMade(**world, origin=None if origin is None else (origin[0], origin[1]))
    version = {name: fields[name] for name in _OF_VERSION if name in fields}
    return WorldVersioned(episode=episode, made=world, request=bytes.fromhex(fields["request"]), **version)


def _started(episode: str, fields: dict[str, Any]) -> Started:
    tools = fields["tools"]
    return Started(
        episode=episode,
        limits=EpisodeLimits.model_validate(fields["limits"]),
        tools=None if tools is None else tuple(tools),
        prompt=tuple(Message.model_validate(message) for message in fields["prompt"]),
        digest=bytes.fromhex(fields["digest"]),
        match=fields.get("match"),
        seat=fields.get("seat"),
        opponent=fields.get("opponent"),
        world=fields.get("world"),
        world_version=fields.get("world_version", 0),
        played=tuple(fields.get("played", ())),
        **{name: fields[name] for name in _PLAIN},
    )


def _called(episode: str, fields: Any, body: bytes, *, rewarded: bool) -> tuple[Asked, Settled]:
    number, key, tool, arguments = fields
    result = StepResult.model_validate(from_json(body, allow_inf_nan=True))
    entries: tuple[RewardEntry, ...] = ()
    if rewarded:
        # `encode_call` leaves the entry out, because it can be made from the result.
        entries = (RewardEntry.model_validate({"step": result.step, "source": "step", "reward": result.reward}),)
    return Asked(episode, number, key, tool, arguments), Settled(episode, key, result, entries)


def _of_request(kind: int, episode: str, fields: dict[str, Any]) -> Entry:
    """Return an entry that belongs to a request and to no call."""
    if kind == SCORED:
        result = ScoreGroupResult.model_validate(fields["result"])
        return Scored(episode, fields["owner"], fields["key"], bytes.fromhex(fields["digest"]), result)
    if kind == REPORTED:
        outcomes = tuple(Outcome.model_validate(outcome) for outcome in fields["outcomes"])
        digest = bytes.fromhex(fields["digest"])
        return Reported(fields["environment"], fields["split"], fields["owner"], fields["key"], digest, outcomes)
    counts = {task: (tries, passes) for task, (tries, passes) in fields["counts"].items()}
    keys = tuple((owner, key, bytes.fromhex(digest)) for owner, key, digest in fields["keys"])
    return Tallied(fields["environment"], fields["split"], counts, fields["recorded"], keys)


def _asked(episode: str, fields: dict[str, Any]) -> Asked:
    turn, digest, refused = fields.get("turn"), fields.get("digest"), fields.get("refused")
    return Asked(
        episode, fields["step"], fields["key"], fields["tool"], fields["arguments"],
        None if turn is None else TurnMark.model_validate(turn),
        None if digest is None else bytes.fromhex(digest),
        None if refused is None else StepError.model_validate(refused),
        fields.get("ahead", False),
    )  # fmt: skip


def _settled(episode: str, key: str, body: bytes) -> Settled:
    fields: dict[str, Any] = from_json(body, allow_inf_nan=True)
    outcome: StepResult | LudusError
    if "error" in fields:
        error = ErrorObject.model_validate(fields["error"])
        outcome = from_wire(error.code, error.message, error.data)
    else:
        outcome = StepResult.model_validate(fields["result"])
    entries = tuple(RewardEntry.model_validate(entry) for entry in fields.get("entries", ()))
    original = fields.get("original")
    return Settled(
        episode, key, outcome, entries, None if original is None else StepResult.model_validate(original)
    )  # fmt: skip
