"""The frames of one session, in both directions: in order, each exactly once, over as many WebSockets as it takes.

How this works:

- Every frame except a beat has a sequence number. It is kept until the other side has acknowledged it. When a
  connection is lost and another one takes its place, each side says what it has received, and the rest is sent again;
  what arrives twice is dropped. So a request is carried out once, and no output is lost or repeated.
- `send` cuts a large message into pieces and waits while too much is unacknowledged; senders take turns piece by piece,
  so a large message does not hold up the small ones. `post` does not wait: its callers have windows of their own.
- Each side sends a beat when it has nothing else to send. A connection on which nothing arrives has failed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import aiohttp

from ludus.sandbox.remote.messages import BEAT_SECONDS, LAST, PIECE, Frame, Kind, WireError, decode, pack

MAX_HELD: Final = 4 * 1024 * 1024
"""Bytes of unacknowledged frames from which on large messages wait."""
_ACKNOWLEDGE: Final = 256 * 1024
"""After how many bytes an acknowledgment is sent immediately."""

WebSocket = Any
"""A WebSocket of aiohttp, of a client or a server."""


class Channel:
    """One side of a session.

    Args:
        receive: called with each frame, in order.
        describe: returns the payload of beats.
        note_beat: called with the payload of each beat that arrives.
        silence: after how many seconds without any frame a connection has failed.
    """

    def __init__(
        self, receive: Callable[[Frame], None], *, describe: Callable[[], bytes] = bytes,
        note_beat: Callable[[bytes], None] | None = None, silence: float = 10.0,
    ) -> None:  # fmt: skip
        self._receive = receive
        self._describe = describe
        self._note_beat = note_beat
        self._silence = silence
        self._unsent: deque[Frame] = deque()
        self._unacknowledged: deque[Frame] = deque()
        self._sequence = 0
        self.received = 0
        """The last sequence number that has arrived."""
        self._acknowledged = 0
        self._owed = 0
        """Bytes that have arrived since the last acknowledgment."""
        self.held = 0
        """Bytes that the other side has not acknowledged."""
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._turn = asyncio.Lock()
        self._closed = False

    def post(self, kind: Kind, stream: int, payload: bytes = b"", flags: int = LAST) -> None:
        """Send one frame, as soon as there is a connection."""
        if self._closed:
            return
        self._sequence += 1
        frame = Frame(kind, flags, self._sequence, stream, payload)
        self._unsent.append(frame)
        self.held += frame.size
        self._empty.clear()
        if self.held >= MAX_HELD:
            self._room.clear()
        self._work.set()

    def post_event(self, stream: int, head: dict[str, Any], body: bytes = b"") -> None:
        """Send an event, as soon as there is a connection; its body has at most `PIECE` bytes."""
        self.post(Kind.EVENT, stream, pack(head, body))

    async def send(self, kind: Kind, stream: int, data: bytes) -> None:
        """Send a message of any size in pieces, and wait for room before each."""
        view = memoryview(data)
        for start in range(0, max(1, len(view)), PIECE):
            async with self._turn:
                await self._room.wait()
                is_last = start + PIECE >= len(view)
                self.post(kind, stream, bytes(view[start : start + PIECE]), LAST if is_last else 0)

    async def send_event(self, stream: int, head: dict[str, Any], body: bytes) -> None:
        """Send an event when there is room."""
        async with self._turn:
            await self._room.wait()
            self.post_event(stream, head, body)

    def close(self) -> None:
        """Drop what was not sent, and let all senders go on."""
        self._closed = True
        self._unsent.clear()
        self._unacknowledged.clear()
        self._room.set()
        self._empty.set()

    async def carry(self, socket: WebSocket, acknowledged: int) -> str:
        """Exchange frames over one connection until it ends, and return why it ended.

        Args:
            socket: the connection, after the greetings.
            acknowledged: the last sequence number that the other side has received.

        Raises:
            WireError: the other side does not follow the protocol.
        """
        self._note_acknowledged(acknowledged)
        self._unsent.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()
        tasks = [asyncio.create_task(self._write(socket)), asyncio.create_task(self._read(socket))]
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[1].result() if tasks[1] in finished else tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self) -> None:
        """Wait until the other side has acknowledged everything; the caller bounds the wait."""
        await self._empty.wait()

    async def _write(self, socket: WebSocket) -> str:
        with suppress(ConnectionError, aiohttp.ClientError):
            while True:
                if self._unsent:
                    frame = self._unsent.popleft()
                    self._unacknowledged.append(frame)
                else:
                    try:
                        async with asyncio.timeout(BEAT_SECONDS):
                            await self._work.wait()
                    except TimeoutError:
                        pass
                    self._work.clear()
                    if self._unsent:
                        continue
                    frame = Frame(Kind.BEAT, 0, 0, 0, self._describe())
                self._owed = 0
                await socket.send_bytes(frame.encode(self.received))
        return "it was closed while sending"

    async def _read(self, socket: WebSocket) -> str:
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    message = await socket.receive()
            except TimeoutError:
                return f"nothing arrived for {self._silence:g} s"
            if message.type is aiohttp.WSMsgType.BINARY:
                self._take(message.data)
            elif message.type is aiohttp.WSMsgType.TEXT:
                raise WireError(message.data[:500])
            elif message.type is aiohttp.WSMsgType.ERROR:
                raise WireError(f"a message was not valid: {message.data}")
            else:
                return "it was closed"

    def _take(self, data: bytes) -> None:
        frame, acknowledged = decode(data)
        self._note_acknowledged(acknowledged)
        if frame.kind == Kind.BEAT:
            if self._note_beat is not None:
                self._note_beat(frame.payload)
            return
        self._owed += frame.size
        if self._owed >= _ACKNOWLEDGE:
            self._owed = 0
            self._work.set()
        if frame.sequence <= self.received:
            return  # sent again by a side that did not know that it had arrived
        if frame.sequence != self.received + 1:
            raise WireError(f"frame {frame.sequence} came after frame {self.received}")
        self.received = frame.sequence
        self._receive(frame)

    def _note_acknowledged(self, number: int) -> None:
        if number > self._sequence:
            raise WireError(f"frame {number} was acknowledged, but the last one is {self._sequence}")
        waiting = self._unacknowledged
        while waiting and waiting[0].sequence <= number:
            self.held -= waiting.popleft().size
        if self.held < MAX_HELD:
            self._room.set()
        if not self.held:
            self._empty.set()


class Assembly:
    """Requests or replies of which some frames have arrived.

    Attributes:
        size: the bytes of all of them.
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[bytes]] = {}
        self.size = 0

    def add(self, frame: Frame) -> bytes | None:
        """Add a frame; return the message if it is complete."""
        if frame.flags & LAST and frame.stream not in self._parts:
            return frame.payload
        self.size += len(frame.payload)
        self._parts.setdefault(frame.stream, []).append(frame.payload)
        return self.drop(frame.stream) if frame.flags & LAST else None

    def drop(self, stream: int) -> bytes:
        """Forget a message, and return what has arrived of it."""
        data = b"".join(self._parts.pop(stream, ()))
        self.size -= len(data)
        return data
