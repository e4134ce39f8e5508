"""The other processes of a hub that share its database, and requests that one of them must answer.

How this works:

* Played runs and plays by hand are in the memory of the process that plays them. Each process
  writes the address at which the others reach it next to its lease (`ludus.hub.results.processes`), if the operator
  gives it one. The ids of its leases begin with its name, which never changes, and which the ids of its plays and of
  the episodes at its endpoints hold (`ludus.hub.endpoints.neighbors`).
* A request about what another process plays raises `PlayedElsewhere`. It is then passed on to that process as it came,
  with the client's own credentials, which that process checks: processes trust each other with nothing else. The answer
  is passed back unread.
* Play URLs of runs name their lease, as `/at/PROCESS/e/...`: when that is lost, the episode is another's.
* A request is passed on once. If a process does not answer, the client gets HTTP 503 and may try again: when the lease
  of that process has ended, another one plays the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp
from multidict import CIMultiDict
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import HubProcess
from ludus.protocol.errors import LudusError, NotFound
from ludus.registry.types.errors import HubUnavailable, RunElsewhere

if TYPE_CHECKING:
    from starlette.types import Message

PREFIX: Final = "/at/"
"""What play URLs begin with that name a process."""

FORWARDED: Final = "ludus-hub-forwarded"
"""The header of requests that another process has passed on."""

RETRY_SECONDS: Final = 2.0
"""When a client should come back that found a process away."""

LOOK_SECONDS: Final = 1.0
"""How long what is known of the processes counts."""

NAME_LENGTH: Final = 8
"""The length of the name of a process, in hexadecimal digits."""

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 3_900.0
"""How long a process may take for a part of its answer. What it does is bounded by its own limits, which are less."""

_PATH: Final = re.compile(r"/at/([0-9a-f]{32})(/.*)")
_AUTOMATIC_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What the client would add, if it is missing."""

_CONNECTION_HEADERS: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"expect", b"date", b"server", b"x-content-type-options", b"referrer-policy",
    }
)  # fmt: skip
"""Headers that belong to one connection, or that each process writes itself."""


class PlayedElsewhere(RunElsewhere):
    """What another process of the hub plays.

    Attributes:
        process: the id of that process.
    """

    def __init__(self, what: str, process: str) -> None:
        self.process = process
        super().__init__(
            f"{what} in another process of this hub: send all requests about it to one process, give the processes "
            "addresses with `--peer-url`, or end it there first"
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process.

    Attributes:
        name: its name.
        process: the id of its lease.
        address: where it is reached; None if it is not.
    """

    name: str
    process: str
    address: str | None


class Peers:
    """The processes of this hub.

    Args:
        database: the hub's database.
        address: where other processes reach this one; None if they do not.

    Attributes:
        own: the name of this process.
        known: the other processes by their names, as of the last look.
    """

    def __init__(self, database: Database, address: str | None = None) -> None:
        self.own = secrets.token_hex(NAME_LENGTH // 2)
        self.known: dict[str, Peer] = {}
        self._database = database
        self._address = address
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._away: dict[str, float] = {}
        """The processes that did not accept a connection, and when they may be tried again."""
        self._client: aiohttp.ClientSession | None = None

    def address_of(self, process: str) -> str | None:
        """Return the address of a process by the id of its lease; None if it has none. This blocks.

        Raises:
            HubUnavailable: the lease has ended.
        """
        with self._database.reading() as session:
            found = session.execute(select(HubProcess.address).where(HubProcess.id == process)).first()
        if found is None:
            raise HubUnavailable("the processes of this hub have just changed; try again", retryAfter=RETRY_SECONDS)
        address: str | None = found[0]
        return address

    async def find(self, name: str) -> Peer | None:
        """Return another process; None if there is none of this name, or it has ended."""
        await self.look()
        return self.known.get(name)

    async def look(self) -> None:
        """Find out which processes there are, if the last look is too long ago."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                self.known = await asyncio.to_thread(self._look)
                self._looked_at = time.monotonic()

    def _look(self) -> dict[str, Peer]:
        with self._database.reading() as session:
            rows = session.execute(select(HubProcess.id, HubProcess.address)).all()
        found = (Peer(one[:NAME_LENGTH], one, address) for one, address in rows)
        return {peer.name: peer for peer in found if peer.name != self.own}

    @property
    def others(self) -> list[Peer]:
        """The others that take requests that any process can answer; none if they do not reach this one."""
        if self._address is None:
            return []
        return [one for one in self.known.values() if one.address is not None and not self.is_away(one.name)]

    def is_away(self, name: str) -> bool:
        """Return whether a process has just not accepted a connection."""
        return self._away.get(name, 0.0) > time.monotonic()

    def note_away(self, name: str) -> None:
        """Note that a process has not accepted a connection."""
        self._away = {one: until for one, until in self._away.items() if one in self.known}
        self._away[name] = time.monotonic() + RETRY_SECONDS

    async def answer(self, request: Request, error: PlayedElsewhere) -> Response:
        """Return the answer of the process that a request must go to.

        Args:
            request: the request, whose body has not been read.
            error: names the process.

        Raises:
            PlayedElsewhere: the process has no address.
            HubUnavailable: it does not answer, or the request has been passed on before.
        """
        if FORWARDED in request.headers:
            raise HubUnavailable("the processes of this hub have just changed; try again", retryAfter=RETRY_SECONDS)
        address = await asyncio.to_thread(self.address_of, error.process)
        if address is None:
            raise error
        return await self.forward(request, address)

    async def forward(self, request: Request, address: str) -> Response:
        """Pass a request on to the process with an address, and return its answer.

        Raises:
            HubUnavailable: it does not answer.
        """
        target = request.scope.get("raw_path") or request.scope["path"].encode()
        query = request.scope.get("query_string", b"")
        return _Passed(await self.send(request, address, (target + (b"?" + query if query else b"")).decode("latin-1")))

    async def send(self, request: Request, address: str, target: str) -> aiohttp.ClientResponse:
        """Send a request to the process with an address, and return its answer, which is to be read and closed.

        Args:
            request: the request, whose body has not been read.
            address: the address.
            target: its path and query.

        Raises:
            HubUnavailable: it does not answer.
        """
        scope = request.scope
        headers = CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _CONNECTION_HEADERS
        )
        headers[FORWARDED] = "1"
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        place = URL(address.rstrip("/") + target, encoded=True)
        try:
            return await self._session().request(
                scope["method"], place, headers=headers, allow_redirects=False,
                data=request.stream() if has_body else None, skip_auto_headers=_AUTOMATIC_HEADERS,
            )  # fmt: skip
        except (aiohttp.ClientConnectionError, TimeoutError):
            raise HubUnavailable(
                "the process of this hub that plays this does not answer; try again. If it has ended, another one "
                "takes over in a while", retryAfter=RETRY_SECONDS,
            ) from None  # fmt: skip

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS
                ),
                connector=aiohttp.TCPConnector(limit=1_000),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._client

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()


