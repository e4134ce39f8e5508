"""Sends bytes to a server that echoes, and compares what it has read with what h11 reads.

What is compared: every request that the server process has read is one that h11 reads, in the same order, with the same
target, headers and body; each answer is to the request at its place; what h11 refuses is refused or closed.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, NamedTuple

from answer_shapes import AnswerShape
from hostile_endpoint import raw_path
from request_oracle import Answer, Reading, Sent, answer_in, answers_of, reading_of

PATIENCE: Final = 60.0
_LAST: Final = "/last"
_OWN: Final = frozenset(
    {
        "ludus-gateway",
        "connection",
        "keep-alive",
        "proxy-connection",
        "upgrade",
        "te",
        "trailer",
        "http2-settings",
        "expect",
        "transfer-encoding",
        "content-length",
    }
)
"""Headers that belong to one connection, or that a gateway writes itself."""
PRIVATE: Final = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})
"""Headers of clients that a hub passes to no process."""
_ORIGIN: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class Front(NamedTuple):
    """A server that echoes."""

    port: int
    path: str
    """The path at which it echoes, as its clients send it."""
    reports: tuple[str, ...]
    """The paths of the lists of its processes."""
    prefix: str = ""
    """What a hub removes from a path before the process sees it."""

    def bytes_of(self, data: bytes) -> bytes:
        """Return the bytes of a shape for this server, with a last request that closes the connection behind it."""
        return data + f"GET {self.path}{_LAST} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    def target(self, target: str) -> str:
        """Return a target of a client as the server process sees it, without its origin and fragment."""
        return _ORIGIN.sub("", target).partition("#")[0].removeprefix(self.prefix)


class Outcome(NamedTuple):
    """The result of sending the bytes of one connection."""

    data: bytes
    reading: Reading
    answers: list[Answer]
    closed: bool
    read: list[dict[str, Any]]
    """The requests that the server processes have read."""

    @property
    def passed(self) -> int:
        """How many of the shape's requests the server processes have read whole."""
        return sum(entry["complete"] and not entry["target"].endswith(_LAST) for entry in self.read)


async def outcome_of(front: Front, shape: bytes, pieces: int = 1, *, waits: bool | None = None) -> Outcome:
    """Send bytes, and return the outcome.

    Args:
        front: the server.
        shape: the bytes.
        pieces: in how many pieces they are sent.
        waits: whether the server may wait for more, so that the connection stays open; None to ask h11.
    """
    data = front.bytes_of(shape)
    reading = reading_of(data)
    methods = [request.method for request in reading.requests]
    whole = sum(request.complete for request in reading.requests)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=2**20)
    received, closed = b"", False
    if waits is None:
        waits = reading.end in ("incomplete", "open")
    try:
        async with asyncio.timeout(PATIENCE):
            size = len(data) // pieces + 1
            for start in range(0, len(data), size):
                writer.write(data[start : start + size])
                await writer.drain()
            while not closed and not (waits and len([a for a in answers_of(received, methods) if a.complete]) >= whole):
                part = await reader.read(65536)
                closed = not part
                received += part
    except ConnectionError:
        closed = True
    finally:
        if waits and not closed:
            await reports(front, settled=False)
        writer.transport.abort()
    read = await reports(front)
    return Outcome(data, reading, answers_of(received, methods), closed, read)


async def reports(front: Front, *, settled: bool = True) -> list[dict[str, Any]]:
    """Return what the server's processes have read, once no request may get more of its body."""
    read: list[dict[str, Any]] = []
    for path in front.reports:
        while True:
            entries = json.loads(await fetch(front.port, path))
            if not settled or all(entry["complete"] or entry["gone"] or entry["upgrade"] for entry in entries):
                break
        if settled:
            await fetch(front.port, path + "?clear")
        read += entries
    read.sort(key=lambda entry: float(entry["at"]))
    return read


