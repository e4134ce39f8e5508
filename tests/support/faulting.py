"""A TCP proxy that breaks one request at a chosen point, on both sides, and says how much of the reply it had."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Cut:
    """Where and how a request breaks.

    Attributes:
        where: half of the request has been passed on (`request`); all of it, and nothing of the reply (`before`);
            some of the reply (`during`); all of the reply (`after`).
        seconds: with `before`, how long after the request was passed on.
        reply_bytes: with `during`, how much of the reply is passed on; negative counts from its end.
        how: `reset` sends a reset to both sides; `close` closes both, so that TCP chooses: an end in order, or a reset
            where bytes lie unread.
    """

    where: Literal["request", "before", "during", "after"]
    seconds: float = 0.0
    reply_bytes: int = 0
    how: Literal["reset", "close"] = "reset"


@dataclass
class Report:
    """What a cut did."""

    read: int = 0
    """Bytes of the reply that the proxy had read."""
    whole: bool = False
    """Whether those were all."""
    passed: bytes = b""
    """What of them went on to the client."""


class FaultProxy:
    """Passes HTTP/1 requests on, one after the other on each connection, and breaks the first that `cut` is for.

    Args:
        target: the URL of the server.
        cut: what to break; None breaks nothing.
        path: how the path of the broken request ends.
    """

    def __init__(self, target: str, cut: Cut | None = None, path: str = "/call") -> None:
        parts = urlsplit(target)
        self._address = (parts.hostname, parts.port)
        self._cut = cut
        self._path = path.encode()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.report: Report | None = None
        """Set once the cut was made."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**24)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._address, limit=2**24)
        writers = (writer, back_writer)
        try:
            while request := await _read_message(reader):
                cut, line = self._cut, request.partition(b"\r\n")[0]
                if cut is None or not line.split(b" ")[1].endswith(self._path):
                    back_writer.write(request)
                    await _pass_reply(back_reader, writer)
                    continue
                self._cut = None
                report = Report()
                await _break(cut, request, back_reader, back_writer, writer, report)
                for one in writers:
                    _end(one, cut.how)
                self.report = report
                return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in writers:
                one.transport.abort()


async def _break(
    cut: Cut,
    request: bytes,
    reply: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
    client: asyncio.StreamWriter,
    report: Report,
) -> None:
    upstream.write(request[: len(request) // 2] if cut.where == "request" else request)
    await upstream.drain()
    if cut.where == "before":
        reply._transport.pause_reading()  # type: ignore[attr-defined]  # what comes lies in the kernel, unread
        await asyncio.sleep(cut.seconds)
    elif cut.where == "after" or (cut.where == "during" and cut.reply_bytes < 0):
        content = await _read_message(reply)
        report.read, report.whole = len(content), True
        report.passed = content if cut.where == "after" else content[: cut.reply_bytes]
        client.write(report.passed)
        await client.drain()
    elif cut.where == "during":
        content = b""
        while len(content) < cut.reply_bytes:
            content += await reply.read(2**16)
        report.read, report.whole = len(content), _is_whole(content)
        report.passed = content[: cut.reply_bytes]
        client.write(report.passed)
        await client.drain()


def _end(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "reset":
        sock: socket.socket = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _pass_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    content = b""
    while not _is_whole(content):
        piece = await reader.read(2**16)
        if not piece:
            raise ConnectionError("the server ended in the middle of a reply")
        content += piece
        writer.write(piece)
        await writer.drain()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """A whole request or reply; empty at the end of the connection."""
    content = b""
    while not _is_whole(content):
        piece = await reader.read(2**16)
        if not piece:
            return b""
        content += piece
    return content


def _is_whole(content: bytes) -> bool:
    head, end, body = content.partition(b"\r\n\r\n")
    if not end:
        return False
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
    }
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return body.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= int(fields.get(b"content-length", b"0"))
