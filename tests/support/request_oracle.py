"""How h11 reads the bytes of a client and of a server: the oracle for Ludus's own HTTP servers."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import h11

_EMPTY_LINES: Final = re.compile(rb"[\r\n]+")
_REQUEST_LINE: Final = re.compile(rb"([!-~]+) +([!-~]+) +(?:HTTP|RTSP)/([0-9]\.[0-9])(?=\r\n)")
_MOST: Final = 1_000_000


class Sent(NamedTuple):
    """One request as h11 reads it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: str
    complete: bool
    lasting: bool
    """Whether the connection stays open behind it."""


class Reading(NamedTuple):
    """All requests of a connection."""

    requests: list[Sent]
    end: str
    """`refused`, `incomplete`, `closed` by a request that asks for it, or `open` behind the last request."""


def reading_of(data: bytes) -> Reading:
    """Return how h11 reads the bytes of a client, with what RFC 9112 lets a server read in addition.

    That is: empty lines before a request (2.2), several blanks in a request line (3), zeros before the size of a chunk
    (7.1), and the version of RTSP as that of HTTP, whose parser Ludus uses.
    """
    requests: list[Sent] = []
    while True:
        data = _EMPTY_LINES.sub(b"", data, count=1) if data[:1] in (b"\r", b"\n") else data
        if not data:
            return Reading(requests, "open")
        line = _REQUEST_LINE.match(data)
        if line is not None:
            data = b"%b %b HTTP/%b" % line.groups() + data[line.end() :]
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST)
        connection.receive_data(data)
        request, body, complete = None, b"", False
        try:
            while not complete:
                event: Any = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    complete = True
        except h11.RemoteProtocolError:
            if request is not None:
                requests.append(_sent(request, body, complete=False))
            return Reading(requests, "refused")
        if request is None:
            return Reading(requests, "incomplete")
        requests.append(_sent(request, body, complete=complete))
        if not complete:
            return Reading(requests, "incomplete")
        if not requests[-1].lasting:
            return Reading(requests, "closed")
        data = connection.trailing_data[0]


def _sent(request: h11.Request, body: bytes, *, complete: bool) -> Sent:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    options = {option.strip().lower() for name, value in headers if name == "connection" for option in value.split(",")}
    return Sent(
        request.method.decode(), request.target.decode("latin-1"), headers, body.decode("latin-1"), complete,
        request.http_version == b"1.1" and "close" not in options,
    )  # fmt: skip


class Answer(NamedTuple):
    """One answer as h11 reads it."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool


def answers_of(data: bytes, methods: list[str]) -> list[Answer]:
    """Return how h11 reads the bytes of a server.

    Args:
        data: the bytes, up to the end of the connection.
        methods: those of the requests that it answers; further answers are to GET.

    Raises:
        h11.RemoteProtocolError: they are no answers.
    """
    answers: list[Answer] = []
    while data:
        method = methods[len(answers)] if len(answers) < len(methods) else "GET"
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST)
        connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(data)
        response, body, complete = None, b"", False
        while not complete:
            event: Any = connection.next_event()
            if event is h11.NEED_DATA:
                if response is not None or complete:
                    break
                connection.receive_data(b"")
                event = connection.next_event()
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                complete = True
            elif event is h11.PAUSED:
                break
        assert response is not None, data[:200]
        headers: dict[str, str] = {name.decode(): value.decode("latin-1") for name, value in response.headers}
        answers.append(Answer(response.status_code, headers, body, complete))
        if not complete:
            break
        data = connection.trailing_data[0]
    return answers


def answer_in(data: bytes, method: str) -> Answer | None:
    """Return how h11 reads the one answer of a server that then closes the connection; None if it refuses it.

    Args:
        data: the bytes of the server; what follows the answer is not read.
        method: the method of the request.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    response: h11.Response | None = None
    body = b""
    try:
        connection.receive_data(data)
        connection.receive_data(b"")
        while True:
            event: Any = connection.next_event()
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.RemoteProtocolError:
        return None
    if response is None or not isinstance(event, h11.EndOfMessage):
        return None
    headers: dict[str, str] = {name.decode(): value.decode("latin-1") for name, value in response.headers}
    return Answer(response.status_code, headers, body, complete=True)
