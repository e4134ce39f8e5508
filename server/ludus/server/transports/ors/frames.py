"""Server-sent events in ORS's framing, written by hand because this is the transport's hot path.

A result is cut into pieces of at most `CHUNK_CHARS` characters. The last piece is sent as an `end` event, the others as
`chunk` events. Both published clients strip whitespace, including Unicode whitespace, from the beginning of every
`data` value, and so lose text if a cut falls before a space. Results are compact JSON, in which a raw space appears
only inside a string, so a space at a cut is written as its JSON escape: the text is the same, and nothing is stripped.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

CHUNK_CHARS: Final = 4096
"""The most characters in one event, as in both published servers."""

_LINE_BREAKS: Final = ("\r\n", "\r", "\n")


def task_id_event(task_id: str) -> bytes:
    """Return the first event of a call, which holds the id under which the call can be resumed."""
    return b"event: task_id\r\ndata: %b\r\n\r\n" % task_id.encode("ascii")


def result_events(json_text: str) -> bytes:
    """Return the events of a finished result: `chunk` events as needed, then `end`.

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
    """Return the last event of a call without a result. Each line of the message becomes a `data` line."""
    for line_break in _LINE_BREAKS:
        message = message.replace(line_break, "\n")
    lines = "".join(f"data: {line}\r\n" for line in message.split("\n"))
    return f"event: error\r\n{lines}\r\n".encode(errors="backslashreplace")


def ludus_event(json_text: str) -> bytes:
    """Return an event of the Ludus extension. Clients that do not know it ignore it, as SSE requires."""
    return b"event: ludus\r\ndata: %b\r\n\r\n" % json_text.encode()


def ping_comment() -> bytes:
    """Return a comment that keeps the client from reaching its read timeout."""
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
