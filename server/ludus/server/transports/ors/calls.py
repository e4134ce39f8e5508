"""`/call` and `/score_group`: work that is answered with events.

How this works:

1. `_which` decides which call a request means: the call of its `task_id`, the call of its `Idempotency-Key`, an earlier
   equal call whose reply was lost (`repeats`), or a new one.
2. `_play` lets the host run the call, once per task id, and makes events of its outcome.
3. `Stream` sends the events. Most tools answer within `EARLY_SECONDS`, and the whole reply is sent in one piece.
   Otherwise the task id is sent first, so that a client whose connection breaks can resume the call, and comments
   follow until the result is ready.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any, Final, Self

from pydantic_core import to_json

from ludus.protocol.episodes import Candidate, StepResult
from ludus.protocol.errors import CapacityError, EpisodeEnded, EpisodeFailed, EpisodeNotFound, LudusError, to_wire
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.server.transports.ors import bodies
from ludus.server.transports.ors.blocks import candidate, finished_json, step_json
from ludus.server.transports.ors.frames import error_event, ludus_event, ping_comment, result_events, task_id_event
from ludus.server.transports.ors.lifecycle import ready, view_of
from ludus.server.transports.ors.request import Disconnected, HttpError, OrsRequest
from ludus.server.transports.ors.sessions import NOT_FOUND, Call, Session
from ludus.server.transports.ors.wire import SESSION_SCOPES, Ors, refusal_of
from ludus.server.web.delivery import Delivery, watch

EARLY_SECONDS: Final = 0.02
"""The time after which the head and the task id are sent ahead of the result."""

PING_SECONDS: Final = 8.0
"""The time between comments. Clients give up after 30 s of silence; the published servers send one every 10 s."""

SCORES_KEPT: Final = 8
"""The number of latest group scorings of a session that can be resumed."""

SMALL_BODY: Final = 64
"""The longest body that is kept whole for comparison; of longer ones a digest is kept."""

UNKNOWN_TASK_ID: Final = "unknown task_id"


async def call(ors: Ors, x: OrsRequest, environment: str) -> None:
    """Answer `POST /{env}/call`: run a tool, or resume a call."""
    principal = ors.principal(x, *SESSION_SCOPES)
    session = ors.sessions.find(principal, x.header(b"x-session-id"))
    body = await x.body(ors.limits.body_bytes)
    asked = bodies.read_call(body)
    if (episode := session.episode) is None or environment not in ("", session.environment):
        episode = await ready(ors, x, session, principal, environment)
    async with Stream(x) as stream:
        found = await _which(session, x, stream, asked, _content(b"call", body))
        if found is None:
            await stream.finish(error_event(UNKNOWN_TASK_ID))
            return
        await stream.send_task_id(found.task_id)
        try:
            events = await _play(ors, x, session, episode, found)
        except HttpError as refusal:
            if not x.started:
                raise
            events = error_event(str(refusal.detail))
        await stream.finish(events)


async def _which(
    session: Session, x: OrsRequest, stream: Stream, request: tuple[str, dict[str, Any], str | None], content: bytes
) -> Call | None:
    """Return the call that a request means; None for a task id that this session does not know."""
    name, arguments, task_id = request
    key = x.header(b"idempotency-key")
    if task_id is not None:
        known = session.call(task_id)
        if known is not None:
            stream.delivery = watch(x.scope)
            session.repeats.resumed(task_id, stream.delivery)
        return known
    if key:
        return session.keyed_call(key, name, arguments, content)
    stream.delivery = watch(x.scope)
    asked = session.repeats.ask(content, stream.delivery)
    found: Call | None = None
    if asked.before is not None:
        earlier = await session.repeats.repeated(asked, unhurried=_unhurried(x))
        if stream.delivery.verdict is False:
            raise Disconnected
        found = session.call(earlier) if earlier is not None else None
    if found is None:
        found = session.new_call(name, arguments, content)
        asked.task_id = found.task_id
    return found


async def score_group(ors: Ors, x: OrsRequest, environment: str) -> None:
    """Answer `POST /{env}/score_group`: score several candidates for the session's task."""
    session, view = await view_of(ors, x, environment)
    raw = await x.body(ors.limits.body_bytes)
    body = bodies.read(bodies.ScoreGroupBody, raw)
    if not ors.published(view.environment).group_scoring:
        raise HttpError(404, f"Environment {view.environment!r} does not implement score_group")
    scores = session.scores = session.scores or {}
    async with Stream(x) as stream:
        stream.delivery = watch(x.scope)
        task_id = body.task_id
        if task_id is None:
            asked = session.repeats.ask(_content(b"score", raw), stream.delivery)
            task_id = await session.repeats.repeated(asked, unhurried=_unhurried(x))
            if task_id not in scores:
                task_id = asked.task_id = _begin_scoring(ors, session, scores, view.id, body)
        elif task_id in scores:
            session.repeats.resumed(task_id, stream.delivery)
        else:
            await stream.finish(error_event(UNKNOWN_TASK_ID))
            return
        await stream.send_task_id(task_id)
        scoring = scores[task_id]
        await asyncio.wait({scoring})
        await stream.finish(scoring.result())


def _begin_scoring(
    ors: Ors, session: Session, scores: dict[str, asyncio.Task[bytes]], episode: str, body: bodies.ScoreGroupBody
) -> str:
    try:
        candidates = [candidate(one) for one in body.candidates]
    except ValueError as error:
        raise HttpError(400, f"a candidate holds what cannot be read: {error}") from None
    task_id = session.new_task_id()
    if len(scores) >= SCORES_KEPT:
        del scores[next(iter(scores))]
    scores[task_id] = asyncio.get_running_loop().create_task(_score(ors, episode, candidates))
    return task_id


