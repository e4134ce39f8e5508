"""The transport of the Open Reward Standard (ORS), for servers of `ors-sdk`, of `openreward` and of Ludus.

ORS has sessions and calls. It does not number steps, sends rewards only with each reply, and reports no end reason. The
client therefore keeps itself what follows exactly from the replies: step numbers, the reward log, groups as several
sessions of one task, `max_steps` and allowed tools. The rest (forks, outcomes, and seeds on third-party servers) raises
`Unsupported`.

If the client sends the extension's header, a Ludus server adds what ORS lacks under the key `ludus` of its answers.
Such a server also sends seeds, components and end reasons, and runs a call that is sent again under its key only once.
"""

from __future__ import annotations

import asyncio
import base64
import math
import random
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import to_json

from ludus.client.transports import _ors_sessions as kept
from ludus.client.transports._ors_http import OrsHttp, Refused, error_from, json_of
from ludus.client.transports._ors_server import ENDLESS, Kind, OrsServer
from ludus.client.transports._reasons import doing
from ludus.client.transports.base import WireCapabilities, require_loop
from ludus.protocol import episodes as e
from ludus.protocol import errors
from ludus.protocol import methods as m
from ludus.protocol.content import Message
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.model import WireModel
from ludus.protocol.modules import Module
from ludus.protocol.rewards import Reward

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)
K = TypeVar("K")
Handler = Callable[[Any], Awaitable[WireModel]]

PEER_IDLE_SECONDS: Final = 40.0
"""The idle limit assumed for servers that do not report one. It gives a ping every 10 s, as their own clients send."""

CREATIONS: Final = 4
"""How often a session is created that its server forgets before its episode has started."""

_KEPT: Final = 4096
"""The most results by key, closed episodes and groups to keep, for the answers to repeated requests."""


