"""Requests by which one HTTP server could be made to read other requests than the next one.

Each shape is the bytes of one connection to a server that echoes (`echoing_package`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

H: Final = b"Host: localhost\r\n"
_INNER: Final = b"GET {P}/smuggled HTTP/1.1\r\n" + H + b"\r\n"
"""What a smuggler hides in a request."""


class Shape(NamedTuple):
    """Bytes of a client."""

    name: str
    data: bytes
    passed: int
    """How many requests reach the application whole. What follows them is refused."""
    waits: bool = False
    """Whether the server waits for more, so that there is no answer."""


def post(*lines: bytes, body: bytes = b"", target: bytes = b"{P}/p", version: bytes = b"1.1") -> bytes:
    """Return a POST request with these header lines."""
    fields = b"".join(line + b"\r\n" for line in lines)
    return b"POST %b HTTP/%b\r\n%b%b\r\n%b" % (target, version, H, fields, body)


def get(*lines: bytes, target: bytes = b"{P}/g", host: bytes = H, version: bytes = b"1.1") -> bytes:
    """Return a GET request with these header lines."""
    fields = b"".join(line + b"\r\n" for line in lines)
    return b"GET %b HTTP/%b\r\n%b%b\r\n" % (target, version, host, fields)


def chunked(data: bytes, line: bytes = b"Transfer-Encoding: chunked", *more: bytes) -> bytes:
    """Return a request whose body is in chunks, with these bytes as its body."""
    return post(line, *more, body=data)


def _length(number: int) -> bytes:
    return b"Content-Length: %d" % number


EMPTY: Final = b"0\r\n\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked"

_ENCODINGS: Final = (
    b"foo",
    b"identity",
    b"chunked;q=1",
    b"gzip, chunked",
    b"chunked, gzip",
    b"chunked, chunked",
    b", chunked",
    b"chunked,",
    b'"chunked"',
    b"xchunked",
    b"chunkedx",
    b"chunked foo",
    b"",
    b"\tfoo",
    b"chunked\x0b",
    b"\x0bchunked",
    b"chunk\xe9d",
    b"identity, chunked",
    b"deflate",
    b"compress, chunked",
    b"x-chunked",
    b"chun\x00ked",
    b"chunked\x00",
)
_LENGTHS: Final = (
    b"+%d",
    b"-%d",
    b"0x%x",
    b"%d, %d",
    b"%d,%d",
    b"%d %d",
    b"",
    b"%d.0",
    b"%de0",
    b"%d;",
    b"1_%d",
    b"\x0b%d",
    b"%d\x0b",
    b"'%d'",
    b"99999999999999999999999",
    b"18446744073709551616",
    b"%d\x00",
    b"\xd9\xa1",
    b"%d\r\n ",
)
_CHUNKS: Final = (
    b"-3\r\nabc\r\n0\r\n\r\n",
    b"+3\r\nabc\r\n0\r\n\r\n",
    b"0x3\r\nabc\r\n0\r\n\r\n",
    b" 3\r\nabc\r\n0\r\n\r\n",
    b"3 \r\nabc\r\n0\r\n\r\n",
    b"3\t;a\r\nabc\r\n0\r\n\r\n",
    b"3\nabc\n0\n\n",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"3\r\nab\r\n0\r\n\r\n",
    b"3\rabc\r0\r\r",
    b"3g\r\nabc\r\n0\r\n\r\n",
    b"3_\r\nabc\r\n0\r\n\r\n",
    b"\r\n\r\n",
    b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    b"ffffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    b"3\r\nabc0\r\n\r\n",
    b"3\r\nabc\r0\r\n\r\n",
    b"3\r\nabc\n0\r\n\r\n",
    b"0\r\n\n",
    b"0\n\r\n",
    b"3;a\n=b\r\nabc\r\n0\r\n\r\n",
    b"3;a\x00b\r\nabc\r\n0\r\n\r\n",
    b'3;a="b\r\n"\r\nabc\r\n0\r\n\r\n',
    b"x\r\n",
    b";a\r\n",
    b"3,3\r\nabc\r\n0\r\n\r\n",
    b"3.0\r\nabc\r\n0\r\n\r\n",
    b"\xb2\r\nab\r\n0\r\n\r\n",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\nX: y\n\r\n",
    b"0\r\n X: y\r\n\r\n",
    b"0\r\nX\r\n\r\n",
    b"0\r\nContent-Length: 3\r\n\r\n",
    b"0\r\nTransfer-Encoding: chunked, foo\r\n\r\n",
)


def shapes_at(path: str) -> list[Shape]:
    """Return all shapes for a server that echoes at this path."""
    inner = _INNER.replace(b"{P}", path.encode())
    size = len(inner)
    inner_chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (size, inner)
    shapes = [
        Shape("plain", get(), 1),
        Shape("a body", post(_length(3), body=b"abc"), 1),
        Shape("two in one piece", get() + post(_length(size), body=inner), 2),
        Shape("a request in a body", post(_length(size), body=inner), 1),
        Shape("a request in a chunk", chunked(inner_chunk), 1),
        Shape("a length with zeros before it", post(b"Content-Length: 0003", body=b"abc"), 1),
        Shape("a length with blanks around it", post(b"Content-Length: \t 3 \t", body=b"abc"), 1),
        Shape("CL.TE", post(_length(len(EMPTY) + size), CHUNKED, body=EMPTY + inner), 0),
        Shape("CL.TE, in the other order", post(CHUNKED, _length(len(EMPTY) + size), body=EMPTY + inner), 0),
        Shape("TE.CL", post(CHUNKED, _length(4), body=inner_chunk), 0),
        Shape("CL 0 and TE", post(_length(0), CHUNKED, body=inner_chunk), 0),
        Shape("TE twice", chunked(EMPTY + inner, CHUNKED, CHUNKED), 0),
        Shape("TE twice, identity first", chunked(EMPTY, b"Transfer-Encoding: identity", CHUNKED), 0),
        Shape("TE twice, foo last", chunked(EMPTY, CHUNKED, b"Transfer-Encoding: foo"), 0),
        Shape("TE with a blank before the colon", chunked(EMPTY, b"Transfer-Encoding : chunked"), 0),
        Shape("TE with a tab before the colon", chunked(EMPTY, b"Transfer-Encoding\t: chunked"), 0),
        Shape("TE on a folded line", chunked(EMPTY, b"Transfer-Encoding:\r\n chunked"), 0),
        Shape("TE behind a fold", chunked(EMPTY, b"X: y\r\n Transfer-Encoding: chunked"), 0),
        Shape("TE behind a bare CR", chunked(EMPTY, b"X: y\rTransfer-Encoding: chunked"), 0),
        Shape("TE behind a bare LF", chunked(EMPTY, b"X: y\nTransfer-Encoding: chunked"), 0),
        Shape("TE with an underscore", post(b"Transfer_Encoding: chunked", _length(3), body=b"abc"), 1),
        Shape("TE in capitals", chunked(EMPTY, b"TRANSFER-ENCODING: CHUNKED"), 1),
        Shape("TE with a null in its name", chunked(EMPTY, b"Transfer-Encoding\x00: chunked"), 0),
        Shape("TE, HTTP/1.0", post(CHUNKED, body=EMPTY + inner, version=b"1.0"), 0),
        Shape("TE, HTTP/1.0, kept open", post(CHUNKED, b"Connection: keep-alive", body=EMPTY, version=b"1.0"), 0),
        Shape("two lengths", post(_length(0), _length(size), body=inner), 0),
        Shape("two lengths, the other way", post(_length(size), _length(0), body=inner), 0),
        Shape("the same length twice", post(_length(3), _length(3), body=b"abc"), 0),
        Shape("a length with a blank before the colon", post(b"Content-Length : 3", body=b"abc"), 0),
        Shape("a length on a folded line", post(b"Content-Length:\r\n 3", body=b"abc"), 0),
        Shape("a length with a line break in its name", post(b"Content-\r\nLength: 3", body=b"abc"), 0),
        Shape("GET with a body", get(_length(size)) + inner, 1),
        Shape("a trailer", chunked(b"0\r\nX-Trailer: y\r\n\r\n"), 1),
        Shape("a declared trailer", chunked(b"0\r\nX-Trailer: y\r\n\r\n", CHUNKED, b"Trailer: X-Trailer"), 1),
        Shape("forbidden trailers", chunked(b"0\r\nHost: evil\r\nAuthorization: Bearer x\r\nExpect: x\r\n\r\n"), 1),
        Shape("Ludus's headers as trailers", chunked(b"0\r\nLudus-Gateway: x\r\nX-Api-Key: y\r\n\r\n"), 1),
        Shape("a chunk extension", chunked(b"3;a=b\r\nabc\r\n0;c\r\n\r\n"), 1),
        Shape("a quoted chunk extension", chunked(b'3;a="b;c"\r\nabc\r\n0\r\n\r\n'), 1),
        Shape("zeros before a chunk size", chunked(b"0003\r\nabc\r\n000\r\n\r\n"), 1),
        Shape("a chunk size in capitals", chunked(b"A\r\n0123456789\r\n0\r\n\r\n"), 1),
        Shape("absolute form", get(target=b"http://localhost{P}/g"), 1),
        Shape("absolute form, another host", get(target=b"http://evil.example{P}/g"), 1),
        Shape("absolute form, a user", get(target=b"http://a:b@localhost:80{P}/g"), 1),
        Shape("asterisk form", b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n", 1),
        Shape("authority form", b"CONNECT localhost:80 HTTP/1.1\r\n" + H + b"\r\n" + inner, 0),
        Shape("CONNECT to a path", b"CONNECT {P}/c HTTP/1.1\r\n" + H + b"\r\n" + inner, 0),
        Shape("no path", get(target=b"?a=b"), 0),
        Shape("a fragment", get(target=b"{P}/g#f"), 1),
        Shape("two slashes", get(target=b"/" + b"{P}/g"), 1),
        Shape("dots", get(target=b"{P}/../g/./h"), 1),
        Shape("an escaped line break", get(target=b"{P}/g%0d%0aX:%20y"), 1),
        Shape("a blank in the target", get(target=b"{P}/g HTTP/1.1 h"), 0),
        Shape("a tab in the target", get(target=b"{P}/g\th"), 0),
        Shape("a null in the target", get(target=b"{P}/g\x00h"), 0),
        Shape("a byte of 255 in the target", get(target=b"{P}/g\xff"), 0),
        Shape("a backslash in the target", get(target=b"{P}\\g"), 1),
        Shape("two hosts", get(b"Host: evil.example"), 0),
        Shape("the same host twice", get(b"Host: localhost"), 0),
        Shape("no host", get(host=b""), 0),
        Shape("no host, HTTP/1.0", get(host=b"", version=b"1.0"), 1),
        Shape("a host with a blank before the colon", get(host=b"Host : localhost\r\n"), 0),
        Shape("a blank before the first header", get(host=b" Host: localhost\r\n"), 0),
        Shape("a header without a colon", get(b"Host"), 0),
        Shape("a header without a name", get(b": x"), 0),
        Shape("a header with a blank in its name", get(b"X y: z"), 0),
        Shape("a header with a null", get(b"X: y\x00z"), 0),
        Shape("a header with an escape character", get(b"X: y\x1bz"), 0),
        Shape("a header with a vertical tab", get(b"X: y\x0bz"), 0),
        Shape("a header with bytes above 127", get(b"X: y\x85\xa0\xffz"), 1),
        Shape("a folded header", get(b"X: y\r\n z"), 0),
        Shape("a header with a bare CR", get(b"X: y\rZ: a"), 0),
        Shape("a header that ends with LF", get(b"X: y\nZ: a"), 0),
        Shape("a head that ends with LF LF", b"GET {P}/g HTTP/1.1\n" + H[:-2] + b"\n\n", 0),
        Shape("a head that ends with CR CR", b"GET {P}/g HTTP/1.1\r" + H[:-2] + b"\r\r", 0),
        Shape("HTTP/0.9", b"GET {P}/g\r\n" + inner, 0),
        Shape("HTTP/0.9 by name", get(version=b"0.9"), 0),
        Shape("HTTP/2.0", get(version=b"2.0"), 0),
        Shape("HTTP/1.2", get(version=b"1.2"), 0),
        Shape("HTTP/1.10", get(version=b"1.10"), 0),
        Shape("HTTP/11", b"GET {P}/g HTTP/11\r\n" + H + b"\r\n", 0),
        Shape("http in small letters", b"GET {P}/g http/1.1\r\n" + H + b"\r\n", 0),
        Shape("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0),
        Shape("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0),
        Shape("HTTP/1.0", get(version=b"1.0") + inner, 1),
        Shape("HTTP/1.0, kept open", get(b"Connection: keep-alive", version=b"1.0") + inner, 1),
        Shape("an unknown method", b"SMUGGLE {P}/g HTTP/1.1\r\n" + H + b"\r\n", 0),
        Shape("a method in small letters", b"get {P}/g HTTP/1.1\r\n" + H + b"\r\n", 0),
        Shape("a blank before the method", b" " + get(), 0),
        Shape("empty lines before a request", b"\r\n\r\n" + get(), 1),
        Shape("an empty line between requests", get() + b"\r\n" + get(), 2),
        Shape("data after the body", post(_length(3), body=b"abcdef"), 1),
        Shape("a request after Connection: close", get(b"Connection: close") + inner, 1),
        Shape(
            "a request after a body and Connection: close",
            post(_length(3), b"Connection: close", body=b"abc") + inner,
            1,
        ),
        Shape("HEAD", b"HEAD {P}/g HTTP/1.1\r\n" + H + b"\r\n", 1),
        Shape("HEAD with a body", b"HEAD {P}/g HTTP/1.1\r\n" + H + _length(size) + b"\r\n\r\n" + inner, 1),
        Shape("Expect", post(b"Expect: 100-continue", _length(3), body=b"abc"), 1),
        Shape("Expect of something else", post(b"Expect: 200-ok", _length(3), body=b"abc"), 1),
        Shape("Expect, not in small letters", post(b"Expect: 100-CONTINUE", _length(3), body=b"abc"), 1),
        Shape("Expect without a body", get(b"Expect: 100-continue"), 1),
        Shape(
            "an upgrade to h2c",
            get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk") + inner,
            2,
        ),
        Shape(
            "an upgrade to h2c with a body",
            post(b"Connection: Upgrade", b"Upgrade: h2c", _length(3), body=b"abc") + inner,
            2,
        ),
        Shape("an upgrade without Connection", get(b"Upgrade: websocket"), 1),
        Shape("two upgrades", get(b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: h2c") + inner, 2),
        Shape(
            "an upgrade to WebSocket with a body",
            post(b"Connection: Upgrade", b"Upgrade: websocket", _length(size), body=inner),
            0,
        ),
        Shape(
            "an upgrade to WebSocket with chunks",
            post(b"Connection: Upgrade", b"Upgrade: websocket", CHUNKED, body=inner_chunk),
            0,
        ),
        Shape("Connection lists a header", get(b"Connection: x-listed", b"X-Listed: y"), 0),
        Shape("Connection lists Host", get(b"Connection: close, host"), 0),
        Shape("Connection lists Content-Length", post(b"Connection: content-length", _length(size), body=inner), 0),
        Shape("Connection lists a credential", get(b"Connection: authorization", b"Authorization: Bearer x"), 0),
        Shape("Connection lists Ludus's header", get(b"Connection: ludus-gateway"), 1),
        Shape("Connection twice", get(b"Connection: keep-alive", b"Connection: close"), 1),
        Shape("Connection with TE", get(b"Connection: TE, close", b"TE: trailers"), 1),
        Shape("a broken request behind a whole one", get() + b"GET {P}/x HTTP/1.1\r\nbroken\r\n\r\n", 1),
        Shape("a broken body behind a whole request", get() + chunked(b"3\r\nabc\r\nx\r\n"), 1),
        Shape("a broken body behind two whole requests", get() + get() + chunked(b"x\r\n"), 2),
        Shape("a body that does not come", post(_length(5000), body=b"abc"), 0, waits=True),
        Shape("chunks that stop", chunked(b"3\r\nabc\r\n"), 0),
        Shape("a forged introduction", get(b"Ludus-Gateway: guess 127.0.0.1"), 1),
    ]
    shapes += [
        Shape(f"TE {value!r}", chunked(EMPTY + inner, b"Transfer-Encoding: " + value), 0) for value in _ENCODINGS
    ]
    for form in _LENGTHS:
        value = form.replace(b"%d", b"3").replace(b"%x", b"3")
        shapes.append(Shape(f"a length of {value!r}", post(b"Content-Length: " + value, body=b"abc" + inner), 0))
    shapes += [Shape(f"chunks {data!r}", chunked(data + inner), 0) for data in _CHUNKS]
    shapes.append(Shape("a chunk without an end", chunked(b"7fffffffffffffff\r\n" + inner), 0, waits=True))
    return [shape._replace(data=shape.data.replace(b"{P}", path.encode())) for shape in shapes]


_PIECES: Final = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\x00",
    b"\x0b",
    b":",
    b";",
    b",",
    b"0",
    b"1",
    b"-",
    b"+",
    b"0x",
    b"\xff",
    b"close",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Connection: close\r\n",
    b"Host: localhost\r\n",
    b"0\r\n\r\n",
    b"5\r\n",
    b"\r\n\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"GET /play/m HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"X",
    b"HEAD",
)


def mutation(rng: random.Random, shapes: Sequence[Shape]) -> bytes:
    """Return one or two shapes with one to four changes."""
    data = b"".join(rng.choice(shapes).data for _ in range(rng.choice((1, 1, 2))))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 16)))
        action = rng.randrange(5)
        if action == 0:
            data = data[:at] + data[end:]
        elif action == 1:
            data = data[:at] + rng.choice(_PIECES) + data[at:]
        elif action == 2:
            data = data[:at] + rng.choice(_PIECES) + data[end:]
        elif action == 3:
            data = data[:at] + data[at:end] + data[at:]
        else:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data
