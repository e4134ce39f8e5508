"""Messages between the server and the program inside a box: two 32-bit lengths, a header, raw bytes.

Requests are marshalled, which costs no import; the server is trusted, and runs the same Python. Replies are JSON, since
nothing else that comes out of a box should be read. `json` itself would make every box start several ms later.
"""

from __future__ import annotations

import marshal
import os
import struct
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEAD = struct.Struct("!II")
PIECE = 1 << 20
"""Bytes that are handled at a time."""


class Refused(Exception):
    """A request that cannot be carried out; its text is the answer."""


class Incoming:
    """The bytes that follow a request's header, read as they are wanted: they may be more than a box may hold."""

    def __init__(self, control: int, size: int) -> None:
        self._control = control
        self._left = size

    def read(self, size: int) -> bytes:
        """The next bytes: `size`, or as many as are left."""
        parts = []
        wanted = min(size, self._left)
        while wanted:
            part = os.read(self._control, min(wanted, PIECE))
            if not part:
                raise ConnectionError
            parts.append(part)
            wanted -= len(part)
            self._left -= len(part)
        return b"".join(parts)

    def rest(self) -> bytes:
        """All that is left."""
        return self.read(self._left)

    def skip(self) -> None:
        """Leave out what nobody wanted."""
        while self._left:
            self.read(PIECE)


def receive(control: int) -> tuple[dict[str, Any], Incoming] | None:
    """The next request, or None at the end."""
    try:
        header_size, blob_size = HEAD.unpack(Incoming(control, HEAD.size).rest())
        header = Incoming(control, header_size).rest()
    except ConnectionError:
        return None
    return marshal.loads(header), Incoming(control, blob_size)


class Outgoing:
    """A file to be written whose content goes out as pieces of a reply, each of which says that there is more."""

    def __init__(self, control: int) -> None:
        self._control = control

    def write(self, data: bytes) -> int:
        """Send a piece."""
        send(self._control, {"more": True}, data)
        return len(data)


def send(control: int, reply: dict[str, Any], blob: bytes = b"") -> None:
    """Answer."""
    text = _json(reply).encode("ascii")
    for data in (HEAD.pack(len(text), len(blob)) + text, blob):
        view = memoryview(data)
        while view:
            view = view[os.write(control, view) :]


def _json(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(str(key))}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json, value)) + "]"
    return repr(value)  # a number
