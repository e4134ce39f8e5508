"""ORS sessions: each is an id that the client chooses, and one episode from its setup on."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.episodes import StartParams, StepResult
from ludus.protocol.errors import CapacityError, EpisodeNotFound, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.server.auth.principal import Principal
from ludus.server.transports.ors.repeats import Repeats
from ludus.server.transports.ors.request import NOT_FOUND, HttpError

if TYPE_CHECKING:
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.runtime.episode import Episode, EpisodeView

DELETED: Final = "Session deleted"
EXISTS: Final = "Session already exists"

SWEEP_SECONDS: Final = 30.0

CALLS_KEPT: Final = 1024
"""The number of latest calls of a session that can be resumed."""

LONGEST_RESTORED: Final = 80
"""The longest session id that is kept in a journal; longer ones are unknown to the next process."""

_START_KEY: Final = re.compile(r"ors-[0-9a-f]{16}-([0-9a-f]{16})-(.+)", re.DOTALL)

Plan = Callable[[str], Awaitable[StartParams]]
"""Returns what to start in an environment. Raises `HttpError` or `LudusError` if the environment does not have it."""

_GONE: Final = (EndReason.EXPIRED, EndReason.CLOSED, EndReason.SERVER_STOPPED)


def start_key(sid: str, key: str) -> str:
    """Return the key of the start of a session's episode. The journal keeps it, and with it the session.

    Args:
        sid: the session's id.
        key: the idempotency key of its `/create`; empty if the client sent none.
    """
    session = f"-{_digest(key)}-{sid}" if len(sid) <= LONGEST_RESTORED else ""
    return f"ors-{secrets.token_hex(8)}{session}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Call:
    """A call of a session, by its task id."""

    __slots__ = ("arguments", "content", "kept", "name", "outcome", "task_id")

    def __init__(self, task_id: str, name: str, arguments: dict[str, Any], content: bytes) -> None:
        self.task_id = task_id
        self.name = name
        self.arguments = arguments
        """The arguments; empty once there is an outcome."""
        self.content = content
        """The value that is compared with another call's to find out whether name and arguments are the same."""
        self.outcome: StepResult | LudusError | None = None
        """The outcome, unless the episode keeps it under the task id."""
        self.kept = False
        """Whether the episode keeps the outcome."""


class Session:
    """One session. `environment` is None until it is known, and `episode` until setup is done."""

    __slots__ = (
        "_calls", "_count", "_keys", "_salt", "deleted", "environment", "episode", "failure", "key", "params", "plan",
        "repeats", "restored", "scores", "settled", "used",
    )  # fmt: skip

    def __init__(self, start: StartParams | Plan | None, key: str) -> None:
        self.key = key
        """The digest of the idempotency key of its `/create`; empty if the client sent none."""
        self.restored = False
        """Whether an earlier process began it, so that the calls of that process are known to the episode only."""
        self.params: StartParams | None = start if isinstance(start, StartParams) else None
        """What to start; dropped, with its secrets, once the episode has started."""
        self.plan: Plan | None = None if isinstance(start, StartParams) else start
        """Returns `params` once the environment is known."""
        self.environment: str | None = self.params.environment if self.params is not None else None
        self.episode: str | None = None
        self.failure: LudusError | HttpError | None = None
        self.deleted = False
        self.settled: asyncio.Future[None] | None = None
        """Done when setup has succeeded or failed."""
        self.used = 0.0
        self.scores: dict[str, asyncio.Task[bytes | LudusError]] | None = None
        """Group scorings by task id."""
        self.repeats = Repeats()
        """Requests without a key whose replies may be lost."""
        self._salt: str | None = None
        self._count = 0
        self._calls: dict[str, Call] | None = None
        self._keys: dict[str, str] | None = None

    def new_task_id(self) -> str:
        """Return an unguessable id of 32 hexadecimal digits, which is valid in this session only."""
        if self._salt is None:
            self._salt = secrets.token_hex(12)
        self._count += 1
        return f"{self._salt}{self._count:08x}"

    def keyed_call(self, key: str, name: str, arguments: dict[str, Any], content: bytes) -> Call:
        """Return the call of an idempotency key: the earlier one if the key has one, else a new one.

        Raises:
            HttpError: 409, the key was used for another call.
        """
        earlier = self.call(self._keys.get(key, "")) if self._keys is not None else None
        if earlier is not None:
            if earlier.content != content:
                raise HttpError(409, "this Idempotency-Key was used for another call; use a new one")
            return earlier
        call = self.new_call(name, arguments, content, _keyed_id(key))
        if self._keys is None:
            self._keys = {}
        elif len(self._keys) >= CALLS_KEPT:
            del self._keys[next(iter(self._keys))]
        self._keys[key] = call.task_id
        return call

    def new_call(self, name: str, arguments: dict[str, Any], content: bytes, task_id: str | None = None) -> Call:
        """Add and return a new call, with a new task id unless one is given."""
        call = Call(task_id or self.new_task_id(), name, arguments, content)
        if self._calls is None:
            self._calls = {}
        elif len(self._calls) >= CALLS_KEPT:
            del self._calls[next(iter(self._calls))]
        self._calls[call.task_id] = call
        return call

    def call(self, task_id: str) -> Call | None:
        """Return the call of a task id, or None if this session does not have it."""
        return self._calls.get(task_id) if self._calls is not None else None

    def forget(self, call: Call) -> None:
        """Drop a call that was refused before it ran."""
        if self._calls is not None:
            self._calls.pop(call.task_id, None)


