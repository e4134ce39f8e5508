"""Messages between the server and the program inside a sandbox: two 32-bit lengths, a header, and raw bytes.

The headers of requests are marshalled, which needs no import; the server is trusted, and uses a format that every
version of Python reads. Headers of replies are JSON, because the server must not unmarshal data from a sandbox. They
are written without `json`, whose import would delay the start of every sandbox by several ms.

A request has an `id`, and so have all parts of its reply; a part that is not the last one has `more`. A request with a
`job` concerns a background command, named by the id of the request that started it, and has no reply. Messages with a
`job` from the sandbox are events of that command. Descriptors travel on a socket of their own.
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
OUT: dict[int, int] = {}
"""The descriptor to write to, by that to read from, where the server is not at the other end of one socket."""
PIECE = 1 << 20
"""How many bytes are read or written at a time."""


class Refused(Exception):
    """A request that cannot be carried out; the text of the error is sent as the reply."""


class NoRoom(Exception):
    """A process that cannot be started because of a limit; the text of the error is sent as the reply."""


class Incoming:
    """The bytes after a request's header, read piece by piece: they may be more than the sandbox's memory."""

    def __init__(self, control: int, size: int) -> None:
        self._control = control
        self._left = size

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or as many as are left."""
        parts = []
        remaining = min(size, self._left)
        while remaining:
            part = os.read(self._control, min(remaining, PIECE))
            if not part:
                raise ConnectionError
            parts.append(part)
            remaining -= len(part)
            self._left -= len(part)
        return b"".join(parts)

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.read(self._left)

    def skip(self) -> None:
        """Discard the bytes that were not read."""
        while self._left:
            self.read(PIECE)


def receive(control: int) -> tuple[dict[str, Any], Incoming] | None:
    """Wait for the next request and return it; None if the server closed the socket."""
    try:
        header_size, blob_size = HEAD.unpack(Incoming(control, HEAD.size).rest())
        header = Incoming(control, header_size).rest()
    except ConnectionError:
        return None
    return marshal.loads(header), Incoming(control, blob_size)


class Outgoing:
    """A writable file whose content is sent as parts of a reply, each marked as having more to follow."""

    def __init__(self, control: int, request: int) -> None:
        self._control = control
        self._request = request

    def write(self, data: bytes) -> int:
        """Send one part and return its size."""
        send(self._control, {"id": self._request, "more": True}, data)
        return len(data)


def send(control: int, reply: dict[str, Any], blob: bytes = b"") -> None:
    """Send a reply: its header and its bytes."""
    text = _json(reply).encode("ascii")
    out = OUT.get(control, control)
    for data in (HEAD.pack(len(text), len(blob)) + text, blob):
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]


def receive_descriptors(passing: int, count: int) -> list[int]:
    """Receive descriptors that the server sent before the request that needs them."""
    import _socket as sockets  # importing `socket` would delay the start of every sandbox

    outer = sockets.socket(fileno=passing)
    try:
        _, messages, _, _ = outer.recvmsg(1, sockets.CMSG_SPACE(4 * count))
    finally:
        outer.detach()
    descriptors = [int(end) for _, _, data in messages for end in struct.unpack(f"{len(data) // 4}i", data)]
    for end in descriptors:
        os.set_inheritable(end, False)
    return descriptors


def open_passing(path: str) -> int:
    """Connect to the server's Unix socket for descriptors, and return the connection."""
    import _socket as sockets

    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    connection.connect(path)
    return connection.detach()


def send_descriptor(passing: int, descriptor: int) -> None:
    """Send a descriptor to the server."""
    import _socket as sockets

    outer = sockets.socket(fileno=passing)
    try:
        outer.sendmsg([b"x"], [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, struct.pack("i", descriptor))])
    finally:
        outer.detach()


def _json(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(str(key))}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_json, value)) + "]"
    return repr(value)  # a number
