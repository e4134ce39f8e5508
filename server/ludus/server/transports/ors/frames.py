"""Server-sent events as ORS frames them, written by hand: the wire's hot path.

A result is cut into pieces of at most `CHUNK_CHARS` characters; all but the last travel as `chunk` events, the last as
`end`. Both published clients strip whitespace from the beginning of every `data` value, Unicode whitespace included,
and so lose text wherever a cut falls before a space. Results are compact JSON, in which a raw space can only stand
inside a string, so a space at a cut is written as its JSON escape instead: the same text, and nothing to strip.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

CHUNK_CHARS: Final = 4096
"""The most characters in one event, as in both published servers."""

_LINE_BREAKS: Final = ("\r\n", "\r", "\n")


def task_id_event(task_id: str) -> bytes:
    """The first event of a call: the id under which the call can be taken up again."""
    return b"event: task_id\r\ndata: %b\r\n\r\n" % task_id.encode("ascii")


def result_events(json_text: str) -> bytes:
    """A finished result: `chunk` events as needed, then `end`.

    Args:
        json_text: compact JSON.
    """
    if len(json_text) <= CHUNK_CHARS:
        return b"event: end\r\ndata: %b\r\n\r\n" % json_text.encode()
    pieces = split(json_text)
    last = pieces.pop()
    events = [b"event: chunk\r\ndata: %b\r\n\r\n" % piece.encode() for piece in pieces]
    events.append(b"event: end\r\ndata: %b\r\n\r\n" % last.encode())
    return b"".join(events)


def error_event(message: str) -> bytes:
    """The last event of a call that has no result. Each line of the message becomes a `data` line."""
    for line_break in _LINE_BREAKS:
        message = message.replace(line_break, "\n")
    lines = "".join(f"data: {line}\r\n" for line in message.split("\n"))
    return f"event: error\r\n{lines}\r\n".encode(errors="backslashreplace")


def ludus_event(json_text: str) -> bytes:
    """An event of our extension. Clients that do not know it pass over it, as SSE has them do."""
    return b"event: ludus\r\ndata: %b\r\n\r\n" % json_text.encode()


def ping_comment() -> bytes:
    """A comment that keeps the client's read timeout from passing."""
    return f": ping - {datetime.now(UTC)}\r\n\r\n".encode()


def split(json_text: str) -> list[str]:
    """Cut compact JSON into pieces of at most `CHUNK_CHARS` characters, none of which begins with whitespace."""
    pieces = []
    position = 0
    lead = ""
    while position < len(json_text):
        end = position + CHUNK_CHARS - len(lead)
        pieces.append(lead + json_text[position:end])
        lead = ""
        if end < len(json_text) and json_text[end].isspace():
            lead = f"\\u{ord(json_text[end]):04x}"
            end += 1
        position = end
    if lead:
        pieces.append(lead)
    return pieces
