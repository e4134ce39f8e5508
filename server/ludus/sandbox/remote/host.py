"""The connection of this server to one `ludus sandboxd`: it is kept, lost, and made again.

How this works:

- `Host` connects, and again with growing pauses whenever it has no session. A session lives on one connection, and on
  the next one if the first is lost and the host is back within its grace period.
- If it is not, everything in the session is lost: requests fail, processes end, and so do the sandboxes' episodes.
- A host that hangs sends no beats, so that its connection fails like one that was cut.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
from pydantic import ValidationError

from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.remote import messages as m
from ludus.sandbox.remote.channel import Assembly, Channel

__all__ = ["Timing"]


log = logging.getLogger("ludus.sandbox")

UNIX: Final = "unix:"
"""What the address of a host starts with that listens on a Unix socket of this machine."""

_PATH: Final = "/v1/sandboxes"
_CLOSING_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Timing:
    """How long this server waits for hosts, in seconds."""

    connect: float = 10.0
    """For a connection and the greeting."""
    silence: float = 10.0
    """Without anything from a host until its connection has failed; hosts send something every 2 s."""
    first_pause: float = 0.5
    """Before the second attempt to reach a host that is down; each later pause is twice as long."""
    longest_pause: float = 30.0


class Listener(Protocol):
    """A process or a connection of a sandbox, as this server sees it."""

    def hear(self, event: dict[str, Any], body: bytes, /) -> None:
        """Take an event of the host."""
        ...


class HostSession:
    """The requests and sandboxes of this server on one host, until either is lost.

    Args:
        host: the host's address, for messages.
        silence: see `Timing`.
    """

    def __init__(self, host: str, silence: float) -> None:
        self.host = host
        self.name = secrets.token_hex(16)
        self.channel = Channel(self._receive, note_beat=self._note_beat, silence=silence)
        self.connected = False
        self.load = m.Load(boxes=0, capacity=0)
        self.starting = 0
        """Sandboxes that are being created."""
        self.lost: SandboxFailed | None = None
        self.streams: dict[int, Listener] = {}
        self.on_loss: set[Callable[[SandboxFailed], None]] = set()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._assembly = Assembly()

    @property
    def room(self) -> int:
        """How many more sandboxes the host can have."""
        return self.load.capacity - self.load.boxes - self.starting

    def number(self) -> int:
        """Return the number of a new request."""
        return next(self._numbers)

    async def request(
        self, op: str, body: bytes = b"", *, number: int | None = None, seconds: float = 300.0, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return its reply; cancellation cancels it on the host as well.

        Raises:
            SandboxFailed: the host is lost, or does not reply within `seconds`.
            LudusError, ValueError: the error that the host reports.
        """
        if self.lost is not None:
            raise self.lost
        number = self.number() if number is None else number
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with asyncio.timeout(seconds):
                await self.channel.send(m.Kind.REQUEST, number, m.pack({"op": op, **fields}, body))
                data = await reply
        except TimeoutError:
            self.cancel(number)
            raise SandboxFailed(f"the host {self.host} did not reply within {seconds:g} s") from None
        except asyncio.CancelledError:
            self.cancel(number)
            raise
        finally:
            del self._waiting[number]
            if reply.done() and not reply.cancelled():
                reply.exception()
        head, content = m.unpack(data)
        m.raise_reported(head)
        if "load" in head:
            self.load = m.Load.model_validate(head["load"])
        return head, content

    def cancel(self, number: int) -> None:
        """Give up a request, and what it made."""
        self._assembly.drop(number)
        self.channel.post(m.Kind.CANCEL, number)

    def lose(self, reason: str) -> None:
        """Note that the session is lost, with everything in it."""
        if self.lost is not None:
            return
        self.lost = error = SandboxFailed(f"the sandbox is gone: its host {self.host} was lost: {reason}")
        self.connected = False
        self.channel.close()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)
        for lose in tuple(self.on_loss):
            lose(error)

    def _receive(self, frame: m.Frame) -> None:
        if frame.kind == m.Kind.REPLY:
            waiting = self._waiting.get(frame.stream)
            if waiting is None:
                self._assembly.drop(frame.stream)
            elif (data := self._assembly.add(frame)) is not None and not waiting.done():
                waiting.set_result(data)
        elif frame.kind == m.Kind.EVENT:
            if (stream := self.streams.get(frame.stream)) is not None:
                stream.hear(*m.unpack(frame.payload))
        else:
            raise m.WireError(f"a host does not send frames of kind {frame.kind}")

    def _note_beat(self, payload: bytes) -> None:
        with suppress(ValidationError):
            self.load = m.Load.model_validate_json(payload)


