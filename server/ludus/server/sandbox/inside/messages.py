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


class Refused(Exception):
    """A request that cannot be carried out; its text is the answer."""


def receive(control: int) -> tuple[dict[str, Any], bytes] | None:
    """The next message, or None at the end."""
    head = _exactly(control, HEAD.size)
    if head is None:
        return None
    header_size, blob_size = HEAD.unpack(head)
    header, blob = _exactly(control, header_size), _exactly(control, blob_size)
    return None if header is None or blob is None else (marshal.loads(header), blob)


def _exactly(control: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(control, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


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
