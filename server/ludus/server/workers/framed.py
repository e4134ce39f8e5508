"""The general channel: one WebSocket of a client, whose requests go to several workers.

How this works:

* The worker that answered the upgrade is the first one (`home`). Others get an upgrade with the same headers when the
  first request for them arrives.
* Each message of the client is parsed once. If all its requests are for one worker, it is passed on as it is; otherwise
  each worker gets an array of its own. Order is kept for each worker, and so for each episode.
* Messages of workers are passed back unread, each in one piece, as they come.
* If the connection to a worker is lost, the client's connection is closed: what was unanswered is not known, and a
  client that reconnects sends it again (CHAN-18). Requests for a worker that died without a journal are answered at
  once with an error, and those for a worker that is being restarted wait for it.
* Pings are answered here on both sides. A report of outcomes is also sent to all other workers, over `POST /mcp`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from ludus.protocol.bounds import MAX_FRAME_VALUES, check_json
from ludus.protocol.channel import failure, parse_requests, readable_id
from ludus.protocol.errors import CapacityError, InvalidRequest, LudusError, ParseError, PayloadTooLarge
from ludus.server.transports.channel import MAX_IN_FLIGHT
from ludus.server.web.frame_meter import LARGE_BYTES, TRY_AGAIN_LATER, FrameMeter, FrameRefusal
from ludus.server.web.message_room import MessageRoom
from ludus.server.web.websocket_protocol import BYTES_PER_COST, FRAME_COST, FRAMES_AT_ONCE
from ludus.server.workers import frames, upstream
from ludus.server.workers.frames import FrameError, FrameSplitter, MessageReader
from ludus.server.workers.routing import Kind, target_of_method

if TYPE_CHECKING:
    from ludus.server.workers.pool import Worker
    from ludus.server.workers.requests import Request
    from ludus.server.workers.roles import Client

log = logging.getLogger("ludus.gateway")

WAITING_BYTES: Final = 16 * 1024 * 1024
"""The bytes of requests that wait for workers to be reached, at which the client is read no further."""

MESSAGE_COST: Final = 30
"""What it costs to pass a message on, in the units of `Turns`."""

BYTES_PER_UNIT: Final = 1024
"""The bytes of a message whose parsing costs one unit."""

REQUEST_COST: Final = 5
"""What it costs to find the worker of a request, in the units of `Turns`."""

CLOSE_SECONDS: Final = 5.0
"""How long a client may take to close its side after a refusal."""

UNAUTHORIZED: Final = 3000
"""The close code for a credential that is no longer valid, as the channel's own."""


