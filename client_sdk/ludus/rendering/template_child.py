"""A process that renders one chat template, which may be anybody's program; see `ludus.rendering.bounded`.

    python -I -m ludus.rendering.template_child FD       FD is its end of a pair of sockets

Each message is JSON behind its length in four bytes. The first has the template and its variables, all others a
conversation; the answer has `text`, or `error` with the template's own message.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

LENGTH: Final = struct.Struct("!I")
"""The length in front of a message."""

_PR_SET_PDEATHSIG: Final = 1
_FILES: Final = 64
_NICE: Final = 10


def read_message(connection: socket.socket, most: int, deadline: float | None = None) -> bytes | None:
    """Return the next message; None at the end of the connection.

    Args:
        connection: the connection.
        most: the most bytes of a message.
        deadline: until when it must be whole, by `time.monotonic`; None to wait.

    Raises:
        ValueError: it is longer than `most` bytes.
        TimeoutError: it is not whole in time.
    """
    head = _read(connection, LENGTH.size, deadline)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > most:
        raise ValueError(f"a message has {length} bytes, of at most {most}")
    return _read(connection, length, deadline)


def write_message(connection: socket.socket, value: Any) -> None:
    """Send a message."""
    data = json.dumps(value).encode()
    connection.sendall(LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket, count: int, deadline: float | None) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:  # for each part, because a process may send its answer byte by byte
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
        part = connection.recv(min(count - len(parts), 1024 * 1024))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _address_space() -> int:
    """Return the bytes of address space that this process has now; 0 where that is not known."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def main(descriptor: int) -> None:
    """Answer until the other side is gone."""
    if sys.platform == "linux":  # a template without an end must not outlive what has started it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    from transformers.utils.chat_template_utils import render_jinja_template

    connection = socket.socket(fileno=descriptor)
    first = read_message(connection, 2**31)
    if first is None:
        return
    settings = json.loads(first)
    os.nice(_NICE)
    memory, seconds = _address_space() + int(settings["memory"]), int(settings["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    write_message(connection, {"ready": True})
    while (message := read_message(connection, 2**31)) is not None:
        request = json.loads(message)
        signal.alarm(30 * seconds)  # the other side ends it before, unless it is gone
        try:
            texts, _ = render_jinja_template(
                conversations=[request["messages"]], tools=request["tools"], chat_template=settings["source"],
                add_generation_prompt=request["prompt"], **settings["variables"], **request["options"],
            )  # fmt: skip
            text = str(texts[0])
            answer: dict[str, Any] = {"text": text} if len(text) <= settings["characters"] else {"long": True}
        except MemoryError:
            answer = {"memory": True}
        except Exception as error:  # whatever a template raises is its own
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.alarm(0)
        write_message(connection, answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