def _keyed_id(key: str) -> str:
    """Return the task id of the call with an idempotency key: the same in each process, so that no call runs twice."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, person=b"ludus-ors-call").hexdigest()


class SessionStore:
    """All sessions, by owner and id: two tokens may use the same id for different sessions."""

    def __init__(self, host: EpisodeHost, idle_seconds: float) -> None:
        self._host = host
        self._most_undecided = host.limits.max_episodes
        self._idle_seconds = idle_seconds
        self._sessions: dict[tuple[str, str], Session] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, principal: Principal, sid: str) -> Session:
        """Return the session of an id.

        Raises:
            HttpError: 400 without an id, 404 for an unknown one.
        """
        if not sid:
            raise HttpError(400, "X-Session-ID header is required")
        session = self._sessions.get((principal.name, sid))
        if session is None:
            raise HttpError(404, NOT_FOUND)
        session.used = asyncio.get_running_loop().time()
        return session

    def restore(self, owner: str, key: str, episode: Episode) -> None:
        """Go on with the session of an earlier process, if the key of an episode's start names one."""
        match = _START_KEY.fullmatch(key)
        if match is None or episode.end_reason in _GONE:
            return
        loop = asyncio.get_running_loop()
        digest, sid = match.groups()
        session = Session(None, digest)
        session.environment = episode.published.name
        session.restored, session.used = True, loop.time()
        session.settled = loop.create_future()
        recovering = episode.recovering
        if recovering is None:
            _go_on(session, episode)
        else:
            recovering.add_done_callback(lambda _: _go_on(session, episode))
        self._sessions[owner, sid] = session
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self.sweep)

    def view(self, principal: Principal, sid: str, session: Session) -> EpisodeView:
        """Return the view of a session's episode; this counts as use.

        Raises:
            HttpError: 404, the episode has expired or was closed.
        """
        assert session.episode is not None
        try:
            view = self._host.store.find(session.episode).view()
        except EpisodeNotFound:
            view = None
        if view is None or view.end_reason in _GONE:
            self._sessions.pop((principal.name, sid), None)
            raise HttpError(404, NOT_FOUND)
        return view

    def open(self, principal: Principal, sid: str, params: StartParams, key: str) -> None:
        """Begin a session and its setup in the background. A repeat under the same key changes nothing.

        Raises:
            HttpError: 400, the id is in use.
        """
        session = self._add(principal, sid, params, key)
        if session is not None:
            self._start(session, principal)

    def open_undecided(self, principal: Principal, sid: str, plan: Plan, key: str) -> None:
        """Begin a session whose environment is not known yet; `decide` starts its setup.

        Raises:
            HttpError: 400, the id is in use; 429, too many sessions wait for their first request.
        """
        waiting = sum(session.environment is None for session in self._sessions.values())
        if waiting >= self._most_undecided:
            raise HttpError(
                429,
                f"{waiting} sessions have been created without an `env_name` and not been used: name the environment "
                "when you create a session, or delete those",
                {"Retry-After": "5"},
            )
        self._add(principal, sid, plan, key)

    def decide(self, session: Session, principal: Principal, environment: str) -> None:
        """Set the environment of an undecided session, and start its setup."""
        session.environment = environment
        self._start(session, principal)

    def _add(self, principal: Principal, sid: str, start: StartParams | Plan, key: str) -> Session | None:
        earlier = self._sessions.get((principal.name, sid))
        if earlier is not None:
            if key and earlier.key == _digest(key):
                return None
            try:
                if earlier.episode is not None:
                    self.view(principal, sid, earlier)
            except HttpError:
                pass
            else:
                raise HttpError(400, EXISTS)
        loop = asyncio.get_running_loop()
        session = Session(start, _digest(key) if key else "")
        session.used = loop.time()
        self._sessions[principal.name, sid] = session
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self.sweep)
        return session

    async def delete(self, principal: Principal, sid: str) -> None:
        """End a session: discard its episode and wake the requests that wait for its setup. Ignore unknown ids."""
        session = self._sessions.pop((principal.name, sid), None)
        if session is None:
            return
        session.deleted = True
        if session.settled is not None and not session.settled.done():
            session.settled.set_result(None)
        if session.episode is not None:
            await self._host.discard(session.episode)

    async def ready(self, session: Session, principal: Principal, wait_seconds: float | None) -> str:
        """Return the id of the session's episode when its setup is done.

        Args:
            session: the session.
            principal: its owner.
            wait_seconds: how long to wait for setup; None for no limit.

        Raises:
            TimeoutError: setup is not done yet.
            HttpError: 410, the session was deleted meanwhile.
            LudusError: setup failed.
        """
        if session.episode is not None:
            return session.episode
        if isinstance(session.failure, CapacityError | ShuttingDown) and session.params is not None:
            # The earlier answer asked the client to retry later, so this request tries the start again.
            self._start(session, principal)
        settled = session.settled
        if settled is not None and not settled.done():
            await asyncio.wait({settled}, timeout=wait_seconds)
            if not settled.done():
                raise TimeoutError
        if session.deleted:
            raise HttpError(410, DELETED)
        if isinstance(failure := session.failure, HttpError):
            raise HttpError(failure.status, failure.detail, failure.headers, failure.error)
        if failure is not None:
            raise type(failure)(failure.message, **failure.data)
        if session.episode is None:
            raise TimeoutError
        return session.episode

    def sweep(self) -> None:
        """Drop sessions whose episodes are forgotten, and unused ones whose episodes do not run."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key, session in list(self._sessions.items()):
            if session.settled is not None and not session.settled.done():
                continue
            if session.episode is not None and session.episode not in self._host.store:
                del self._sessions[key]
            elif session.used <= now - self._idle_seconds and not (
                session.episode is not None and self._host.store.runs(session.episode)
            ):
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
        settled = session.settled
        assert settled is not None
        try:
            if session.plan is not None and session.environment is not None:
                session.params = await session.plan(session.environment)
                session.plan = None
            assert session.params is not None
            session.episode = (await self._host.begin(session.params, principal))[0].id
        except (LudusError, HttpError) as error:
            session.failure = error
            session.plan = None
            if not isinstance(error, CapacityError | ShuttingDown):
                session.params = None
        else:
            session.params = session.settled = None
            if session.deleted:
                await self._host.discard(session.episode)
        finally:
            if not settled.done():
                settled.set_result(None)


def _go_on(session: Session, episode: Episode) -> None:
    """Let the requests of a restored session go on: its episode has its state again, or has ended."""
    session.episode = episode.id
    assert session.settled is not None
    session.settled.set_result(None)
