"""Messages between the server and hosted code arrive whole, however the stream cuts them."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.formats.hosting.process import _Link
from ludus.formats.inside import frames

MESSAGES = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), max_size=5)


@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 9), min_size=1))
def test_messages_are_the_same_wherever_the_stream_is_cut(messages: list[dict[str, Any]], cuts: list[int]) -> None:
    data, decoder, found = b"".join(map(frames.pack, messages)), frames.Decoder(), []
    while data:
        for cut in cuts:
            decoder.feed(data[:cut])
            data = data[cut:]
            while (message := decoder.next()) is not None:
                found.append(message)
    assert found == messages
    assert decoder.is_empty


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (frames.HEAD.pack(3) + b"[1]", "must be an object, not list"),
        (frames.HEAD.pack(3) + b"abc", "3 bytes arrived that are no JSON"),
        (frames.HEAD.pack(2) + b"\xff\xfe", "2 bytes arrived that are no JSON"),
        (frames.HEAD.pack(frames.LONGEST + 1), "at most 268,435,456 are allowed"),
        (frames.pack({"a": 1})[:-1], "ended within a message"),
    ],
)
def test_what_is_no_message_is_an_error(data: bytes, said: str) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(frames.FrameError, match=said):
            frames.Stream(near).receive()


def test_a_message_larger_than_one_read_arrives_and_the_end_of_the_stream_is_none() -> None:
    near, far = socket.socketpair()
    message = {"text": "x" * 1_000_000}
    with near, far:

        def send() -> None:
            frames.Stream(far).send(message)
            far.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        stream = frames.Stream(near)
        assert stream.receive() == message
        assert stream.receive() is None
        sender.join()


async def test_messages_that_were_not_asked_for_end_the_connection_and_are_not_kept(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(frames.pack({"number": 1}) * 1000)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    address = str(tmp_path / "s")
    async with await asyncio.start_unix_server(flood, address):
        _, link = await asyncio.get_running_loop().create_unix_connection(_Link, address)
        link.send({})
        assert await link.receive() == {"number": 1}
        with pytest.raises(frames.FrameError, match="not asked for"):
            await link.receive()
        await asyncio.wait_for(ended.wait(), 30)