class _NotGreeted(Exception):
    """A host cannot be reached, or refuses this server."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final
        """Whether the session cannot be continued."""


class Host:
    """One host of the pool.

    Args:
        url: `ws://…`, `wss://…` or `unix:/path`.
        token: what it requires, if it does.
        tls: how to check its certificate; None uses the authorities of this machine.
        timing: how long to wait.

    Attributes:
        session: the current session; None while the host is down.
        why: the reason why the host is down.
        tried: set when the first attempt to connect has ended.
        up: set while new sandboxes can be created on it.
    """

    def __init__(self, url: str, *, token: str | None, tls: ssl.SSLContext | None, timing: Timing) -> None:
        self.url = url
        self.session: HostSession | None = None
        self.why = "it was not reached yet"
        self.tried = asyncio.Event()
        self.up = asyncio.Event()
        self._token = token
        self._tls = tls
        self._timing = timing
        self._grace = 0.0
        self._address = url
        self._client: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background, and keep the connection."""
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        local = self.url.removeprefix(UNIX) if self.url.startswith(UNIX) else None
        self._address = self.url if local is None else "ws://localhost"
        self._client = aiohttp.ClientSession(
            headers=headers, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(),
            connector=None if local is None else aiohttp.UnixConnector(local),
        )  # fmt: skip
        self._task = asyncio.get_running_loop().create_task(self._keep())

    @property
    def usable(self) -> HostSession | None:
        """The session, if new sandboxes can be created in it now."""
        return self.session if self.session is not None and self.session.connected else None

    async def aclose(self) -> None:
        """Say goodbye, so that the host closes what is left, and disconnect."""
        session = self.session
        if session is not None and session.connected:
            with suppress(SandboxFailed):
                await session.request("goodbye", seconds=10.0)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if session is not None:
            session.lose("this server has closed the connection")
        if self._client is not None:
            await self._client.close()

    async def _keep(self) -> None:
        pause = self._timing.first_pause
        while True:
            session = HostSession(self.url, self._timing.silence)
            began = asyncio.get_running_loop().time()
            try:
                self.why = await self._use(session)
            except (_NotGreeted, m.WireError) as error:
                self.why = str(error)
            except Exception as error:
                log.exception("the connection to the sandbox host %s failed unexpectedly", self.url)
                self.why = f"{type(error).__name__}: {error}"
            was_up, self.session = self.session is not None, None
            session.lose(self.why)
            self.tried.set()
            if was_up:
                log.warning("the sandbox host %s is lost: %s", self.url, self.why)
            if asyncio.get_running_loop().time() - began > self._timing.longest_pause:
                pause = self._timing.first_pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._timing.longest_pause)

    async def _use(self, session: HostSession) -> str:
        """Use a session until it is lost, and return why."""
        socket, welcome = await self._greet(session)
        self.session = session
        log.info("the sandbox host %s is connected, with room for %d", self.url, welcome.load.capacity)
        loop = asyncio.get_running_loop()
        while True:
            self._grace, session.load, session.connected = welcome.grace, welcome.load, True
            self.tried.set()
            self.up.set()
            try:
                reason = await session.channel.carry(socket, welcome.received)
            finally:
                self.up.clear()
                session.connected = False
                await _drop(socket)
            deadline, pause = loop.time() + self._grace, 0.02
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        socket, welcome = await self._greet(session)
                    break
                except TimeoutError:
                    return reason
                except _NotGreeted as error:
                    if error.final or loop.time() + pause > deadline:
                        return f"{reason}; {error}"
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)

    async def _greet(self, session: HostSession) -> tuple[aiohttp.ClientWebSocketResponse, m.Welcome]:
        """Connect and exchange greetings.

        Raises:
            _NotGreeted: the host cannot be reached, or refuses.
        """
        assert self._client is not None
        hello = m.Hello(
            version=m.VERSION, session=session.name, resume=self.session is session, received=session.channel.received
        )
        socket = None
        try:
            async with asyncio.timeout(self._timing.connect):
                socket = await self._client.ws_connect(
                    f"{self._address}{_PATH}", max_msg_size=m.MAX_FRAME, compress=0, ssl=self._tls or True
                )
                await socket.send_str(hello.model_dump_json())
                text = await socket.receive_str()
            return socket, _read_welcome(text)
        except BaseException as error:
            if socket is not None:
                await _drop(socket)
            if isinstance(error, TimeoutError):
                raise _NotGreeted(f"it does not answer within {self._timing.connect:g} s") from None
            if isinstance(error, aiohttp.WSServerHandshakeError) and error.status == 401:
                raise _NotGreeted("it refuses the token of this server", final=True) from None
            if isinstance(error, aiohttp.ClientError | OSError | TypeError):
                raise _NotGreeted(str(error) or type(error).__name__) from None
            raise


async def _drop(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close a connection, without waiting for a side that may hang."""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_CLOSING_SECONDS):
            await socket.close()


def _read_welcome(text: str) -> m.Welcome:
    with suppress(ValidationError):
        refusal = m.Refusal.model_validate_json(text)
        raise _NotGreeted(f"it refuses this server: {refusal.refused}", final=refusal.lost)
    try:
        return m.Welcome.model_validate_json(text)
    except ValidationError:
        raise _NotGreeted(f"it does not answer like sandboxd: {text[:100]!r}", final=True) from None
