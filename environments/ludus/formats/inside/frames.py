"""Messages on a stream: four bytes of length, big-endian, then an object as JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEAD = struct.Struct(">I")
LONGEST = 256 * 1024 * 1024
"""The most bytes of one message."""


class FrameError(Exception):
    """What arrived is no message, or one that is too long."""


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as bytes.

    Raises:
        ValueError: it holds a number that is not finite, or is too long.
        TypeError: it holds a value that JSON cannot represent.
    """
    body = json.dumps(message, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(body) > LONGEST:
        raise ValueError(f"a message of {len(body):,} bytes is too long; at most {LONGEST:,} are allowed")
    return HEAD.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Return the length of a message by its first four bytes.

    Raises:
        FrameError: it is too long.
    """
    (length,) = HEAD.unpack(head)
    if length > LONGEST:
        raise FrameError(f"a message of {length:,} bytes was announced; at most {LONGEST:,} are allowed")
    return int(length)


def unpack(body: bytes) -> dict[str, Any]:
    """Return the message that bytes hold.

    Raises:
        FrameError: they are no JSON object.
    """
    try:
        message = json.loads(body)
    except ValueError:
        raise FrameError(f"{len(body):,} bytes arrived that are no JSON") from None
    if not isinstance(message, dict):
        raise FrameError(f"a message must be an object, not {type(message).__name__}")
    return message


def send(stream: socket.socket, message: dict[str, Any]) -> None:
    """Send a message on a blocking socket."""
    stream.sendall(pack(message))


def receive(stream: socket.socket) -> dict[str, Any] | None:
    """Return the next message of a blocking socket; None at its end.

    Raises:
        FrameError: the stream ends within a message, or holds something else.
    """
    head = _exactly(stream, HEAD.size)
    if head is None:
        return None
    body = _exactly(stream, length_of(head))
    if body is None:
        raise FrameError("the stream ended within a message")
    return unpack(body)


def _exactly(stream: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    left = count
    while left:
        part = stream.recv(min(left, 1 << 20))
        if not part:
            if parts:
                raise FrameError("the stream ended within a message")
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
