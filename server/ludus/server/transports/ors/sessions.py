"""Routes of a session except its calls: from `/create_session` to `/delete_session`."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import to_json

from ludus.protocol.episodes import GetTaskParams, Seed, StartParams
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.server.auth.principal import Principal
from ludus.server.runtime.episode import EpisodeView
from ludus.server.transports.ors.discovery import position
from ludus.server.transports.ors.encoding import extend, messages_json, prompt_json, tools_json
from ludus.server.transports.ors.request import (
    CreateBody,
    HttpError,
    OrsRequest,
    parse_create,
    parse_json,
    parse_secrets_header,
)
from ludus.server.transports.ors.server import SESSION_SCOPES, OrsServer
from ludus.server.transports.ors.session_store import Session, start_key

STARTING_SECONDS: Final = 25.0
"""How long a request of `openreward`'s clients waits for setup before it is answered with 503."""


async def create_session(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /create_session` with a new session id, as events unless the client explicitly accepts JSON."""
    ors.principal(request, *SESSION_SCOPES)
    body = await request.body()
    if body:
        parse_json(body)
    sid = ors.host.ids.session()
    if request.header(b"accept").startswith("application/json"):
        await request.json(to_json({"sid": sid}))
        return
    await request.events(b"event: task_id\r\ndata: %b\r\n\r\nevent: end\r\ndata: \r\n\r\n" % sid.encode())


async def create(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /create`: begin an episode under a session id. Its setup goes on after the answer.

    `ors-sdk` names no environment when it creates a session by split and index; the paths of its later requests do. If
    the server has several environments, such a session starts its episode at the first of those requests.
    """
    principal = ors.principal(request, *SESSION_SCOPES)
    sid = request.header(b"x-session-id")
    if not sid:
        raise HttpError(400, "X-Session-ID header is required")
    body = parse_create(await request.body())
    if body.env_name is not None:
        named = ors.environment(body.env_name)
        if named is None:
            raise ors.unknown_environment(body.env_name)
    else:
        named = ors.named_environment(request)
    if body.toolset_name is not None:
        raise HttpError(400, f"unknown toolset {body.toolset_name!r}: this server lends no toolsets to sessions")
    values = parse_secrets_header(request.header(b"x-secrets")) | (body.secrets or {})
    credentials = request.credentials()
    secrets = {name: value for name, value in values.items() if value.strip() not in credentials}
    seed = _seed(request, body)

    async def plan(environment: str) -> StartParams:
        split, index = await _locate(ors, environment, body, principal)
        if seed is not None and not ors.host.catalog[environment].cls.seedable:
            raise HttpError(400, f"environment {environment!r} does not take seeds; leave X-Seed out")
        return StartParams(
            environment=environment, split=split, index=index, seed=seed, secrets=secrets, key=start_key(sid, key)
        )

    key = request.header(b"idempotency-key")
    if named:
        ors.sessions.open(principal, sid, await plan(named), key)
    else:
        ors.sessions.open_undecided(principal, sid, plan, key)
    await request.json(to_json({"sid": sid}))


async def prompt(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /{env}/prompt`."""
    _, view = await view_of(ors, request)
    await request.json(prompt_json(view.prompt))


async def messages(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /{env}/messages`: the prompt with its roles."""
    _, view = await view_of(ors, request)
    await request.json(messages_json(view.prompt))


async def task_tools(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /{env}/task_tools`: the tools of this session's task."""
    _, view = await view_of(ors, request)
    published = ors.host.catalog[view.environment]
    answer = tools_json(view.tools, gradable=published.gradable, group_scoring=published.group_scoring)
    if request.extended:
        started = {
            "task": view.row.model_dump(mode="json"),
            "seed": view.seed,
            "limits": ors.limits.of_episode(published.cls.limits).model_dump(mode="json"),
        }
        answer = extend(answer, to_json(started).decode())
    await request.json(answer)


async def ping(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /ping`: keep a session alive, without waiting for its setup."""
    principal = ors.principal(request, *SESSION_SCOPES)
    sid = request.header(b"x-session-id")
    session = ors.sessions.find(principal, sid)
    if session.episode is not None:
        ors.sessions.view(principal, sid, session)
    await request.json(b'{"status":"ok"}')


async def delete(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /delete`: end a session. An unknown session is not an error."""
    principal = ors.principal(request, *SESSION_SCOPES)
    sid = request.header(b"x-session-id")
    if not sid:
        raise HttpError(400, "X-Session-ID header is required")
    await ors.sessions.delete(principal, sid)
    await request.json(to_json({"sid": sid}))


async def ready(ors: OrsServer, request: OrsRequest, session: Session, principal: Principal) -> str:
    """Return the id of a session's episode once its setup is done.

    `openreward` gives up on an answer that takes long but retries after a 503; `ors-sdk` does the opposite.

    Raises:
        HttpError: 400, the path is another environment's; 410, the session was deleted; 503, for `openreward` when
            setup takes long.
        LudusError: setup failed.
    """
    if session.environment is None:
        ors.sessions.decide(session, principal, ors.default_environment(request))
    elif request.environment not in ("", session.environment):
        raise HttpError(
            400,
            f"this session plays {session.environment!r}, and the path is of {request.environment!r}: use the paths "
            f"under /{session.environment}/, or create another session with `env_name` {request.environment!r}",
        )
    if session.episode is not None:
        return session.episode
    wait_seconds = STARTING_SECONDS if request.header(b"user-agent").startswith("openreward") else None
    try:
        return await ors.sessions.ready(session, principal, wait_seconds)
    except TimeoutError:
        headers = {"X-Backend-State": "starting", "Retry-After": "2"}
        raise HttpError(503, "Environment still starting.", headers) from None


async def view_of(ors: OrsServer, request: OrsRequest) -> tuple[Session, EpisodeView]:
    """Return the session of a request and the view of its episode."""
    principal = ors.principal(request, *SESSION_SCOPES)
    sid = request.header(b"x-session-id")
    session = ors.sessions.find(principal, sid)
    await ready(ors, request, session, principal)
    return session, ors.sessions.view(principal, sid, session)


async def _locate(ors: OrsServer, environment: str, body: CreateBody, principal: Principal) -> tuple[str, int]:
    """Return the split and index of the requested task. It is looked up, so clients need not send private fields.

    Raises:
        HttpError: 400, `task_spec` is not one that this server sent.
        LudusError: there is no such split or task, or the principal may not use it.
    """
    task: dict[str, Any]
    if body.task_spec is not None:
        split, name = body.task_spec.get("split"), body.task_spec.get("id")
        if not (isinstance(split, str) and split and isinstance(name, str) and name):
            raise HttpError(400, "task_spec must hold the `id` and the `split` of a task that /tasks or /task gave")
        task = {"task": name}
    else:
        assert body.split is not None
        assert body.index is not None
        split = body.split
        task = {"index": await position(ors, environment, split, body.index, principal)}
    result = await ors.host.get_task(GetTaskParams(environment=environment, split=split, **task), principal)
    return split, result.task.index


def _seed(request: OrsRequest, body: CreateBody) -> Seed | None:
    text = request.header(b"x-seed")
    if not text:
        return body.seed
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_INTEGER):
        raise HttpError(400, f"X-Seed must be a whole number from 0 to {LARGEST_INTEGER}")
    return int(text)
