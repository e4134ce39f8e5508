"""Answers by which an untrusted server could be taken to have given other answers, or more of them, than one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

JSON: Final = b"Content-Type: application/json\r\n"
SECOND: Final = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n"evil"'
"""What a smuggler would have the next client take for the answer to its request."""
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


class AnswerShape(NamedTuple):
    """Bytes of a server."""

    name: str
    data: bytes
    status: int
    """The status that the client gets; 0 if its connection breaks, or it gets 502, if there was time for that."""
    body: bytes = b""
    method: str = "GET"


def ok(lines: bytes, body: bytes = b"", status: bytes = b"200 OK", version: bytes = b"1.1") -> bytes:
    """Return an answer with these header lines."""
    return b"HTTP/%b %b\r\n%b%b\r\n%b" % (version, status, JSON, lines, body)


def _length(number: int) -> bytes:
    return b"Content-Length: %d\r\n" % number


_WHOLE: Final = ok(_length(1), b"1")
_BROKEN_LENGTHS: Final = (
    b"+1",
    b"-1",
    b"0x1",
    b"1, 1",
    b"1,1",
    b"1 1",
    b"",
    b"1.0",
    b"99999999999999999999999",
    b"1\x00",
    b"one",
)
_BROKEN_CHUNKS: Final = (
    b"-1\r\n1\r\n0\r\n\r\n",
    b"0x1\r\n1\r\n0\r\n\r\n",
    b"1\n1\n0\n\n",
    b"1\r\n12\r\n0\r\n\r\n",
    b"1\r\n1",
    b"g\r\n",
    b"\r\n\r\n",
    b"ffffffffffffffffffff\r\n1\r\n0\r\n\r\n",
    b"1\r\n10\r\n\r\n",
    b"1 \r\n1\r\n0\r\n\r\n",
    b"1;a\x00\r\n1\r\n0\r\n\r\n",
)
_UNFINISHED: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Len",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"H",
)
_BROKEN_HEADS: Final = (
    b"evil",
    b"\x16\x03\x01",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 -200 OK\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n",
    b"HTTP/1.1 600 OK\r\n\r\n",
    b"HTTP/1.1 999 OK\r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"HTTP/0.9 200 OK\r\n\r\n",
    b"HTTP/3 200 OK\r\n\r\n",
    b"RTSP/1.0 200 OK\r\n\r\n",
    b"ICY 200 OK\r\n\r\n",
    b"http/1.1 200 OK\r\n\r\n",
    b" HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\n\n",
    b"HTTP/1.1 200 O\x00K\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\rY: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
)


def _shapes() -> list[AnswerShape]:
    """Return all shapes."""
    second = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SECOND), SECOND)
    shapes = [
        AnswerShape("plain", _WHOLE, 200, b"1"),
        AnswerShape("chunks", ok(CHUNKED, b"1\r\n1\r\n0\r\n\r\n"), 200, b"1"),
        AnswerShape("up to the end", ok(b"", b"12"), 200, b"12"),
        AnswerShape("HTTP/1.0", ok(b"", b"12", version=b"1.0"), 200, b"12"),
        AnswerShape("no reason", ok(_length(1), b"1", status=b"200"), 200, b"1"),
        AnswerShape("two answers", _WHOLE + SECOND, 200, b"1"),
        AnswerShape("two answers, the first in chunks", ok(CHUNKED, b"1\r\n1\r\n0\r\n\r\n") + SECOND, 200, b"1"),
        AnswerShape(
            "two answers, the first closes", ok(_length(1) + b"Connection: close\r\n", b"1") + SECOND, 200, b"1"
        ),
        AnswerShape("more than its length", ok(_length(1), b"12345"), 200, b"1"),
        AnswerShape("less than its length", ok(_length(10), b"1"), 0),
        AnswerShape("nothing of its length", ok(_length(10)), 0),
        AnswerShape("nothing of its length, and no type", b"HTTP/1.1 200 OK\r\n" + _length(10) + b"\r\n", 0),
        AnswerShape("an answer in the body", ok(_length(len(SECOND)), SECOND), 200, SECOND),
        AnswerShape("an answer in a chunk", ok(CHUNKED, second), 200, SECOND),
        AnswerShape("CL.TE", ok(_length(5) + CHUNKED, b"0\r\n\r\n" + SECOND), 502),
        AnswerShape("TE.CL", ok(CHUNKED + _length(4), second), 502),
        AnswerShape("two lengths", ok(_length(1) + _length(5), b"12345"), 502),
        AnswerShape("the same length twice", ok(_length(1) + _length(1), b"1"), 502),
        AnswerShape("TE twice", ok(CHUNKED + CHUNKED, second), 502),
        AnswerShape("TE on HTTP/1.0", ok(CHUNKED, second, version=b"1.0"), 200, SECOND),
        AnswerShape("a trailer", ok(CHUNKED, b"1\r\n1\r\n0\r\nSet-Cookie: a=b\r\nX: y\r\n\r\n"), 200, b"1"),
        AnswerShape("a length as a trailer", ok(CHUNKED, b"1\r\n1\r\n0\r\nContent-Length: 5\r\n\r\n" + SECOND), 0),
        AnswerShape("interim answers before", b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + _WHOLE, 200, b"1"),
        AnswerShape(
            "an interim answer with a length", b"HTTP/1.1 103 E\r\nContent-Length: 5\r\n\r\n" + _WHOLE, 200, b"1"
        ),
        AnswerShape("interim answers without end", b"HTTP/1.1 103 Early Hints\r\n\r\n\r\n" * 1_000, 502),
        AnswerShape(
            "a switch to a plain request",
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + SECOND,
            502,
        ),
        AnswerShape("a switch without a protocol", b"HTTP/1.1 101 S\r\n\r\n" + SECOND, 502),
        AnswerShape("a switch behind an interim answer", b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 101 S\r\n\r\n" + SECOND, 502),
        AnswerShape(
            "200 with an upgrade", ok(b"Upgrade: h2c\r\nConnection: Upgrade\r\n" + _length(1), b"1"), 200, b"1"
        ),
        AnswerShape("204 with a body", ok(_length(len(SECOND)), SECOND, status=b"204 No Content"), 204),
        AnswerShape("204 with chunks", ok(CHUNKED, second, status=b"204 No Content"), 204),
        AnswerShape("304 with a body", ok(_length(len(SECOND)), SECOND, status=b"304 Not Modified"), 304),
        AnswerShape("205 with a body", ok(_length(1), b"1", status=b"205 Reset Content"), 205, b"1"),
        AnswerShape("HEAD with a body", ok(_length(len(SECOND)), SECOND), 200, method="HEAD"),
        AnswerShape("HEAD with chunks", ok(CHUNKED, second), 200, method="HEAD"),
        AnswerShape("HEAD with two answers", ok(_length(1)) + SECOND, 200, method="HEAD"),
        AnswerShape("HEAD without a length", ok(b"", SECOND), 200, method="HEAD"),
        AnswerShape(
            "a line break in a type", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\tX: y\r\n\r\n1", 502
        ),
    ]
    for value in (
        b"foo",
        b"identity",
        b"gzip, chunked",
        b"chunked, gzip",
        b"chunked;q=1",
        b"xchunked",
        b", chunked",
        b"",
    ):
        shapes.append(AnswerShape(f"TE {value!r}", ok(b"Transfer-Encoding: " + value + b"\r\n", second), 502))
    for value in _BROKEN_LENGTHS:
        shapes.append(AnswerShape(f"a length of {value!r}", ok(b"Content-Length: " + value + b"\r\n", b"1"), 502))
    shapes += [AnswerShape(f"chunks {data!r}", ok(CHUNKED, data + SECOND), 0) for data in _BROKEN_CHUNKS]
    shapes += [AnswerShape(f"head {data!r}", data, 502) for data in _BROKEN_HEADS]
    shapes += [AnswerShape(f"head {data!r}", data, 503) for data in _UNFINISHED]
    return shapes


SHAPES: Final = tuple(_shapes())

_PIECES: Final = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\x00",
    b":",
    b";",
    b"0",
    b"1",
    b"-",
    b"+",
    b"\xff",
    CHUNKED,
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Connection: close\r\n",
    b"0\r\n\r\n",
    b"5\r\n",
    b"\r\n\r\n",
    b"HTTP/1.0",
    b"100",
    b"101",
    b"204",
    b"304",
    SECOND,
)


def mutation(rng: random.Random, shapes: Sequence[AnswerShape] = SHAPES) -> AnswerShape:
    """Return a shape with one to three changes. What becomes of it is not known."""
    shape = rng.choice([shape for shape in shapes if 0 < len(shape.data) < 10_000])
    data = shape.data
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 0, 1, 1, 2, 8)))
        piece = rng.choice((b"", rng.choice(_PIECES), bytes([rng.randrange(256)]), data[at:end] * 2))
        data = data[:at] + piece + data[end:]
    return shape._replace(name="mutation", data=data or b"H")
