"""`/call` and `/score_group`: work that is answered with events.

How this works:

1. A request resumes the call of its `task_id`. Without one, `_find_call` decides which call it means: the call of its
   `Idempotency-Key`, an earlier equal call whose reply was lost (`repeats`), or a new one.
2. `_run_call` lets the host run the call, once per task id, and `_events_of` makes events of its outcome.
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
from ludus.protocol.errors import (
    CapacityError,
    EpisodeEnded,
    EpisodeFailed,
    EpisodeNotFound,
    LudusError,
    ShuttingDown,
    to_wire,
)
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.server.durability.journal import check_writable
from ludus.server.transports.ors.encoding import (
    candidate,
    error_event,
    finished_json,
    ludus_event,
    ping_comment,
    result_events,
    step_json,
    task_id_event,
)
from ludus.server.transports.ors.request import (
    NOT_FOUND,
    Disconnected,
    HttpError,
    OrsRequest,
    ScoreGroupBody,
    http_error,
    parse_body,
    parse_call,
)
from ludus.server.transports.ors.server import SESSION_SCOPES, OrsServer
from ludus.server.transports.ors.session_store import Call, Session
from ludus.server.transports.ors.sessions import ready, view_of
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


async def call(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/call`: run a tool, or resume a call."""
    principal = ors.principal(request, *SESSION_SCOPES)
    session = ors.sessions.find(principal, request.header(b"x-session-id"))
    body = await request.body()
    name, arguments, task_id = parse_call(body)
    if (episode := session.episode) is None or request.environment not in ("", session.environment):
        episode = await ready(ors, request, session, principal)
    async with Stream(request) as stream:
        known_call: Call | None
        if task_id is None:
            known_call = await _find_call(session, stream, name, arguments, _content(b"call", body))
        elif (known_call := session.call(task_id) or _call_before(ors, session, episode, task_id)) is not None:
            session.repeats.resumed(task_id, stream.watch())
        else:
            await stream.finish(error_event(UNKNOWN_TASK_ID))
            return
        await stream.send_task_id(known_call.task_id)
        try:
            if known_call.kept:
                outcome = await _kept_outcome(ors, episode, known_call)
            else:
                outcome = known_call.outcome or await _run_call(ors, session, episode, known_call)
            events = _events_of(outcome, known_call.name, extended=request.extended)
        except HttpError as error:
            if not request.started:
                raise
            events = _failure_events(str(error.detail), error.error, extended=request.extended)
        await stream.finish(events)


async def _find_call(session: Session, stream: Stream, name: str, arguments: dict[str, Any], content: bytes) -> Call:
    """Return the call that a request without a task id means: an earlier one that it repeats, or a new one.

    Raises:
        HttpError: 409, the request's key was used for another call.
        Disconnected: the client disconnected while this request waited for the verdict on an earlier equal one.
    """
    key = stream.request.header(b"idempotency-key")
    if key:
        return session.keyed_call(key, name, arguments, content)
    delivery = stream.watch()
    request = session.repeats.record(content, delivery)
    earlier_call: Call | None = None
    if request.before is not None:
        earlier = await session.repeats.repeated(request, retries_slowly=_retries_slowly(stream.request))
        if delivery.verdict is False:
            raise Disconnected
        earlier_call = session.call(earlier) if earlier is not None else None
    if earlier_call is None:
        earlier_call = session.new_call(name, arguments, content)
        request.task_id = earlier_call.task_id
    return earlier_call


def _call_before(ors: OrsServer, session: Session, episode: str, task_id: str) -> Call | None:
    """Return a call that an earlier process accepted, which the episode knows by its task id."""
    if not session.restored:
        return None
    record = (ors.host.store.find(episode).keys or {}).get(task_id)
    return None if record is None else Call(task_id, record.tool or SUBMIT_TOOL, record.arguments, b"")


