"""Where a request goes: to the worker that its ids name, to the one that got the start before, or to any.

Nothing here decides whether a request is valid. A request that cannot be understood goes to any worker, which answers
it as a server of one process does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from ludus.protocol.identifiers import CHANNEL_PATH, CONTROL_PATH
from ludus.protocol.methods import REPORT_OUTCOMES, START
from ludus.protocol.workers import WORKER_PATH, is_worker_id, worker_of, worker_of_capability

__all__ = ["Place", "Target", "place_of", "target_of_mcp"]


_PLAY: Final = "/play/"
_WORKER_START, _, _WORKER_END = WORKER_PATH.partition("{worker}")
_PAGES: Final = frozenset({"/health", "/ready", "/metrics"})
_MOST_MEMBERS: Final = 100_000


class Kind(Enum):
    """The kinds of targets."""

    ANY = "any"
    """Each worker can answer."""
    WORKER = "worker"
    """The worker of an id."""
    START = "start"
    """The worker that an idempotency key belongs to, or the least busy one."""
    EVERY = "every"
    """One worker answers, and the others get it too."""


class Target(NamedTuple):
    """Where a request goes."""

    kind: Kind
    worker: str | None = None
    key: str | None = None
    episodes: int = 1
    """How many episodes a start asks for."""


ANY: Final = Target(Kind.ANY)
NEW: Final = Target(Kind.START)
"""A start without a key."""


class Place(Enum):
    """What a path leads to."""

    PAGE = "page"
    CHANNEL = "channel"
    WORKER_CHANNEL = "worker channel"
    CONTROL = "control"
    PLAY = "play"
    OTHER = "other"


def place_of(path: str) -> tuple[Place, str]:
    """Return what a path leads to, and the worker or the capability that it names."""
    if path in _PAGES:
        return Place.PAGE, path
    if path == CHANNEL_PATH:
        return Place.CHANNEL, ""
    if path in (CONTROL_PATH, CONTROL_PATH + "/"):
        return Place.CONTROL, ""
    if path.startswith(_PLAY):
        return Place.PLAY, path[len(_PLAY) :].partition("/")[0]
    if path.startswith(_WORKER_START) and path.endswith(_WORKER_END):
        worker = path[len(_WORKER_START) : -len(_WORKER_END)]
        if is_worker_id(worker):
            return Place.WORKER_CHANNEL, worker
    return Place.OTHER, ""


def target_of_capability(capability: str) -> Target:
    """Return the target of a request to the agent endpoint of an episode."""
    return _of_worker(worker_of_capability(capability))


def target_of_id(identifier: object) -> Target:
    """Return the target of a request about an episode or a group."""
    return _of_worker(worker_of(identifier) if isinstance(identifier, str) else None)


def target_of_method(method: object, params: object) -> Target:
    """Return the target of a request of the extension."""
    if not isinstance(params, Mapping):
        return ANY
    if method == START.name:
        world = params.get("world")
        owner = target_of_id(world.get("id")) if isinstance(world, Mapping) else ANY
        if owner.kind is Kind.WORKER:  # a world stays on its worker, and so does a start that is sent again
            return owner
        key, count = params.get("key"), params.get("count", 1)
        is_count = type(count) is int and 1 <= count <= _MOST_MEMBERS
        return Target(Kind.START, key=key if isinstance(key, str) else None, episodes=count if is_count else 1)
    if method == REPORT_OUTCOMES.name:
        return Target(Kind.EVERY)
    return target_of_id(params.get("episode", params.get("group", params.get("world"))))


def target_of_mcp(body: bytes) -> tuple[Target, Any]:
    """Return the target of a message of MCP, and its JSON-RPC id; None if it has none."""
    try:
        message = from_json(body)
    except ValueError:
        return ANY, None
    if not isinstance(message, dict):
        return ANY, None
    identifier, method, params = message.get("id"), message.get("method"), message.get("params")
    if method == "tools/call" and isinstance(params, dict):
        arguments = params.get("arguments")
        if params.get("name") == "start_episode":
            return NEW, identifier
        if params.get("name") == "call_tool" and isinstance(arguments, dict):
            return target_of_id(arguments.get("episode")), identifier
        return ANY, identifier
    return target_of_method(method, params), identifier


def _of_worker(worker: str | None) -> Target:
    return Target(Kind.WORKER, worker) if worker is not None else ANY
