"""`/call` and `/score_group`: work that answers with events.

The way of a call: body → task id → the host, which runs each task id once → result events. Most tools answer at once,
and then the whole reply leaves in one piece. When one does not within `EARLY_SECONDS`, the task id is sent ahead, so
that a client whose connection breaks can take the call up again, and comments follow until the result is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pydantic_core import to_json

from ludus.protocol.episodes import Candidate
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed, EpisodeNotFound, LudusError, to_wire
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.server.wires.ors import bodies
from ludus.server.wires.ors.blocks import candidate, finished_json, step_json
from ludus.server.wires.ors.exchange import Exchange, Refusal
from ludus.server.wires.ors.frames import error_event, ludus_event, ping_comment, result_events, task_id_event
from ludus.server.wires.ors.lifecycle import ready, view_of
from ludus.server.wires.ors.sessions import NOT_FOUND
from ludus.server.wires.ors.wire import SESSION_SCOPES, Ors

EARLY_SECONDS: Final = 0.02
"""After which the head and the task id are sent ahead of the result."""

PING_SECONDS: Final = 8.0
"""Between comments. Clients give up after 30 s of silence; the published servers send one every 10 s."""

SCORES_KEPT: Final = 8
"""The latest group scorings of a session that can be taken up again."""

UNKNOWN_TASK_ID: Final = "unknown task_id"


async def call(ors: Ors, x: Exchange, environment: str) -> None:
    """`POST /{env}/call`: run a tool, or take up a call by its task id."""
    principal = ors.principal(x, *SESSION_SCOPES)
    session = ors.sessions.find(principal, x.header(b"x-session-id"))
    name, arguments, task_id = bodies.read_call(await x.body(ors.limits.body_bytes))
    episode = session.episode or await ready(ors, x, session, principal)
    if task_id is not None:
        known = session.call(task_id)
        if known is None:
            await x.events(error_event(UNKNOWN_TASK_ID))
            return
        name, arguments = known
    else:
        task_id = session.begin_call(name, arguments, x.header(b"idempotency-key"))
    stream = Stream(x, task_id, session.lose)
    stream.open_late()
    try:
        events = await _play(ors, x, episode, name, arguments, task_id)
    except Refusal as refusal:
        if not x.started:
            raise
        events = error_event(str(refusal.detail))
    finally:
        await stream.stop()
    await stream.finish(events)


async def score_group(ors: Ors, x: Exchange, environment: str) -> None:
    """`POST /{env}/score_group`: compare several candidates for the session's task."""
    session, view = await view_of(ors, x)
    body = bodies.read(bodies.ScoreGroupBody, await x.body(ors.limits.body_bytes))
    if not ors.published(view.environment).group_scoring:
        raise Refusal(404, f"Environment {view.environment!r} does not implement score_group")
    scores = session.scores = session.scores or {}
    if body.task_id is not None:
        task_id = body.task_id
        if task_id not in scores:
            await x.events(error_event(UNKNOWN_TASK_ID))
            return
    else:
        try:
            candidates = [candidate(one) for one in body.candidates]
        except ValueError as error:
            raise Refusal(400, f"a candidate holds what cannot be read: {error}") from None
        task_id = session.new_task_id()
        if len(scores) >= SCORES_KEPT:
            del scores[next(iter(scores))]
        scores[task_id] = asyncio.get_running_loop().create_task(_score(ors, view.id, candidates))
    stream = Stream(x, task_id)
    stream.open_late()
    try:
        await asyncio.wait({scores[task_id]})
    finally:
        await stream.stop()
    await stream.finish(scores[task_id].result())


class Stream:
    """The events of one reply, whole or begun early."""

    __slots__ = ("_ahead", "_gone", "_on_leave", "_task", "_task_id", "_timer", "_x")

    def __init__(self, x: Exchange, task_id: str, on_leave: Callable[[str], None] | None = None) -> None:
        self._x = x
        self._task_id = task_id
        self._on_leave = on_leave
        """Told the task id when the client leaves before the reply is complete."""
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[None] | None = None

    def open_late(self) -> None:
        """Send ahead what is known, unless the reply is finished within `EARLY_SECONDS`."""
        self._timer = asyncio.get_running_loop().call_later(EARLY_SECONDS, self._open)

    async def stop(self) -> None:
        """Send nothing more but `finish`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def finish(self, events: bytes) -> None:
        """Send the last events, if anybody is there."""
        if self._gone:
            return
        if self._ahead is not None:
            await self._ahead
            await self._x.send({"type": "http.response.body", "body": events})
        else:
            await self._x.events(task_id_event(self._task_id) + events)

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        self._x.started = True
        self._ahead = loop.create_task(self._x.begin_events(task_id_event(self._task_id)))
        self._task = loop.create_task(self._keep_open(self._ahead))

    async def _keep_open(self, ahead: asyncio.Task[None]) -> None:
        await asyncio.wait({ahead})
        leaving = asyncio.ensure_future(self._x.disconnected())
        try:
            while not (await asyncio.wait({leaving}, timeout=PING_SECONDS))[0]:
                await self._x.send({"type": "http.response.body", "body": ping_comment(), "more_body": True})
            self._gone = True
            if self._on_leave is not None:
                self._on_leave(self._task_id)
        finally:
            leaving.cancel()


async def _play(ors: Ors, x: Exchange, episode: str, name: str, arguments: dict[str, Any], task_id: str) -> bytes:
    """Run the tool, once per task id, and put what came of it into events."""
    try:
        result = await ors.host.play(episode, name, arguments, key=task_id)
    except EpisodeEnded as error:
        reason = EndReason(error.data["endReason"])
        if reason in (EndReason.EXPIRED, EndReason.CLOSED, EndReason.SERVER_STOPPED):
            raise Refusal(404, NOT_FOUND, error=error) from None
        if EVENT_OF_REASON[reason] is Event.FAIL:
            return _failure(x, error)
        return result_events(finished_json(name))
    except EpisodeNotFound as error:
        raise Refusal(404, NOT_FOUND, error=error) from None
    except LudusError as error:
        return _failure(x, error)
    return result_events(step_json(name, result, extended=x.extended))


def _failure(x: Exchange, error: LudusError) -> bytes:
    """The `error` event; for our own clients, the typed error in an event before it."""
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
