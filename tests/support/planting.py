"""Real servers with one fault each: what is planted, how, and which checks must name it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from worlds import Playground

from ludus.conformance import CHECKS, Report
from ludus.server import Environment
from ludus.server.serving.app import LudusApp

Plant = Callable[[LudusApp], ASGIApp | None]
CheckPlanted = Callable[..., Awaitable[Report]]
Change = Callable[[Any], Any]
Changes = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Planted:
    """A fault: how it gets into a server, and the checks (`wire/check`) that must fail for it, and no others."""

    plant: Plant
    caught: frozenset[str]
    tokens: bool = True
    parallel: int = 4
    seconds: float = 20.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: type[Environment[Any]] = Playground
    beside: tuple[type[Environment[Any]], ...] = ()
    """Further environments of the server."""

    @property
    def wires(self) -> tuple[str, ...]:
        """The wires to check."""
        return tuple(sorted({name.split("/")[0] for name in self.caught}))

    @property
    def checks(self) -> frozenset[str] | None:
        """The checks that show the fault; None (all) where one of them evaluates what the others recorded."""
        late = {f"{wire}/{check.name}" for wire, checks in CHECKS.items() for check in checks if check.last}
        return None if late & self.caught else self.caught


def assert_caught(fault: Planted, report: Report) -> None:
    """Assert that the checks which must find a fault failed, that no other did, and that each says why."""
    failures = {f"{verdict.wire}/{verdict.check}": verdict.detail for verdict in report.of("failed", "noted")}
    assert set(failures) == fault.caught, failures
    assert all(failures.values())
    assert not report.passed


class Faults:
    """Faults in the order of their definition."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    @property
    def sampled(self) -> list[Any]:
        """All faults, of which all but the first are in the suite `planted-faults`."""
        first, *others = self.all
        mark = pytest.mark.suite("planted-faults")
        return [first, *(pytest.param(*one.values, id=one.id, marks=mark) for one in others)]

    def caught_by(self, *checks: str, **options: Any) -> Callable[[Plant], Plant]:
        """Add a function that plants a fault; the further options are those of `Planted`."""

        def add(plant: Plant) -> Plant:
            self.all.append(pytest.param(Planted(plant, frozenset(checks), **options), id=plant.__name__))
            return plant

        return add


Handler = Callable[[Any, Any], Awaitable[Any]]


def on_host(app: LudusApp, method: str, wrap: Callable[[Handler], Handler]) -> None:
    """Put something around a method of the host, for every wire."""
    host = app.context.host
    setattr(host, method, wrap(getattr(host, method)))


def on_result(app: LudusApp, method: str, change: Changes) -> None:
    """Change what a method of the host answers: `change(params, result)`."""

    def wrap(handler: Handler) -> Handler:
        async def changed(params: Any, principal: Any) -> Any:
            return change(params, await handler(params, principal))

        return changed

    on_host(app, method, wrap)


def on_params(app: LudusApp, method: str, change: Change) -> None:
    """Change what a method of the host is asked."""

    def wrap(handler: Handler) -> Handler:
        async def changed(params: Any, principal: Any) -> Any:
            return await handler(change(params), principal)

        return changed

    on_host(app, method, wrap)


def as_json(change: Changes) -> Callable[[bytes, bytes], bytes]:
    """A change of JSON bodies: of the answer, given what was asked."""

    def changed(asked: bytes, answer: bytes) -> bytes:
        try:
            request, reply = json.loads(asked or b"null"), json.loads(answer)
        except ValueError:
            return answer
        return json.dumps(change(request, reply)).encode()

    return changed


@dataclass
class Rewriting:
    """ASGI middleware that rewrites HTTP exchanges under some paths."""

    app: ASGIApp
    under: Callable[[str], bool]
    headers: Callable[[dict[bytes, bytes]], dict[bytes, bytes]] = dict
    request: Callable[[bytes], bytes] = bytes
    answer: Callable[[bytes, bytes], bytes] = lambda asked, answer: answer
    answer_headers: Mapping[bytes, bytes] = field(default_factory=dict)
    status: Callable[[int], int] = int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket") or not self.under(scope["path"]):
            await self.app(scope, receive, send)
            return
        scope = {**scope, "headers": list(self.headers(dict(scope["headers"])).items())}
        if scope["type"] == "websocket" or scope["method"] == "OPTIONS" or _huge(scope):
            await self.app(scope, receive, self._head_only(send))
            return
        asked = await _body(receive)
        changed = self.request(asked)
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        messages = iter([{"type": "http.request", "body": changed, "more_body": False}])

        async def replay() -> Message:
            for message in messages:
                return message
            return await receive()

        await self.app(scope, replay, hold)
        start = held[0]
        body = b"".join(message.get("body", b"") for message in held[1:])
        body = self.answer(asked, body)
        kept = [(k, v) for k, v in start["headers"] if k.lower() not in (b"content-length", *self.answer_headers)]
        head = [*kept, *self.answer_headers.items(), (b"content-length", str(len(body)).encode())]
        await send({**start, "status": self.status(start["status"]), "headers": head})
        await send({"type": "http.response.body", "body": body})

    def _head_only(self, send: Send) -> Send:
        async def changing(message: Message) -> None:
            if message["type"].endswith("response.start"):
                headers = [*message["headers"], *self.answer_headers.items()]
                message = {**message, "status": self.status(message["status"]), "headers": headers}
            await send(message)

        return changing


def _huge(scope: Scope) -> bool:
    return int(dict(scope["headers"]).get(b"content-length", b"0")) > 1 << 30


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def frames(
    app: ASGIApp, *, received: Change | None = None, sent: Changes | None = None, scope_of: Change | None = None
) -> ASGIApp:
    """ASGI middleware that rewrites the frames of channels; a received frame that becomes None hangs up."""

    async def rewriting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return

        async def change_received() -> Message:
            message = await receive()
            if received is not None and message.get("text") is not None:
                text = received(message["text"])
                if text is None:
                    await send({"type": "websocket.close", "code": 1007})
                    return {"type": "websocket.disconnect", "code": 1007}
                message = {**message, "text": text}
            return message

        async def change_sent(message: Message) -> None:
            await send(sent(scope, message) if sent is not None else message)

        await app(scope_of(scope) if scope_of is not None else scope, change_received, change_sent)

    return rewriting


def under(*prefixes: str) -> Callable[[str], bool]:
    """Paths that begin with one of some prefixes."""
    return lambda path: path.startswith(prefixes)


def on_ors(path: str) -> bool:
    """Paths of ORS."""
    return not path.startswith(("/mcp", "/play/", "/channel", "/health"))