async def _kept_outcome(ors: OrsServer, episode: str, call: Call) -> StepResult | LudusError:
    """Return the outcome of a call that has run, which the episode keeps under the task id."""
    try:
        running = ors.host.store.find(episode)
        if running.recovering is not None:
            check_writable(ors.host.journal)
            await running.recovered()
    except LudusError as error:
        return error
    record = (running.keys or {}).get(call.task_id)
    return running.ended_error() if record is None or record.outcome is None else record.outcome


async def _run_call(ors: OrsServer, session: Session, episode: str, call: Call) -> StepResult | LudusError:
    """Run the tool of a call, and return its outcome. The host runs each task id once.

    Raises:
        HttpError: 429, the server is full; the call is dropped.
    """
    outcome: StepResult | LudusError
    try:
        outcome = await ors.host.play(episode, call.name, call.arguments, key=call.task_id)
    except CapacityError as error:
        session.forget(call)  # Nothing ran, and clients retry by themselves after a 429.
        raise http_error(error) from None
    except ShuttingDown as error:
        session.forget(call)  # Nothing ran, or it is undone; the episode knows one that has ended it by its key.
        return error
    except LudusError as error:
        outcome = error
    # The host answers a malformed answer without a record.
    call.kept = isinstance(outcome, StepResult) and not (call.name == SUBMIT_TOOL and outcome.error is not None)
    if not call.kept:
        call.outcome = outcome
    call.arguments = {}
    return outcome


def _events_of(outcome: StepResult | LudusError, tool: str, *, extended: bool) -> bytes:
    """Return the outcome of a call as events.

    Raises:
        HttpError: 404, the server does not hold the episode any more.
    """
    if isinstance(outcome, StepResult):
        return result_events(step_json(tool, outcome, extended=extended))
    if isinstance(outcome, EpisodeNotFound):
        raise HttpError(404, NOT_FOUND, error=outcome)
    if isinstance(outcome, EpisodeEnded):
        reason = EndReason(outcome.data["endReason"])
        if reason in (EndReason.EXPIRED, EndReason.CLOSED, EndReason.SERVER_STOPPED):
            raise HttpError(404, NOT_FOUND, error=outcome)
        if EVENT_OF_REASON[reason] is not Event.FAIL:
            return result_events(finished_json(tool))
    return _failure_events(_message_of(outcome), outcome, extended=extended)


def _failure_events(message: str, error: LudusError | None, *, extended: bool) -> bytes:
    """Return the last events of a stream without a result; the typed error is for clients that know the extension."""
    typed = ludus_event(to_wire(error).model_dump_json()) if extended and error is not None else b""
    return typed + error_event(message)


