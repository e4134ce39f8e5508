"""The other processes of a hub, as the gateways of endpoints see them: as one worker each.

How this works:

* The worker ids of a hub's endpoints name the process of the hub (`releases.worker_id`). So every process knows from
  the id of an episode, a group, a capability or an ORS session which one has it, and a gateway passes such a request on
  as it passes requests to its own workers: over HTTP, and over the channel, where one connection of a client can have
  episodes in several processes.
* What is passed on is the client's own request, with its own credentials, which the other process checks.
* A start with a key goes to the process that the key belongs to (rendezvous hashing over those that are alive), so one
  that is sent again over another process finds the first one's episode. All others are answered where they arrive.
* A report of outcomes goes to all of them, so they choose tasks alike. One that starts later does not know it.
* A process that has ended took its episodes with it: they get the error of the gateway for a worker that died.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from ludus.hub.core.peers import FORWARDED, RETRY_SECONDS, Peer, Peers, PlayedElsewhere
from ludus.protocol.errors import LudusError
from ludus.registry.types.errors import HubUnavailable
from ludus.server.workers.pool import Pool, State, Worker, lost
from ludus.server.workers.requests import Request
from ludus.server.workers.upstream import ask

if TYPE_CHECKING:
    from ludus.server.workers.upstream import Headers

log = logging.getLogger("ludus.hub.endpoints")

TELL_SECONDS: Final = 300.0
"""How long another process may take to note a report of outcomes; it may have to install and start the endpoint."""

_FORWARDED: Final = FORWARDED.encode()
_OK: Final = 200


class PassedClient(Protocol):
    """A client whose requests can go to another process."""

    stays: bool

    @property
    def sent_headers(self) -> Headers:
        """The headers of its request as it sent them."""
        ...

    @property
    def control_target(self) -> bytes:
        """The path of MCP of its endpoint, as it would send it."""
        ...


class PeerWorker(Worker):
    """Another process of the hub.

    Args:
        process: the name of the process.
        may_pass: whether requests may be passed on to it; those that another process has passed on may not.
    """

    def __init__(self, process: str, *, may_pass: bool) -> None:
        super().__init__(f"@{process}{'' if may_pass else '!'}")
        self.process = process
        self.may_pass = may_pass
        self.prefix = b""
        """The path below which it serves."""
        self.state = State.READY

    def locate(self, address: str) -> None:
        """Note where it is reached."""
        parts = urlsplit(address)
        secure = parts.scheme == "https"
        self.host, self.port = parts.hostname or "", parts.port or (443 if secure else 80)
        self.prefix = parts.path.rstrip("/").encode()
        if secure and self.tls is None:
            self.tls = ssl.create_default_context()

    async def died(self) -> bool:
        """Return False: only its missing row in the database says that it has ended."""
        return False

    def head(self, method: bytes, target: bytes, headers: Headers, *, upgrade: bool = False) -> bytes:
        """Return the head of a client's request as it is passed on.

        Args:
            method, target, headers: as the client sent them.
            upgrade: whether it asks for a WebSocket.
        """
        passed = Request()
        passed.method, passed.target, passed.upgrade = method, self.prefix + target, upgrade
        passed.headers = [field for field in headers if field[0] not in (_FORWARDED, b"expect")]
        passed.headers.append((_FORWARDED, b"1"))
        return passed.head(None)


class Neighbors:
    """The other processes as workers.

    Args:
        peers: the processes.
    """

    def __init__(self, peers: Peers) -> None:
        self.peers = peers
        self._workers: dict[tuple[str, bool], PeerWorker] = {}

    def worker(self, process: str, *, may_pass: bool = True) -> PeerWorker:
        """Return the worker for a process; whether there is one, `reach` finds out."""
        key = process, may_pass
        found = self._workers.get(key)
        if found is None:
            for other in [one for one, _ in self._workers if one not in self.peers.known and one != process]:
                self._workers.pop((other, True), None)
                self._workers.pop((other, False), None)
            found = self._workers[key] = PeerWorker(process, may_pass=may_pass)
        return found

    def for_start(self, key: str) -> PeerWorker | None:
        """Return the process that the key of a start, or the id of a session, belongs to; None for this one."""
        others = self.peers.others
        if not others:
            return None
        names = [self.peers.own, *(one.name for one in others)]
        chosen = Pool(names, durable=False).by_hash(key.encode("utf-8", "replace"))
        return self.worker(chosen.name) if chosen.name != self.peers.own else None

    def tell(self, client: PassedClient, body: bytes) -> list[asyncio.Task[None]]:
        """Begin to send a report of outcomes to the other processes, and return what to wait for.

        Args:
            client: who has sent it.
            body: the report as a message of MCP.
        """
        if client.stays:
            return []
        request = Request()
        request.headers = [*client.sent_headers]
        headers = [field for field in request.report_headers() if field[0] not in (_FORWARDED, b"expect")]
        headers.append((_FORWARDED, b"1"))
        target, loop = client.control_target, asyncio.get_running_loop()
        return [loop.create_task(self._tell(one, target, headers, body)) for one in self.peers.others]

    async def _tell(self, peer: Peer, target: bytes, headers: Headers, body: bytes) -> None:
        worker = self.worker(peer.name)
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self.reach(worker)
                reply = await ask(worker, b"POST", worker.prefix + target, headers, body)
            if reply.status != _OK:
                log.warning("the process %s refused a report of outcomes (HTTP %d)", peer.name, reply.status)
        except (OSError, LudusError) as error:
            log.warning("the process %s did not get a report of outcomes: %s", peer.name, error)

    async def reach(self, worker: PeerWorker) -> None:
        """Find out where a process is reached.

        Raises:
            InfrastructureFailed: it has ended.
            PlayedElsewhere: it has no address.
            HubUnavailable: it does not answer, or the request was passed on before.
        """
        found = await self.peers.find(worker.process)
        if found is None:
            raise lost()
        worker.locate(self._address(worker, found))

    def _address(self, worker: PeerWorker, found: Peer) -> str:
        error: LudusError
        if found.address is None:
            error = PlayedElsewhere("this episode runs", found.process)
        elif not worker.may_pass:
            error = HubUnavailable("the processes of this hub have just changed; try again", retryAfter=RETRY_SECONDS)
        elif self.peers.is_away(worker.process):
            error = HubUnavailable(
                "the process of this hub that has this episode does not answer; try again. If it has ended, so has the "
                "episode, and the answer says so in a while", retryAfter=RETRY_SECONDS,
            )  # fmt: skip
        else:
            return found.address
        raise error
