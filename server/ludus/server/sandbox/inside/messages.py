"""Messages between the server and the program inside a box: two 32-bit lengths, JSON, raw bytes."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEAD = struct.Struct("!II")


class Refused(Exception):
    """A request that cannot be carried out; its text is the answer."""


def receive(control: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """The next message, or None at the end."""
    head = _exactly(control, HEAD.size)
    if head is None:
        return None
    json_size, blob_size = HEAD.unpack(head)
    text, blob = _exactly(control, json_size), _exactly(control, blob_size)
    return None if text is None or blob is None else (json.loads(text), blob)


def _exactly(control: socket.socket, size: int) -> bytes | None:
    parts = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(control: socket.socket, reply: dict[str, Any], blob: bytes = b"") -> None:
    """Answer."""
    text = json.dumps(reply).encode()
    control.sendall(HEAD.pack(len(text), len(blob)) + text)
    if blob:
        control.sendall(blob)
