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
            made = {name: getattr(entry.made, name) for name in _OF_WORLD} if entry.made else None
            body |= {"request": entry.request.hex(), "made": made}
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
        asked = Asked(
            episode, call.number, call.key, call.tool, call.arguments, call.turn, call.digest, call.refused
        )  # fmt: skip
        settled = Settled(episode, call.key, outcome, logged, call.original_result)
        return (encode(asked), encode(settled)), None
    parts = (call.number, call.key, call.tool, call.arguments)
    try:
        body = to_json(parts, inf_nan_mode="constants")
    except ValueError:
        body = _json(parts)
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
        places = [start + _FRAME.size]
        for size in sizes:
            places.append(places[-1] + size)
        if places[-1] > len(batch):
            raise ValueError("a batch of entries is cut off")
        name, body, outcome = (batch[one:other] for one, other in zip(places, places[1:], strict=False))
        yield kind, name.decode(), body, outcome, batch[start : places[-1]]
        start = places[-1]


def without_undone(batch: bytes, undone: Mapping[str, Undone], sizes: Counter[str] | None) -> bytes:
    """Return entries without those that are undone, which are no longer counted in `sizes`."""
    rest: list[bytes] = []
    for kind, episode, body, outcome, whole in split(batch):
        calls = undone.get(episode)
        if calls is not None and all(_is_undone(entry, calls) for entry in decode(kind, episode, body, outcome)):
            if sizes is not None:
                sizes[episode] -= len(whole)
        else:
            rest.append(whole)
    return b"".join(rest)


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
    for kind, episode, body, outcome, whole in split(batch):
        sizes[episode] += len(whole)
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
    one = logged[0]
    return len(logged) == 1 and one.source == "step" and one.reward is outcome.reward and one.step == outcome.step


def _json(body: Any) -> bytes:
    try:
        return to_json(body, inf_nan_mode="constants")
    except ValueError:  # half a surrogate pair in the arguments of a call, which is refused without being run
        return to_json(replace_surrogates(body), inf_nan_mode="constants")


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
    if asked.ahead:
        body["ahead"] = True
    return body


def decode(kind: int, episode: str, body: bytes, outcome: bytes) -> tuple[Entry, ...]:
    """Return the entry with these parts, or the two of a call with its outcome.

    Raises:
        ValueError: there is no such kind, or the body is not one of it.
    """
    try:
        given: Any = from_json(body, allow_inf_nan=True)
        if kind in (CALLED, REWARDED):
            return _called(episode, given, outcome, rewarded=kind == REWARDED)
        if kind == STARTED:
            return (_started(episode, given),)
        if kind == ASKED:
            return (_asked(episode, given),)
        if kind == SETTLED:
            return (_settled(episode, given["key"], outcome),)
        if kind == SAVED:
            return (Saved(episode, given["step"], dict(given["parts"])),)
        if kind in (SCORED, REPORTED, TALLIED):
            return (_of_request(kind, episode, given),)
        if kind == ENDED:
            entries = tuple(RewardEntry.model_validate(one) for one in given.get("entries", ()))
            return (Ended(episode, EndReason(given["reason"]), given["incident"], entries),)
        if kind == EVICTED:
            return (Evicted(episode),)
        if kind == WORLD_VERSIONED:
            return (_world_versioned(episode, given),)
        if kind == WORLD_DELETED:
            return (WorldDeleted(episode),)
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


def _world_versioned(episode: str, given: dict[str, Any]) -> WorldVersioned:
    made = given["made"]
    if made is not None:
        origin = made.pop("origin")
        made = WorldMade(**made, origin=None if origin is None else (origin[0], origin[1]))
    own = {name: given[name] for name in _OF_VERSION if name in given}
    return WorldVersioned(episode=episode, made=made, request=bytes.fromhex(given["request"]), **own)


def _started(episode: str, given: dict[str, Any]) -> Started:
    tools = given["tools"]
    return Started(
        episode=episode,
        limits=EpisodeLimits.model_validate(given["limits"]),
        tools=None if tools is None else tuple(tools),
        prompt=tuple(Message.model_validate(one) for one in given["prompt"]),
        digest=bytes.fromhex(given["digest"]),
        match=given.get("match"),
        seat=given.get("seat"),
        opponent=given.get("opponent"),
        world=given.get("world"),
        world_version=given.get("world_version", 0),
        played=tuple(given.get("played", ())),
        **{name: given[name] for name in _PLAIN},
    )


def _called(episode: str, given: Any, body: bytes, *, rewarded: bool) -> tuple[Asked, Settled]:
    number, key, tool, arguments = given
    result = StepResult.model_validate(from_json(body, allow_inf_nan=True))
    entries: tuple[RewardEntry, ...] = ()
    if rewarded:
        entries = (RewardEntry.model_validate({"step": result.step, "source": "step", "reward": result.reward}),)
    return Asked(episode, number, key, tool, arguments), Settled(episode, key, result, entries)


def _of_request(kind: int, episode: str, given: dict[str, Any]) -> Entry:
    """Return an entry that belongs to a request and to no call."""
    if kind == SCORED:
        result = ScoreGroupResult.model_validate(given["result"])
        return Scored(episode, given["owner"], given["key"], bytes.fromhex(given["digest"]), result)
    if kind == REPORTED:
        outcomes = tuple(Outcome.model_validate(one) for one in given["outcomes"])
        digest = bytes.fromhex(given["digest"])
        return Reported(given["environment"], given["split"], given["owner"], given["key"], digest, outcomes)
    counts = {task: (tries, passes) for task, (tries, passes) in given["counts"].items()}
    keys = tuple((owner, key, bytes.fromhex(digest)) for owner, key, digest in given["keys"])
    return Tallied(given["environment"], given["split"], counts, given["recorded"], keys)


def _asked(episode: str, given: dict[str, Any]) -> Asked:
    turn, digest, refused = given.get("turn"), given.get("digest"), given.get("refused")
    return Asked(
        episode, given["step"], given["key"], given["tool"], given["arguments"],
        None if turn is None else TurnMark.model_validate(turn),
        None if digest is None else bytes.fromhex(digest),
        None if refused is None else StepError.model_validate(refused),
        given.get("ahead", False),
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
    original = given.get("original")
    return Settled(
        episode, key, outcome, entries, None if original is None else StepResult.model_validate(original)
    )  # fmt: skip