class OrsWire:
    """The wire of `connect(wire="ors")`.

    Args:
        url: the server's address.
        token: the trainer token, or the API key of a third-party server.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.
        connections: the most connections, and so the most requests, at the same time.
        patience_seconds: seconds that an HTTP request waits while the server refuses it for one of its limits.
    """

    name = "ors"

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float | None = 300.0,
        reconnect_seconds: float = 30.0,
        connections: int = 256,
        patience_seconds: float = 30.0,
    ) -> None:
        self._http = OrsHttp(url.rstrip("/"), token, reconnect_seconds, connections, patience_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timeout = timeout
        self._server = OrsServer(self._http)
        self._sessions: dict[str, kept.OrsSession] = {}
        self._closed: OrderedDict[str, kept.OrsSession] = OrderedDict()
        self._groups: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._outcomes: dict[str, OrderedDict[tuple[str, str], asyncio.Task[WireModel]]] = {}
        """What each key led to, by episode ("" for requests of none), then by handler and key."""
        self._handlers: Mapping[str, Handler] = {
            m.LIST_ENVIRONMENTS.name: self._server.list_environments,
            m.LIST_SPLITS.name: self._server.list_splits,
            m.LIST_TASKS.name: self._server.list_tasks,
            m.GET_TASK.name: self._server.get_task,
            m.SAMPLE_TASKS.name: self._server.sample_tasks,
            m.START.name: self._once(self._start),
            m.STEP.name: self._once(self._step),
            m.GRADE.name: self._once(self._grade),
            m.REWARDS.name: self._rewards,
            m.GET_EPISODE.name: self._get_episode,
            m.CLOSE.name: self._close_episode,
            m.SCORE_GROUP.name: self._once(self._score_group),
        }

    @property
    def capabilities(self) -> WireCapabilities:
        """The features of this wire. Only with Ludus servers does a repeated request run at most once."""
        exactly_once = self._server.kind is Kind.LUDUS
        return WireCapabilities(
            frozenset(self._handlers), exactly_once=exactly_once, joined_groups=False, matches=False
        )

    async def request(self, method: m.Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        handler = self._handlers.get(method.name)
        if handler is None:
            raise errors.Unsupported(
                f"{doing(method.name)} is not possible over ORS; use the channel or MCP", method=method.name
            )
        self._loop = self._loop or asyncio.get_running_loop()
        require_loop(self._loop, self._http.url)
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if seconds in (None, math.inf) else seconds):
                return cast(R, await handler(params))
        except TimeoutError:
            raise errors.DeadlineExceeded(f"{doing(method.name)}: no answer in time", method=method.name) from None
        except (ValidationError, KeyError, TypeError) as problem:
            raise errors.ProtocolViolation(f"{doing(method.name)}: the answer is malformed: {problem!r}") from None

    async def modules(self) -> frozenset[Module] | None:
        """Return None: ORS has no modules, and this wire itself refuses what ORS cannot carry."""
        return None

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        waiting = [task for tasks in self._outcomes.values() for task in tasks.values() if not task.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._http.close()

    # ── episodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, params: e.StartParams) -> e.StartResult:
        kind = await self._server.probe()
        seed = await self._check_start(params, kind)
        index = params.index
        if params.task is not None:
            index = await self._server.index_of(params.environment, params.split, params.task)
        elif index is None:
            count = await self._server.count(params.environment, params.split) or ENDLESS
            index = random.Random(seed if seed is not None else secrets.randbits(63)).randrange(count)
        group = "g_" + secrets.token_hex(8)
        opening = [self._open(params, group, index, seed, kind) for _ in range(params.count)]
        results = await asyncio.gather(*opening, return_exceptions=True)
        started = [result for result in results if isinstance(result, e.StartedEpisode)]
        failed = next((result for result in results if isinstance(result, BaseException)), None)
        if failed is not None:
            await asyncio.gather(*(self._delete(opened.episode) for opened in started), return_exceptions=True)
            raise failed
        self._groups[group] = tuple(opened.episode for opened in started)
        _trim(self._groups)
        return e.StartResult(group=group, episodes=tuple(started))

    async def _check_start(self, params: e.StartParams, kind: Kind) -> int | None:
        """Check the limits and the seed, and return the seed to send; None for servers that take none.

        Raises:
            Unsupported: the server cannot take one of the limits, or the seed.
        """
        limits = params.limits.model_dump(exclude_none=True, by_alias=False) if params.limits is not None else {}
        if set(limits) - {"max_steps"}:
            raise errors.Unsupported(f"ORS carries no limits but max_steps; leave out {', '.join(limits)}")
        if kind is not Kind.LUDUS:
            if params.seed is not None:
                raise errors.Unsupported("this ORS server takes no seeds; leave the seed out")
            return None
        seedable = (await self._server.info(params.environment)).seedable
        if params.seed is not None and not seedable:
            raise errors.Unsupported(f"environment {params.environment!r} cannot be seeded; leave the seed out")
        return params.seed if params.seed is not None or not seedable else secrets.randbits(53)

    async def _open(
        self, params: e.StartParams, group: str, index: int, seed: int | None, kind: Kind
    ) -> e.StartedEpisode:
        sid = _sid_of(await self._server.json("POST", "/create_session", headers={"Accept": "text/event-stream"}))
        await self._create(sid, params, index, seed, kind)
        try:
            row, tools, prompt = await self._begun(sid, params, index, seed, kind)
        except errors.LudusError:
            await self._delete(sid)
            raise
        facts = tools.get("ludus") or {}
        limits = e.EpisodeLimits.model_validate(facts.get("limits") or {"idle_seconds": PEER_IDLE_SECONDS})
        if params.limits is not None and params.limits.max_steps is not None:
            limits = limits.model_copy(
                update={"max_steps": min(params.limits.max_steps, limits.max_steps or params.limits.max_steps)}
            )
        terminal = tools.get("terminal_tool")
        specs = [kept.spec_of(tool) for tool in tools["tools"]]
        if kind is Kind.LUDUS:
            specs = [spec for spec in specs if spec.name != SUBMIT_TOOL]
        if params.tools is not None:
            specs = self._restrict(specs, params.tools)
        self._sessions[sid] = kept.OrsSession(
            sid=sid,
            group=group,
            environment=params.environment,
            row=row,
            seed=facts.get("seed", 0),
            terminal=(terminal["name"], terminal["arg"]) if terminal else None,
            allowed=frozenset(params.tools) if params.tools is not None else None,
            max_steps=params.limits.max_steps if params.limits is not None else None,
        )
        return e.StartedEpisode(
            episode=sid,
            task=row,
            seed=facts.get("seed", 0),
            prompt=prompt,
            tools=tuple(specs),
            gradable=terminal is not None,
            limits=limits,
        )

    def _restrict(self, specs: list[e.ToolSpec], allowed: tuple[str, ...]) -> list[e.ToolSpec]:
        unknown = set(allowed) - {spec.name for spec in specs}
        if unknown:
            raise errors.InvalidParams(f"`tools` names {', '.join(sorted(unknown))}, which this task does not have")
        return [spec for spec in specs if spec.name in allowed]

    async def _create(self, sid: str, params: e.StartParams, index: int, seed: int | None, kind: Kind) -> None:
        """Begin a session. A `/create` that is sent again after a lost answer is recognized."""
        headers = {"X-Session-ID": sid, "Idempotency-Key": f"{params.key}/{sid}"}
        body: dict[str, Any] = {"env_name": params.environment, "split": params.split, "index": index}
        if seed is not None:
            headers["X-Seed"] = str(seed)
        if params.secrets and kind is Kind.ORS_SDK:
            body["secrets"] = params.secrets
        elif params.secrets:
            wrapped = {name: {"value": value} for name, value in params.secrets.items()}
            headers["X-Secrets"] = base64.b64encode(to_json(wrapped)).decode()
        try:
            await self._http.json("POST", "/create", body, headers)
        except Refused as refused:
            # The id is new, so an existing session with it comes from an earlier try of this request.
            if refused.detail != "Session already exists":
                raise error_from(refused, environment=params.environment) from None

    async def _begun(
        self, sid: str, params: e.StartParams, index: int, seed: int | None, kind: Kind
    ) -> tuple[e.TaskRow, Mapping[str, Any], tuple[Message, ...]]:
        """Return what `_look` does. A Ludus server that forgot the session is asked for it again under the same key.

        It forgets a session if it ends after it has answered `/create` and before the episode has started.
        """
        for _ in range(CREATIONS - 1):
            try:
                return await self._look(params, sid, index, kind)
            except errors.EpisodeNotFound:
                if kind is not Kind.LUDUS:
                    raise
                await self._create(sid, params, index, seed, kind)
        return await self._look(params, sid, index, kind)

    async def _look(
        self, params: e.StartParams, sid: str, index: int, kind: Kind
    ) -> tuple[e.TaskRow, Mapping[str, Any], tuple[Message, ...]]:
        """Return the task, the tools and the prompt of a session, once its setup is done."""
        path = f"/{params.environment}"
        try:
            tools = await self._server.json("GET", f"{path}/task_tools", sid=sid)
        except errors.EpisodeNotFound:
            tools = await self._server.json("GET", f"{path}/tools", environment=params.environment)
        if kind is Kind.ORS_SDK:
            prompt = kept.prompt_of(await self._server.json("GET", f"{path}/prompt", sid=sid))
        else:
            try:
                prompt = kept.messages_of(await self._server.json("GET", f"{path}/messages", sid=sid))
            except errors.EpisodeNotFound:
                prompt = kept.prompt_of(await self._server.json("GET", f"{path}/prompt", sid=sid))
        if "ludus" in tools:
            return e.TaskRow.model_validate(tools["ludus"]["task"]), tools, prompt
        return await self._server.row(params.environment, params.split, index), tools, prompt

    async def _step(self, params: e.StepParams) -> e.StepResult:
        session = self._session(params.episode)
        session.check_running()
        if params.step != session.steps + 1:
            raise errors.StepConflict(
                f"episode {session.sid} expects step {session.steps + 1}, not {params.step}",
                episode=session.sid,
                expected=session.steps + 1,
            )
        if session.allowed is not None and params.tool not in session.allowed:
            session.steps = params.step
            return kept.unknown_tool(params.step, params.tool, session.allowed)
        result = await self._call(session, params.step, params.tool, params.arguments, params.key)
        session.steps = params.step
        return result

    async def _call(
        self, session: kept.OrsSession, number: int, tool: str, arguments: Mapping[str, Any], key: str, *,
        grading: bool = False,
    ) -> e.StepResult:  # fmt: skip
        headers = {"X-Session-ID": session.sid, "Idempotency-Key": key}
        is_ludus = self._server.kind is Kind.LUDUS
        try:
            reply = await self._http.call(
                f"/{session.environment}/call", {"name": tool, "input": arguments}, headers, repeatable=is_ludus
            )
        except Refused as refused:
            raise self._gone(session, error_from(refused, episode=session.sid)) from None
        if reply.end is None:
            raise self._gone(session, session.failure_in(reply, tool))
        return session.settle(number, tool, reply.end, grading=grading)

    async def _grade(self, params: e.GradeParams) -> e.GradeResult:
        """Submit an answer through the terminal tool; without such a tool, the episode only ends."""
        session = self._session(params.episode)
        session.check_running()
        reward: Reward | None = None
        if session.terminal is not None:
            tool, argument = session.terminal
            result = await self._call(session, session.steps, tool, {argument: params.answer}, params.key, grading=True)
            if result.error is not None:
                raise errors.InvalidParams(f"the answer was not accepted: {result.error.message}")
            reward = result.reward
        else:
            await self._delete(session.sid)
            session.end(EndReason.SUBMITTED)
        return e.GradeResult(reward=reward, info=session.info())

    async def _rewards(self, params: e.RewardsParams) -> e.RewardsResult:
        return self._session(params.episode).rewards(params.after)

    async def _get_episode(self, params: e.GetEpisodeParams) -> e.GetEpisodeResult:
        session = self._session(params.episode)
        if session.end_reason is None:
            try:
                await self._server.json("POST", "/ping", sid=session.sid)
            except errors.EpisodeNotFound as error:
                raise self._gone(session, error) from None
        return e.GetEpisodeResult(info=session.info())

    async def _close_episode(self, params: e.CloseParams) -> e.CloseResult:
        session = self._session(params.episode)
        if params.episode in self._sessions:
            await self._delete(session.sid)
            session.end(EndReason.CLOSED)
            self._archive(session)
        return e.CloseResult(info=session.info())

    async def _delete(self, sid: str) -> None:
        await self._server.json("POST", "/delete", sid=sid)
        await self._server.json("POST", "/delete_session", sid=sid)

    async def _score_group(self, params: e.ScoreGroupParams) -> e.ScoreGroupResult:
        members = self._groups.get(params.group, ())
        if not params.candidates or not set(params.candidates) <= set(members):
            raise errors.GroupNotFound(f"there is no group {params.group!r} with these episodes", group=params.group)
        open_one = next((sid for sid in members if sid in self._sessions), None)
        if open_one is None:
            raise errors.GroupNotFound("ORS scores groups while one of their episodes is open", group=params.group)
        session = self._session(open_one)
        body = {
            "candidates": [
                {
                    "messages": [
                        {"role": message.role, "blocks": kept.blocks_of(message), "detail": None}
                        for message in candidate.messages
                    ],
                    "metadata": candidate.metadata,
                }
                for candidate in params.candidates.values()
            ]
        }
        path = f"/{session.environment}/score_group"
        try:
            reply = await self._http.call(path, body, {"X-Session-ID": session.sid}, repeatable=True)
        except Refused as refused:
            if refused.status == 404 and "score_group" in str(refused.detail) or refused.detail == "Not Found":
                raise errors.Unsupported(f"environment {session.environment!r} does not score groups") from None
            raise error_from(refused, episode=session.sid) from None
        return kept.scores_of(reply, params.candidates)

    # ── shared ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _once(self, handler: Callable[[Any], Coroutine[Any, Any, WireModel]]) -> Handler:
        """Return a handler that runs once per key, in a task that goes on if the caller is canceled.

        After a transport error it may run again: a Ludus server knows its key, and on other servers an uncertain step
        is an error. It may also run again after a refusal, for a limit or by a server that stops, which did nothing.
        """

        async def once(params: Any) -> WireModel:
            key = (handler.__name__, params.key)
            outcomes = self._outcomes.setdefault(getattr(params, "episode", ""), OrderedDict())
            task = outcomes.get(key)
            if task is None:
                task = asyncio.ensure_future(handler(params))
                outcomes[key] = task
                _trim(outcomes)
            await asyncio.wait([task])
            if task.cancelled():
                raise errors.ConnectionFailed("this client is closed")
            if isinstance(task.exception(), errors.TransportError | errors.CapacityError | errors.ShuttingDown):
                outcomes.pop(key, None)
            return task.result()

        return once

    def _session(self, episode: str) -> kept.OrsSession:
        session = self._sessions.get(episode) or self._closed.get(episode)
        if session is None:
            raise errors.EpisodeNotFound(f"there is no episode {episode[:64]!r} on this wire", episode=episode[:64])
        return session

    def _gone(self, session: kept.OrsSession, error: errors.LudusError) -> errors.LudusError:
        """Update the state of a session from an error, and return the error."""
        if isinstance(error, errors.EpisodeNotFound):
            self._archive(session)
        return session.failed(error)

    def _archive(self, session: kept.OrsSession) -> None:
        self._sessions.pop(session.sid, None)
        self._closed[session.sid] = session
        for sid in _trim(self._closed):
            self._outcomes.pop(sid, None)


def _sid_of(opened: Mapping[str, Any]) -> str:
    """Return the session id in the answer of `/create_session`, which is JSON or events.

    In events it is in the `end` event, or else the `task_id`.
    """
    if "sid" in opened:
        return str(opened["sid"])
    end = opened.get("end")
    if end:
        return str(json_of(end)["sid"])
    if "error" in opened:
        raise errors.InternalError(f"the server opened no session: {opened['error']}")
    return str(opened["task_id"])


def _trim(table: OrderedDict[K, Any]) -> list[K]:
    """Remove the oldest entries beyond the limit, and return their keys."""
    removed = []
    while len(table) > _KEPT:
        removed.append(table.popitem(last=False)[0])
    return removed