class _Link:
    """The connection to one worker, with the requests that wait for it to be made."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.uplink: upstream.Uplink | None = None
        self.splitter = FrameSplitter()
        self.waiting: list[tuple[list[Any], bytes]] = []
        """Messages with the ids of their requests."""
        self.bytes = 0


class FramedChannel:
    """The channel of one client.

    Args:
        client: the client's connection.
        request: its upgrade.
        home: the connection to the worker that answered the upgrade.
    """

    def __init__(self, client: Client, request: Request, home: upstream.Uplink) -> None:
        self._client = client
        self._gateway = client.gateway
        self._request = request
        self._owner = self._gateway.owner_of(request)
        self._meter = FrameMeter()
        sender = self._owner or client.peer
        self._room = MessageRoom(self._gateway.arrivals, sender, client.transport, self._refuse_for_room)
        self._full: set[str] = set()
        """The workers whose connections take no more data."""
        self._reader = MessageReader(2 * self._gateway.settings.limits.body_bytes)
        self._home = home.worker
        self._links: dict[str, _Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unnoted = 0
        """The bytes of starts that are not noted yet."""
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self.heard_at = self._loop.time()
        """When the client last sent anything."""
        link = self._links[self._home.name] = _Link(self._home)
        self._attach(link, home)

    # ── the client ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_piece(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a piece of the client's data; see `Piece`."""
        if self._closing:
            return len(data), 1
        now = self.heard_at = self._loop.time()
        try:
            end, count = self._meter.cut(data, at, FRAMES_AT_ONCE, now)
            messages = self._reader.feed(data if at == 0 and end == len(data) else data[at:end])
        except (FrameError, FrameRefusal) as error:
            self.close(error.code, error.reason)
            return len(data), FRAME_COST
        if self._meter.message_bytes > LARGE_BYTES:
            self._room.need(self._meter.message_bytes)
        cost = 1 + count * FRAME_COST + (end - at) // BYTES_PER_COST
        for opcode, payload in messages:
            if opcode == frames.TEXT:
                cost += MESSAGE_COST + len(payload) // BYTES_PER_UNIT + self._pass_on(payload) * REQUEST_COST
                self._room.arrived()
                self._give_back()
            elif opcode == frames.BINARY:
                self._send(self._home, payload, [None], opcode=frames.BINARY)
            elif opcode == frames.PING:
                self._client.transport.write(frames.frame(frames.PONG, payload))
            elif opcode == frames.CLOSE:
                self._closing = True
                self._client.transport.write(frames.frame(frames.CLOSE, payload[:2]))
                self._client.transport.close()
            if self._closing:
                return len(data), FRAME_COST
        return end, cost

    def client_lost(self) -> None:
        """End everything: the client's connection has ended."""
        self._closing = True
        self._room.close()
        for task in self._tasks:
            task.cancel()

    def client_has_room(self, *, room: bool) -> None:
        """Note whether the client reads; the client's connection has paused or resumed the workers."""

    def ping(self) -> None:
        """Ask the client for a sign of life."""
        self._client.transport.write(frames.frame(frames.PING, b""))

    def close(self, code: int, reason: str = "") -> None:
        """Close the client's connection, after what was written."""
        if not self._closing:
            self._closing = True
            self._client.transport.write(frames.close_frame(code, reason))
            self._client.transport.linger()
            self._loop.call_later(CLOSE_SECONDS, self._client.transport.close)

    # ── from the client to workers ──────────────────────────────────────────────────────────────────────────────────

    def _pass_on(self, payload: bytes) -> int:
        """Pass a message on, and return how many requests it holds."""
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self.close(frames.NOT_UTF8, "a text frame is not UTF-8")
            return 1
        try:
            check_json(text, MAX_FRAME_VALUES)
            items = parse_requests(text)
        except PayloadTooLarge as error:
            self._client.transport.write(frames.frame(frames.TEXT, failure(None, error)))
            return 1
        except (ParseError, InvalidRequest):
            # A worker knows the answer.
            self._send(self._home, payload, [None])
            return 1
        if len(items) > MAX_IN_FLIGHT:
            self._send(self._home, payload, [None])
        else:
            self._distribute(items, payload)
        return len(items)

    def _distribute(self, items: list[Any], payload: bytes) -> None:
        workers = [self._worker_for(item) for item in items]
        if any(worker is None for worker in workers):
            items = [item for item, worker in zip(items, workers, strict=True) if worker is not None]
            if not items:
                return
            payload = _written(items)
        targets = [worker for worker in workers if worker is not None]
        target = targets[0]
        if all(worker is target for worker in targets):
            self._send(target, payload, items)
            return
        by_worker: dict[Worker, list[Any]] = {}
        for item, worker in zip(items, targets, strict=True):
            by_worker.setdefault(worker, []).append(item)
        for worker, worker_items in by_worker.items():
            self._send(worker, _written(worker_items), worker_items)

    def _worker_for(self, item: Any) -> Worker | None:
        """Return the worker of a request; None for a start that is sent on later, or by its client once more."""
        gateway = self._gateway
        if type(item) is not dict:
            return self._home
        target = target_of_method(item.get("method"), item.get("params"))
        if target.kind is Kind.WORKER and (worker := gateway.find(self._client, target.worker)) is not None:
            return worker
        if target.kind is Kind.START:
            worker, noted = gateway.place(self._client, self._owner, target)
            if noted is not None:
                self._spawn(self._send_noted(worker, noted, item))
                return None
            return None if self._refuses(worker) else worker
        if target.kind is Kind.EVERY:
            gateway.tell_others_soon(self._client, self._request, self._home.name, to_json(item))
        return self._home

    def _refuses(self, worker: Worker) -> bool:
        """Return whether a worker is about to be stopped and no other can take its start.

        This connection ends then, and the client sends the start again over its next one.
        """
        linked = worker.name in self._links and self._links[worker.name].uplink is not None
        return linked and self._gateway.pool.must_wait(worker)

    async def _send_noted(self, worker: Worker, noted: asyncio.Future[None], item: Any) -> None:
        """Send a start on once it is noted. Starts need no order: no request refers to one that is not answered."""
        payload = _written([item])
        self._unnoted += len(payload)
        self._client.hold("notes", held=self._unnoted > WAITING_BYTES)
        try:
            # The same start may wait for it on another connection.
            await asyncio.shield(noted)
        except LudusError as error:
            self._client.transport.write(frames.frame(frames.TEXT, failure(readable_id(item), error)))
        else:
            if not self._closing and not self._refuses(worker):
                self._send(worker, payload, [item])
        finally:
            self._unnoted -= len(payload)
            self._client.hold("notes", held=self._unnoted > WAITING_BYTES)

    def _send(self, worker: Worker, payload: bytes, items: list[Any], *, opcode: int = frames.TEXT) -> None:
        link = self._links.get(worker.name)
        if link is None:
            # Noted before it is connected: later messages for the worker queue behind this one, in order.
            link = self._links[worker.name] = _Link(worker)
            self._spawn(self._reach(link, about_episodes=not any(map(_starts, items))))
        data = frames.frame(opcode, payload, masked=True)
        if link.uplink is not None:
            link.uplink.transport.write(data)
            return
        link.waiting.append(([readable_id(item) for item in items], data))
        link.bytes += len(data)
        if sum(open_link.bytes for open_link in self._links.values()) > WAITING_BYTES:
            self._client.hold("waiting", held=True)

    async def _reach(self, link: _Link, *, about_episodes: bool) -> None:
        """Connect to a worker, and send what waits for it; or answer that with an error."""
        try:
            uplink = await upstream.connect(self._gateway.pool, link.worker, about_episodes=about_episodes)
        except LudusError as error:
            # The next request for the worker tries again.
            del self._links[link.worker.name]
            replies = [failure(identifier, error) for identifiers, _ in link.waiting for identifier in identifiers]
            self._client.transport.write(frames.frame(frames.TEXT, b"[" + b",".join(replies) + b"]"))
            self._client.hold("waiting", held=False)
            return
        if self._closing:
            uplink.reset()
            return
        # Kept by the client's connection, so that it ends in the way in which that ends.
        self._client.uplinks[link.worker.name] = uplink
        head = await self._upgraded(uplink)
        if head is None:
            self.close(frames.SERVICE_RESTART, f"worker {link.worker.name} does not take the connection")
            return
        self._attach(link, uplink)
        # No await stands between this and `_attach`: a later message would overtake these.
        uplink.transport.write(b"".join(data for _, data in link.waiting))
        link.waiting.clear()
        link.bytes = 0
        self._client.hold("waiting", held=False)
        self.worker_sent(uplink, head)

    async def _upgraded(self, uplink: upstream.Uplink) -> bytes | None:
        """Send the upgrade to a further worker. Return what came behind its answer; None if it refused."""
        received = bytearray()
        event = asyncio.Event()

        def read(data: bytes) -> None:
            received.extend(data)
            event.set()

        uplink.sink, uplink.on_lost = read, event.set
        uplink.transport.write(self._client.head_for(self._request, uplink.worker))
        while b"\r\n\r\n" not in received:
            if uplink.closed:
                return None
            await event.wait()
            event.clear()
        if not received.startswith(b"HTTP/1.1 101 "):
            return None
        return bytes(received[received.index(b"\r\n\r\n") + 4 :])

    # ── from workers to the client ──────────────────────────────────────────────────────────────────────────────────

    def _attach(self, link: _Link, uplink: upstream.Uplink) -> None:
        link.uplink = uplink
        uplink.sink = lambda data: self._worker_sent(link, data)
        uplink.on_lost = lambda: self.close(frames.SERVICE_RESTART, f"worker {link.worker.name} is gone; reconnect")
        uplink.on_room = lambda room: self._note_room(link.worker.name, room=room)
        # It may have ended before `on_lost` was set.
        if uplink.closed:
            uplink.on_lost()

    def _note_room(self, worker: str, *, room: bool) -> None:
        """Read the client only while every worker takes what it sends."""
        (self._full.discard if room else self._full.add)(worker)
        self._client.hold(f"uplink {worker}", held=not room)
        self._give_back()

    def _give_back(self) -> None:
        """Give back the room of messages that the workers have taken."""
        if not self._full:
            self._room.give_back()

    def _refuse_for_room(self, error: CapacityError) -> None:
        self.close(TRY_AGAIN_LATER, error.message)

    def worker_sent(self, uplink: upstream.Uplink, data: bytes) -> None:
        """Read data that a worker sent behind its answer to the upgrade."""
        if data:
            uplink.sink(data)

    def _worker_sent(self, link: _Link, data: bytes) -> None:
        if self._closing:
            return
        passed, control = link.splitter.feed(data)
        if passed:
            self._client.transport.write(passed)
        for opcode, payload in control:
            if opcode == frames.PING and link.uplink is not None:
                link.uplink.transport.write(frames.frame(frames.PONG, payload, masked=True))
            elif opcode == frames.CLOSE:
                self._closing = True
                self._client.transport.write(frames.frame(frames.CLOSE, payload))
                self._client.transport.close()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _starts(item: Any) -> bool:
    return type(item) is dict and target_of_method(item.get("method"), item.get("params")).kind is not Kind.WORKER


def _written(items: list[Any]) -> bytes:
    try:
        return to_json(items)
    except ValueError:  # a lone surrogate, which only escapes can write
        import json

        return json.dumps(items).encode()
