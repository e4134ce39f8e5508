"""Messages on a stream: four bytes of length, big-endian, then an object as JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Optional

HEAD = struct.Struct(">I")
LONGEST = 256 * 1024 * 1024
"""The most bytes of one message."""
_PART = 1 << 17
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class FrameError(Exception):
    """What arrived is no message, or one that is too long."""


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as bytes.

    Raises:
        ValueError: it holds a number that is not finite, or is too long.
        TypeError: it holds a value that JSON cannot represent.
    """
    body = _encode(message).encode("ascii")
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
        message = json.loads(body.decode("ascii"))
    except ValueError:
        raise FrameError(f"{len(body):,} bytes arrived that are no JSON") from None
    if not isinstance(message, dict):
        raise FrameError(f"a message must be an object, not {type(message).__name__}")
    return message


class Decoder:
    """Takes bytes as they arrive, and returns the messages in them."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._held += data

    def next(self) -> Optional[dict[str, Any]]:
        """Return the next message; None if it has not arrived as a whole.

        Raises:
            FrameError: it is too long, or no JSON object.
        """
        held = self._held
        if len(held) < HEAD.size:
            return None
        end = HEAD.size + length_of(bytes(held[: HEAD.size]))
        if len(held) < end:
            return None
        body = bytes(held[HEAD.size : end])
        del held[:end]
        return unpack(body)

    @property
    def is_empty(self) -> bool:
        """Return whether no part of a message is held."""
        return not self._held


class Stream:
    """Messages on a blocking socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._decoder = Decoder()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._stream.sendall(pack(message))

    def receive(self) -> Optional[dict[str, Any]]:
        """Return the next message; None at the end of the stream.

        Raises:
            FrameError: the stream ends within a message, or holds something else.
        """
        while (message := self._decoder.next()) is None:
            data = self._stream.recv(_PART)
            if not data:
                if self._decoder.is_empty:
                    return None
                raise FrameError("the stream ended within a message")
            self._decoder.feed(data)
        return message