async def score_group(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/score_group`: score several candidates for the session's task."""
    session, view = await view_of(ors, request)
    raw = await request.body()
    body = parse_body(ScoreGroupBody, raw)
    if not ors.host.catalog[view.environment].group_scoring:
        raise HttpError(404, f"Environment {view.environment!r} does not implement score_group")
    scores = session.scores = session.scores or {}
    async with Stream(request) as stream:
        delivery = stream.watch()
        task_id = body.task_id
        if task_id is None:
            sent_request = session.repeats.record(_content(b"score", raw), delivery)
            task_id = await session.repeats.repeated(sent_request, retries_slowly=_retries_slowly(request))
            if task_id not in scores:
                task_id = sent_request.task_id = _begin_scoring(ors, session, scores, view.id, body)
        elif task_id in scores:
            session.repeats.resumed(task_id, delivery)
        else:
            await stream.finish(error_event(UNKNOWN_TASK_ID))
            return
        await stream.send_task_id(task_id)
        scoring = scores[task_id]
        await asyncio.wait({scoring})
        scored = scoring.result()
        if isinstance(scored, LudusError):
            scored = _failure_events(_message_of(scored), scored, extended=request.extended)
        await stream.finish(scored)


def _begin_scoring(
    ors: OrsServer, session: Session, scores: dict[str, asyncio.Task[bytes | LudusError]], episode: str,
    body: ScoreGroupBody,
) -> str:  # fmt: skip
    try:
        candidates = [candidate(messages) for messages in body.candidates]
    except ValueError as error:
        raise HttpError(400, f"a candidate holds what cannot be read: {error}") from None
    task_id = session.new_task_id()
    if len(scores) >= SCORES_KEPT:
        del scores[next(iter(scores))]
    scores[task_id] = asyncio.get_running_loop().create_task(_score(ors, episode, candidates))
    return task_id


async def _score(ors: OrsServer, episode: str, candidates: list[Candidate]) -> bytes | LudusError:
    """Return the scores as events, or the error because of which there are none."""
    try:
        rewards = await ors.host.group_scores.score_candidates(episode, candidates)
    except LudusError as error:
        return error
    scores = [
        {"reward": reward.value, "metadata": reward.model_dump(mode="json") if reward.components else None}
        for reward in rewards
    ]
    return result_events(to_json({"scores": scores}).decode())


def _message_of(error: LudusError) -> str:
    return f"{type(error).__name__}: {error.message}" if isinstance(error, EpisodeFailed) else error.message


def _retries_slowly(request: OrsRequest) -> bool:
    """Return whether a request's client is known to pause before it sends a request again."""
    return request.header(b"user-agent").startswith(("ors-sdk/", "openreward-sdk/"))


def _content(route: bytes, body: bytes) -> bytes:
    """Return the value by which requests are compared. A client that repeats a request sends the same bytes."""
    if len(body) <= SMALL_BODY:
        return route + b" " + body
    return route + b"#" + blake2b(body, digest_size=32).digest()


class Stream:
    """The events of one reply, sent whole or begun early. Leaving it (`async with`) ends all its background work.

    Attributes:
        request: the request that is answered.
    """

    __slots__ = ("_ahead", "_delivery", "_gone", "_task", "_task_id", "_task_id_sent", "_timer", "request")

    def __init__(self, request: OrsRequest) -> None:
        self.request = request
        self._delivery: Delivery | None = None
        """The delivery of the reply, if the session watches it."""
        self._task_id = ""
        self._task_id_sent = False
        self._gone = False
        """Whether the client has disconnected."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        """Sends comments, and notices that the client disconnects."""
        self._ahead: asyncio.Task[None] | None = None
        """Sends the head, once the reply has begun early."""

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
        if self._delivery is not None and not self._delivery.was_sent:
            self._delivery.settle(delivered=False)

    def watch(self) -> Delivery:
        """Watch the delivery of this reply, and return it."""
        self._delivery = watch(self.request.scope)
        return self._delivery

    async def send_task_id(self, task_id: str) -> None:
        """Set the task id, and send it now if the reply has begun early."""
        self._task_id = task_id
        if self._ahead is not None:
            await self._ahead
            await self._more(self._first_events())

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
            await self.request.send({"type": "http.response.body", "body": events})
        else:
            await self.request.events(events)
        if self._delivery is not None:
            self._delivery.sent()

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
        self.request.started = True
        self._timer = None
        self._ahead = loop.create_task(self.request.begin_events(self._first_events()))
        self._task = loop.create_task(self._keep_open(self._ahead))

    def _first_events(self) -> bytes:
        """Return the task id event if it is known and not sent yet, else a comment that keeps the connection alive."""
        if self._task_id_sent or not self._task_id:
            return ping_comment()
        self._task_id_sent = True
        return task_id_event(self._task_id)

    async def _keep_open(self, ahead: asyncio.Task[None]) -> None:
        await asyncio.wait({ahead})
        leaving = asyncio.ensure_future(self.request.disconnected())
        try:
            while not (await asyncio.wait({leaving}, timeout=PING_SECONDS))[0]:
                await self._more(ping_comment())
            self._gone = True
        finally:
            leaving.cancel()

    async def _more(self, events: bytes) -> None:
        await self.request.send({"type": "http.response.body", "body": events, "more_body": True})
