"""What the framing of a body may take, apart from its content."""

from __future__ import annotations

from typing import Any

import httptools
import pytest

from ludus.server.web.http_heads import RequestParser
from ludus.server.workers.upstream import HEAD_BYTES, Answer

HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize("start", [b"0\r\nx: ", b"1;"], ids=["trailer", "extension"])
def test_an_answer_whose_chunks_never_bring_content_is_broken_off(start: bytes) -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n" + start)
    for _ in range(15):
        answer.feed(b"x" * 4096)
    with pytest.raises(httptools.HttpParserError, match="many times"):
        answer.feed(b"x" * 8192)


def test_an_answer_without_an_end_of_its_head_is_broken_off() -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\nx: ")
    for _ in range(HEAD_BYTES // 4096 - 1):
        answer.feed(b"x" * 4096)
    with pytest.raises(httptools.HttpParserError, match="head"):
        answer.feed(b"x" * 8192)


def test_an_answer_in_one_byte_chunks_is_passed_on_however_many_they_are() -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1000):
        answer.feed(b"1\r\nx\r\n" * 100)
    answer.feed(b"0\r\n\r\n")
    assert answer.complete


@pytest.mark.parametrize("part", [b"x" * 4096, b"x: y\r\n" * 700], ids=["one", "many"])
async def test_trailers_without_end_are_refused_by_a_server(start: Any, connect: Any, part: bytes) -> None:
    wire = await connect(await start())
    await wire.send(HEAD)
    assert (await wire.answer())[0] == 100  # so the server reads what follows as a body
    await wire.send(b"1\r\nx\r\n0\r\n" + (b"" if b":" in part else b"x: ") + part * 20)
    assert (await wire.answer())[0] == 431


@pytest.mark.parametrize("sent", [b"HEAD x/y HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HEAD /health HTTP/1.1\r\n\r\n"])
async def test_a_refused_request_for_a_head_gets_no_body(start: Any, connect: Any, sent: bytes) -> None:
    wire = await connect(await start())
    await wire.send(sent)
    head, end, rest = (await wire.rest()).partition(b"\r\n\r\n")
    assert (head[:13], end, rest) == (b"HTTP/1.1 400 ", b"\r\n\r\n", b"")


def test_a_declined_upgrade_is_read_on_and_a_taken_one_says_where_it_begins() -> None:
    class Owner:
        """Speaks WebSocket only."""

        def __init__(self) -> None:
            self.targets: list[bytes] = []
            self.body = b""

        def declined_upgrade(self) -> bytes | None:
            return None if b"websocket" in self.targets[-1] else b"POST /plain HTTP/1.1\r\ncontent-length: 3\r\n\r\n"

        def on_url(self, url: bytes) -> None:
            self.targets.append(url)

        def on_body(self, body: bytes) -> None:
            self.body += body

    owner = Owner()
    parser = RequestParser(owner)
    upgrade = b"POST /%b HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\n"
    sent = upgrade % b"h2c" + b"abc" + upgrade % b"websocket" + b"frames"
    with pytest.raises(httptools.HttpParserUpgrade) as taken:
        parser.feed_data(sent)
    assert sent[taken.value.args[0] :] == b"frames"
    assert (owner.targets, owner.body) == ([b"/h2c", b"/plain", b"/websocket"], b"abc")
