"""What an answer of an endpoint's process may say under the hub's address.

The process runs its author's code, and its answers leave from the hub's own origin, where people are signed in. So the
hub passes on the headers that clients of Ludus, MCP and ORS read, and no others, and only bodies that a browser shows
as text. `HubGuard` adds a policy that lets nothing in them run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ludus.protocol.errors import ServerError

MEDIA_TYPES: Final = ("application/json", "text/event-stream", "text/plain")
"""The types of bodies that are passed on."""

SANDBOXED: Final = ("content-security-policy", "default-src 'none'; sandbox")
"""The header with which a browser gives an answer an origin of its own, runs nothing in it and loads nothing for it."""

_NAMES: Final = frozenset(
    {b"content-type", b"content-length", b"retry-after", b"www-authenticate", b"allow", b"x-accel-buffering"}
)
_UPGRADE_NAMES: Final = frozenset({b"connection", b"upgrade", b"sec-websocket-accept", b"sec-websocket-protocol"})
_PREFIXES: Final = (b"mcp-", b"ludus-")
_PARAMETER: Final = re.compile(rb"charset=utf-8|version=[0-9.]{1,8}|escaping=[a-z]{1,20}")
_CHALLENGE: Final = re.compile(rb"bearer(?![!#$%&'*+.^_`|~0-9a-z-])", re.IGNORECASE)

Headers = list[tuple[bytes, bytes]]


class AnswerRefused(ServerError):
    """A process of an endpoint has answered with something that the hub does not pass on."""

    http_status = 502


def passed_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of an answer that are passed on, in lower case.

    Raises:
        AnswerRefused: the body is of a type, or in an encoding, that is not passed on, or the answer leads elsewhere.
    """
    passed: Headers = []
    for name, value in _lowered(headers):
        if name == b"content-type":
            value = checked_type(value)
            if any(other == name for other, _ in passed):
                raise AnswerRefused("the endpoint's process answered with two content types; a body has one")
        elif name == b"content-encoding":
            raise AnswerRefused(
                f"the endpoint's process answered with the content encoding {value[:80].decode('latin-1')!r}; a hub "
                "passes bodies on as they are"
            )
        elif name == b"location":
            raise AnswerRefused("the endpoint's process answered with a redirect; a hub passes none on")
        elif name == b"www-authenticate" and not _CHALLENGE.match(value):
            continue  # a browser would ask for a password under the hub's name
        if name in _NAMES or name.startswith(_PREFIXES):
            passed.append((name, value))
    return passed


def passed_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a switch to a WebSocket that are passed on. Browsers obey those of upgrades, too."""
    return [field for field in _lowered(headers) if field[0] in _UPGRADE_NAMES or field[0].startswith(_PREFIXES)]


def checked_type(value: bytes) -> bytes:
    """Return a content type that is passed on, in lower case.

    Raises:
        AnswerRefused: it is another one.
    """
    kind, *parameters = (part.strip() for part in value.lower().split(b";"))
    if kind.decode("latin-1") not in MEDIA_TYPES or not all(map(_PARAMETER.fullmatch, parameters)):
        raise AnswerRefused(
            f"the endpoint's process answered with the content type {value[:80].decode('latin-1')!r}; a hub passes on "
            f"{', '.join(MEDIA_TYPES)}, in UTF-8"
        )
    return b"; ".join((kind, *parameters))


def _lowered(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers)
