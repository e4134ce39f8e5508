"""Whole answers: the head and body of an HTTP answer, written together.

uvicorn checks each field of a head by two regular expressions, writes the head, and then writes the body. This takes
two system calls, and two packets that each wake the peer. Most answers have a `content-length` and a body in one piece,
and leave the connection open. `WholeAnswers` holds the head of such an answer until its body comes, and writes both
together. All other answers (streams, `HEAD`, connections that close, a peer that does not read) go to uvicorn, in the
order in which they were sent.

uvicorn has a fixed reason phrase for each status. An application that puts `REASON` into the head of an answer has its
own in the status line.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["REASON"]


REASON: Final = "ludus.reason"
"""The key of a reason phrase in an `http.response.start` message: bytes without control characters."""

JOINED_BYTES: Final = 64 * 1024
"""The largest body that is copied behind its head; a larger one is written separately."""


class WholeAnswers:
    """The `send` function of one request.

    Args:
        cycle: uvicorn's request cycle, which has not been answered yet.
    """

    __slots__ = ("_cycle", "_length", "_send", "_start")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._start: Message | None = None
        """The head, while it is held."""
        self._length: int | None = None
        """The length of the body according to the held head."""

    async def send(self, message: Message) -> None:
        """Hold or write the next part of the answer."""
        cycle: Any = self._cycle
        start, self._start = self._start, None
        if start is not None and message["type"] != "http.response.start":
            body = message.get("body", b"")
            head = None if message.get("more_body") else self._head_of(start, len(body))
            if head is not None:
                if len(body) <= JOINED_BYTES:
                    cycle.transport.write(head + body)
                else:
                    cycle.transport.write(head)
                    cycle.transport.write(body)
                cycle.response_started = cycle.response_complete = True
                cycle.waiting_for_100_continue = False
                cycle.message_event.set()
                cycle.on_response()
                return
            await self._send(start)  # type: ignore[arg-type]
        elif not cycle.response_started and message["type"] == "http.response.start":
            if (reason := message.get(REASON)) is not None:
                _replace_reason(cycle.transport, message["status"], reason)
            # When an application fails after its head, the server's 500 replaces the head that is held.
            self._length = _length_of(message)
            if self._length is not None:
                self._start = message
                return
        await self._send(message)  # type: ignore[arg-type]

    def _head_of(self, start: Message, length: int) -> bytes | None:
        """Return the head of a whole answer as bytes; None for an answer that goes to uvicorn."""
        cycle: Any = self._cycle
        if (
            length != self._length
            or cycle.disconnected
            or cycle.flow.write_paused
            or not cycle.keep_alive
            or cycle.access_log
        ):
            return None
        if cycle.scope["method"] == "HEAD":
            return None
        fields = [*cycle.default_headers, *start["headers"]]
        head = STATUS_LINE[start["status"]] + b"\r\n".join(map(b": ".join, fields)) + b"\r\n\r\n"
        breaks = len(fields) + 2  # uvicorn refuses a line break within a field
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
            return None
        return head


def _replace_reason(transport: Any, status: int, reason: bytes) -> None:
    """Let the next write to a transport, if it is a head with this status, have this reason phrase."""
    write = transport.write

    def replace(data: bytes) -> None:
        transport.write = write
        before, _, after = data.partition(b"\r\n")
        start = b"HTTP/1.1 %d " % status
        write(b"%b%b\r\n%b" % (start, reason, after) if before.startswith(start) else data)

    transport.write = replace


def _length_of(start: Message) -> int | None:
    """Return the `content-length` of an answer; None if it has none, or if its connection closes."""
    length = None
    for name, value in start.get("headers", ()):
        if name == b"content-length":
            length = int(value)
        elif name == b"connection" and value != b"keep-alive":
            return None
    return length
