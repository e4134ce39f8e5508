"""ORS sessions: ids that clients choose, each standing for one episode from its setup on."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.episodes import StartParams
from ludus.protocol.errors import CapacityError, EpisodeNotFound, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.server.principal import Principal
from ludus.server.wires.ors.exchange import Refusal

if TYPE_CHECKING:
    from ludus.server.episode import EpisodeView
    from ludus.server.host import EpisodeHost

NOT_FOUND: Final = "Active environment not found"
DELETED: Final = "Session deleted"
EXISTS: Final = "Session already exists"

SWEEP_SECONDS: Final = 30.0

CALLS_KEPT: Final = 1024
"""The latest calls of a session, by task id, that can be taken up again. Their outcomes are the host's."""

_GONE: Final = (EndReason.EXPIRED, EndReason.CLOSED, EndReason.SERVER_STOPPED)


class Session:
    """One session. `episode` is None until its setup is done."""

    __slots__ = (
        "_calls", "_count", "_keys", "_lost", "_salt", "deleted", "episode", "failure", "key", "params", "scores",
        "settled", "used",
    )  # fmt: skip

    def __init__(self, params: StartParams, key: str) -> None:
        self.key = key
        """The idempotency key of its `/create`; empty for clients that know none."""
        self.params: StartParams | None = params
        """What to start; dropped, with its secrets, once the episode is there."""
        self.episode: str | None = None
        self.failure: LudusError | None = None
        self.deleted = False
        self.settled: asyncio.Future[None] | None = None
        """Done when setup is over, one way or the other."""
        self.used = 0.0
        self.scores: dict[str, asyncio.Task[bytes]] | None = None
        """Group scorings by task id."""
        self._salt: str | None = None
        self._count = 0
        self._calls: dict[str, tuple[str, dict[str, Any]]] | None = None
        self._keys: dict[str, str] | None = None
        self._lost: set[str] | None = None

    def new_task_id(self) -> str:
        """32 hexadecimal digits, unguessable, known in this session only."""
        if self._salt is None:
            self._salt = secrets.token_hex(12)
        self._count += 1
        return f"{self._salt}{self._count:08x}"

    def begin_call(self, name: str, arguments: dict[str, Any], key: str) -> str:
        """The task id of a call: an earlier one if this is the same call asked for again, else a new one.

        It is the same call when it carries the idempotency key of an earlier one. Clients of other make have no such
        key, and ask again without a task id when they lose a connection before they have read one; so a call that is
        equal to one whose reply could not be delivered is that one, as long as nothing else was called since.

        Raises:
            Refusal: 409, the key was used for another call.
        """
        if key:
            earlier = self._keys.get(key) if self._keys is not None else None
            if earlier is not None:
                if self.call(earlier) != (name, arguments):
                    raise Refusal(409, "this Idempotency-Key already stands for another call; use a new one")
                return earlier
        else:
            for earlier in self._lost or ():
                if self.call(earlier) == (name, arguments) and self._nothing_since(earlier):
                    return earlier
        self._lost = None
        return self._note(name, arguments, key)

    def lose(self, task_id: str) -> None:
        """Note that the connection of a call broke before its reply was complete."""
        self._lost = {*(self._lost or ()), task_id}

    def _nothing_since(self, task_id: str) -> bool:
        """Whether all later calls, if any, were lost as well: the client has not moved on."""
        number = int(task_id[24:], 16)
        lost_later = sum(int(other[24:], 16) > number for other in self._lost or ())
        return self._count - number == lost_later

    def _note(self, name: str, arguments: dict[str, Any], key: str) -> str:
        task_id = self.new_task_id()
        if self._calls is None:
            self._calls = {}
        elif len(self._calls) >= CALLS_KEPT:
            del self._calls[next(iter(self._calls))]
        self._calls[task_id] = (name, arguments)
        if key:
            if self._keys is None:
                self._keys = {}
            elif len(self._keys) >= CALLS_KEPT:
                del self._keys[next(iter(self._keys))]
            self._keys[key] = task_id
        return task_id

    def call(self, task_id: str) -> tuple[str, dict[str, Any]] | None:
        """What was called under a task id of this session."""
        return self._calls.get(task_id) if self._calls is not None else None


