"""Ids that name the worker which made them, so that a gateway or a plain proxy can route requests by what it sees.

A server process with a worker id writes it, with a dot, into the ids of its episodes (`e_w0.Yt81Lm`), groups
(`g_w0.Qm42Xa`), worlds (`w_w0.Kd83Rt`), play capabilities (`play_w0.AAAA`) and ORS sessions (`w0.5f0c…`). No other id
of Ludus has a dot.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["worker_of_capability"]


WORKER_PATTERN: Final = r"[a-z0-9]{1,16}"
"""A regular expression for worker ids."""

WORKER_PATH_HEADER: Final = "Ludus-Worker-Path"
"""The header of the channel's upgrade response that says where the channel of each worker is: a path with `{worker}`,
relative to the server's address. A client opens one more connection there for each worker that has its episodes."""

WORKER_PATH: Final = "/workers/{worker}/channel"
"""The path that Ludus servers give in that header."""

EPISODE_HEADER: Final = "Ludus-Episode"
"""The request header in which a client may repeat the id of the episode or group that a `POST /mcp` is about, so that
proxies can route it without reading its body. A server does not read it."""

_PREFIXES: Final = ("e_", "g_", "w_")
_WORKER: Final = re.compile(WORKER_PATTERN)
_WORKER_DOT: Final = re.compile(rf"({WORKER_PATTERN})\.")
_CAPABILITY: Final = re.compile(rf"play_({WORKER_PATTERN})\.")


def is_worker_id(text: str) -> bool:
    """Return whether a text is a worker id: 1 to 16 lower-case letters and digits."""
    return _WORKER.fullmatch(text) is not None


def worker_of(identifier: str) -> str | None:
    """Return the worker that the id of an episode, a group or a world names; None if it names none."""
    if "." not in identifier or identifier[:2] not in _PREFIXES:
        return None
    found = _WORKER_DOT.match(identifier, 2)
    return found[1] if found is not None else None


def worker_of_session(sid: str) -> str | None:
    """Return the worker that the id of an ORS session names; None if it names none."""
    found = _WORKER_DOT.match(sid)
    return found[1] if found is not None else None


def worker_of_capability(capability: str) -> str | None:
    """Return the worker that a play capability names; None if it names none."""
    found = _CAPABILITY.match(capability)
    return found[1] if found is not None else None