class _Passed(Response):
    """An answer that is passed on as it arrives. If it breaks, the client's connection does, too.

    Args:
        answer: the answer of the other process.
    """

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        super().__init__(status_code=answer.status)
        self.raw_headers = [
            (name.lower(), value) for name, value in answer.raw_headers if name.lower() not in _CONNECTION_HEADERS
        ]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; stop if the client leaves."""
        passing = asyncio.ensure_future(self._pass(send))
        leaving = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (passing, leaving):
                one.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)
            self._answer.close()

    async def _pass(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._answer.content.iter_any():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


class PeerPaths:
    """ASGI middleware for play URLs that name a process: those of this one are served, others passed on.

    Args:
        app: the hub's application.
        peers: the other processes.
        own: returns the id of this process.
        refuse: returns an error as the hub sends it.
    """

    def __init__(
        self, app: ASGIApp, peers: Peers, own: Callable[[], str], refuse: Callable[[LudusError], Response]
    ) -> None:
        self._app = app
        self._peers = peers
        self._own = own
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        found = _PATH.fullmatch(scope["path"])
        if found is None or found[1] != self._own():
            response = await self._elsewhere(Request(scope, receive, send), found[1] if found is not None else "")
            await response(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        below = raw[len(PREFIX) + len(found[1]) :]
        await self._app({**scope, "path": found[2], "raw_path": below}, receive, send)

    async def _elsewhere(self, request: Request, process: str) -> Response:
        try:
            address = None
            if FORWARDED not in request.headers and process:
                with contextlib.suppress(HubUnavailable):  # the lease has ended
                    address = await asyncio.to_thread(self._peers.address_of, process)
            if address is not None:
                return await self._peers.forward(request, address)
            raise NotFound("the process of this hub that played here has ended; ask the run for its next episode")
        except LudusError as error:
            return self._refuse(error)


def public_of(base: str, process: str, address: str | None, package: str, version: str) -> str:
    """Return where a version runs, for players of what a process plays.

    Args:
        base: the address of the hub.
        process: the id of this process.
        address: where other processes reach it; None if they do not, so that no path has to name it.
        package, version: the version.
    """
    below = f"/e/{package}@{version}"
    return f"{base}{PREFIX}{process}{below}" if address is not None else f"{base}{below}"