class Sessions:
    """All sessions, by their owner and id: two tokens may use the same id and never meet."""

    def __init__(self, host: EpisodeHost, idle_seconds: float) -> None:
        self._host = host
        self._idle_seconds = idle_seconds
        self._sessions: dict[tuple[str, str], Session] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, principal: Principal, sid: str) -> Session:
        """The session of an id.

        Raises:
            Refusal: 400 without an id, 404 for an unknown one.
        """
        if not sid:
            raise Refusal(400, "X-Session-ID header is required")
        session = self._sessions.get((principal.name, sid))
        if session is None:
            raise Refusal(404, NOT_FOUND)
        session.used = asyncio.get_running_loop().time()
        return session

    def view(self, principal: Principal, sid: str, session: Session) -> EpisodeView:
        """What a session's episode shows; this counts as use.

        Raises:
            Refusal: 404, it has expired.
        """
        assert session.episode is not None
        try:
            view = self._host.view(session.episode)
        except EpisodeNotFound:
            view = None
        if view is None or view.end_reason in _GONE:
            self._sessions.pop((principal.name, sid), None)
            raise Refusal(404, NOT_FOUND)
        return view

    def open(self, principal: Principal, sid: str, params: StartParams, key: str) -> None:
        """Begin a session; its setup runs on in the background. A repeat under the same key changes nothing.

        Raises:
            Refusal: 400, the id is in use.
        """
        earlier = self._sessions.get((principal.name, sid))
        if earlier is not None:
            if key and earlier.key == key:
                return
            try:
                if earlier.episode is not None:
                    self.view(principal, sid, earlier)
            except Refusal:
                pass
            else:
                raise Refusal(400, EXISTS)
        loop = asyncio.get_running_loop()
        session = Session(params, key)
        session.used = loop.time()
        self._sessions[principal.name, sid] = session
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self.sweep)
        self._start(session, principal)

    async def delete(self, principal: Principal, sid: str) -> None:
        """End a session: its episode is torn down, those who wait for its setup are told, unknown ids are let be."""
        session = self._sessions.pop((principal.name, sid), None)
        if session is None:
            return
        session.deleted = True
        if session.settled is not None and not session.settled.done():
            session.settled.set_result(None)
        if session.episode is not None:
            await self._host.discard(session.episode)

    async def ready(self, session: Session, principal: Principal, wait_seconds: float | None) -> str:
        """The session's episode, when its setup is done.

        Args:
            session: which.
            principal: whose.
            wait_seconds: how long to wait for it; None for as long as it takes.

        Raises:
            TimeoutError: it is not done yet.
            Refusal: 410, the session was deleted meanwhile.
            LudusError: setup failed.
        """
        if session.episode is not None:
            return session.episode
        if isinstance(session.failure, CapacityError | ShuttingDown) and session.params is not None:
            # The clients were told when to come back; now they are here, so the start is tried again.
            self._start(session, principal)
        settled = session.settled
        if settled is not None and not settled.done():
            await asyncio.wait({settled}, timeout=wait_seconds)
            if not settled.done():
                raise TimeoutError
        if session.deleted:
            raise Refusal(410, DELETED)
        if session.failure is not None:
            raise type(session.failure)(session.failure.message, **session.failure.data)
        if session.episode is None:
            raise TimeoutError
        return session.episode

    def sweep(self) -> None:
        """Drop sessions that nobody used for longer than the idle limit, unless a call of theirs still runs."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key, session in list(self._sessions.items()):
            if session.used > now - self._idle_seconds or (session.settled is not None and not session.settled.done()):
                continue
            try:
                if session.episode is not None and self._host.view(session.episode).end_reason is None:
                    session.used = now
                    continue
            except EpisodeNotFound:
                pass
            del self._sessions[key]
        self._sweeper = loop.call_later(SWEEP_SECONDS, self.sweep) if self._sessions else None

    def _start(self, session: Session, principal: Principal) -> None:
        loop = asyncio.get_running_loop()
        session.failure = None
        session.settled = loop.create_future()
        task = loop.create_task(self._run(session, principal))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _run(self, session: Session, principal: Principal) -> None:
        params, settled = session.params, session.settled
        assert params is not None
        assert settled is not None
        try:
            session.episode = (await self._host.begin(params, principal))[0].id
        except LudusError as error:
            session.failure = error
            if not isinstance(error, CapacityError | ShuttingDown):
                session.params = None
        else:
            session.params = session.settled = None
            if session.deleted:
                await self._host.discard(session.episode)
        finally:
            if not settled.done():
                settled.set_result(None)