async def fetch(port: int, path: str) -> bytes:
    """Return the body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            (answer,) = answers_of(await reader.read(-1), ["GET"])
            assert answer.status == 200, answer
            return answer.body
    finally:
        writer.close()


def faults_of(front: Front, outcome: Outcome) -> list[str]:
    """Return in what an outcome differs from what h11 reads."""
    reading, faults = outcome.reading, []
    remaining = iter(reading.requests)
    for entry in outcome.read:
        for sent in remaining:
            if _is(front, entry, sent):
                faults += _headers_of(front, entry, sent)
                break
        else:
            faults.append(f"the server has read what the client did not send: {entry}")
    whole = [sent for sent in reading.requests if sent.complete]
    for number, answer in enumerate(outcome.answers):
        if answer.status >= 500:
            faults.append(f"answer {number} is {answer.status}: {answer.body[:200]!r}")
        if number >= len(whole) and answer.status < 400:
            faults.append(f"answer {number} is to no whole request: {answer}")
        elif answer.status == 200 and answer.body:
            told, sent = json.loads(answer.body), whole[number]
            if (told["method"], told["body"]) != (sent.method, sent.body) or (
                told["target"] != front.target(sent.target)
            ):
                faults.append(f"answer {number} is to another request: {told}, not {sent}")
    refusals = len(outcome.answers) - len(whole)
    if refusals > 1 or (refusals == 1 and reading.end not in ("refused", "incomplete")):
        faults.append(f"{len(outcome.answers)} answers to {len(whole)} requests")
    if len(outcome.answers) < len(whole) and not outcome.closed:
        faults.append(f"{len(outcome.answers)} answers to {len(whole)} requests, and the connection stays open")
    if reading.end in ("refused", "closed") and not outcome.closed:
        faults.append(f"h11: {reading.end}; the connection stays open")
    return faults


def _is(front: Front, entry: dict[str, Any], sent: Sent) -> bool:
    """Return whether a request that a server has read is one that h11 has read."""
    if (entry["method"], front.target(entry["target"])) != (sent.method, front.target(sent.target)):
        return False
    if entry["complete"]:
        return sent.complete and entry["body"] == sent.body
    return sent.body.startswith(entry["body"])


def _headers_of(front: Front, entry: dict[str, Any], sent: Sent) -> list[str]:
    hidden = _OWN | PRIVATE if front.prefix else _OWN
    read = [(name, value) for name, value in entry["headers"] if name not in hidden]
    wanted = [(name, value) for name, value in sent.headers if name not in hidden]
    faults = [] if read == wanted else [f"headers {read}, not {wanted}"]
    lengths = {value for name, value in entry["headers"] if name == "content-length"}
    if lengths - {value for name, value in sent.headers if name == "content-length"}:
        faults.append(f"a length of its own: {lengths}")
    return faults


async def answered(port: int, prefix: str, shape: AnswerShape) -> list[Answer]:
    """Return the answers to a request that the process answers with these bytes, and to one behind it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        async with asyncio.timeout(PATIENCE):
            first = f"{shape.method} {prefix}{raw_path(shape.data)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(f"{first}GET {prefix}/none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return answers_of(await reader.read(-1), [shape.method])
    finally:
        writer.close()


def wrong(shape: AnswerShape, answers: list[Answer]) -> str | None:
    """Return how answers are not those that h11 reads, and the hub's own to the request behind; None if they are."""
    read = answer_in(shape.data, shape.method)
    first = answers[0] if answers and answers[0].complete else None
    own = first is not None and first.status in (502, 503)  # the hub's refusal
    if first is not None and not own and (read is None or (first.status, first.body) != (read.status, read.body)):
        return f"the client gets {first}, and h11 reads {read}"
    if first is None and len(answers) > 1:
        return "there is an answer behind one that is not whole"
    if len(answers) > 2 or (len(answers) == 2 and answers[1].status != 404):
        return f"the second request gets {answers[1:]}"
    return None