def _unhurried(x: OrsRequest) -> bool:
    return x.header(b"user-agent").startswith(("ors-sdk/", "openreward-sdk/"))


def _content(route: bytes, body: bytes) -> bytes:
    """Return the value by which requests are compared. A client that repeats a request sends the same bytes."""
    if len(body) <= SMALL_BODY:
        return route + b" " + body
    return route + b"#" + blake2b(body, digest_size=32).digest()


class Stream:
    """The events of one reply, sent whole or begun early. Leaving it (`async with`) ends all its background work."""

    __slots__ = ("_ahead", "_gone", "_task", "_task_id", "_task_id_sent", "_timer", "_x", "delivery")

    def __init__(self, x: OrsRequest) -> None:
        self._x = x
        self._task_id = ""
        self._task_id_sent = False
        """Whether the task id has been sent."""
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[None] | None = None
        self.delivery: Delivery | None = None
        """The delivery of the reply, where the session follows it."""

    async def __aenter__(self) -> Self:
        """Start the timer that begins the reply early, unless it is finished within `EARLY_SECONDS`."""
        self._timer = asyncio.get_running_loop().call_later(EARLY_SECONDS, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None or self._task is not None:
            await self._stop()
        if self._ahead is not None and not self._ahead.done():
            self._ahead.cancel()  # the body raised while the head was still being sent
            await asyncio.gather(self._ahead, return_exceptions=True)
        if self.delivery is not None and not self.delivery.was_sent:
            self.delivery.settle(delivered=False)

    async def send_task_id(self, task_id: str) -> None:
        """Set the task id, and send it now if the reply has begun early."""
        self._task_id = task_id
        if self._ahead is not None:
            await self._ahead
            await self._more(self._news())

    async def finish(self, events: bytes) -> None:
        """Send the last events, unless the client has disconnected."""
        if self._timer is not None and self._task is None:
            self._timer.cancel()
            self._timer = None
        else:
            await self._stop()
        if self._gone:
            return
        if not self._task_id_sent and self._task_id:
            events = task_id_event(self._task_id) + events
        if self._ahead is not None:
            await self._ahead
            await self._x.send({"type": "http.response.body", "body": events})
        else:
            await self._x.events(events)
        if self.delivery is not None:
            self.delivery.sent()

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        self._x.started = True
        self._timer = None
        self._ahead = loop.create_task(self._x.begin_events(self._news()))
        self._task = loop.create_task(self._keep_open(self._ahead))

    def _news(self) -> bytes:
        """Return the task id event if it is known and not sent yet, else a comment that keeps the connection alive."""
        if self._task_id_sent or not self._task_id:
            return ping_comment()
        self._task_id_sent = True
        return task_id_event(self._task_id)

    async def _keep_open(self, ahead: asyncio.Task[None]) -> None:
        await asyncio.wait({ahead})
        leaving = asyncio.ensure_future(self._x.disconnected())
        try:
            while not (await asyncio.wait({leaving}, timeout=PING_SECONDS))[0]:
                await self._more(ping_comment())
            self._gone = True
        finally:
            leaving.cancel()

    async def _more(self, events: bytes) -> None:
        await self._x.send({"type": "http.response.body", "body": events, "more_body": True})


async def _play(ors: Ors, x: OrsRequest, session: Session, episode: str, call: Call) -> bytes:
    """Run the tool, once per task id, and return its outcome as events."""
    outcome = call.outcome
    if outcome is None:
        try:
            outcome = await ors.host.play(episode, call.name, call.arguments, key=call.task_id)
        except CapacityError as error:
            session.forget(call)  # Nothing ran, and clients retry by themselves after a 429.
            raise refusal_of(error) from None
        except LudusError as error:
            outcome = error
        call.settle(outcome)
    if isinstance(outcome, StepResult):
        return result_events(step_json(call.name, outcome, extended=x.extended))
    if isinstance(outcome, EpisodeNotFound):
        raise HttpError(404, NOT_FOUND, error=outcome)
    if isinstance(outcome, EpisodeEnded):
        reason = EndReason(outcome.data["endReason"])
        if reason in (EndReason.EXPIRED, EndReason.CLOSED, EndReason.SERVER_STOPPED):
            raise HttpError(404, NOT_FOUND, error=outcome)
        if EVENT_OF_REASON[reason] is not Event.FAIL:
            return result_events(finished_json(call.name))
    return _failure(x, outcome)


def _failure(x: OrsRequest, error: LudusError) -> bytes:
    """Return the `error` event; for clients that know the extension, preceded by an event with the typed error."""
    typed = ludus_event(to_wire(error).model_dump_json()) if x.extended else b""
    return typed + error_event(_told(error))


async def _score(ors: Ors, episode: str, candidates: list[Candidate]) -> bytes:
    try:
        rewards = await ors.host.score_candidates(episode, candidates)
    except LudusError as error:
        return error_event(_told(error))
    scores = [
        {"reward": reward.value, "metadata": reward.model_dump(mode="json") if reward.components else None}
        for reward in rewards
    ]
    return result_events(to_json({"scores": scores}).decode())


def _told(error: LudusError) -> str:
    return f"{type(error).__name__}: {error.message}" if isinstance(error, EpisodeFailed) else error.message
