"""Answers with a body in one piece leave in one write, with the bytes that uvicorn would have written."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from worlds import Playground

from ludus.server.serving.serve import LudusServer
from ludus.server.web.http_answers import JOINED_BYTES, WholeAnswers

Serve = Callable[..., Awaitable[LudusServer]]
DEFAULTS = [(b"date", b"Sun, 22 Nov 2026 12:00:00 GMT"), (b"x-content-type-options", b"nosniff")]


class Answered:
    """One request, and what was written in answer, write by write."""

    def __init__(self, method: str = "GET", *, keep_alive: bool = True, whole: bool = True) -> None:
        self.written: list[bytes] = []
        self.closed = 0
        self.complete = 0
        transport: Any = SimpleNamespace(write=self.written.append, close=self._close, is_closing=bool)
        self.cycle = RequestResponseCycle(
            scope={"type": "http", "method": method, "http_version": "1.1"},  # type: ignore[typeddict-item]
            transport=transport, flow=FlowControl(transport), logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"), access_log=False, default_headers=list(DEFAULTS),
            message_event=asyncio.Event(), expect_100_continue=False, keep_alive=keep_alive, on_response=self._end,
        )  # fmt: skip
        self.send: Callable[[Any], Awaitable[None]] = WholeAnswers(self.cycle).send if whole else self.cycle.send

    async def send_all(self, messages: Any) -> None:
        for message in messages:
            await self.send(message)

    def _close(self) -> None:
        self.closed += 1

    def _end(self) -> None:
        self.complete += 1

    @property
    def outcome(self) -> tuple[bytes, int, int, bool, bool]:
        """Everything that must not depend on who writes."""
        return b"".join(self.written), self.closed, self.complete, self.cycle.response_complete, self.cycle.keep_alive


def start(length: int | None, *fields: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    announced = [] if length is None else [(b"content-length", b"%d" % length)]
    return {"type": "http.response.start", "status": status, "headers": [*announced, *fields]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


KEPT = (b"connection", b"keep-alive")
WHOLE = {
    "short": (start(2, KEPT, (b"content-type", b"application/json")), body(b"{}")),
    "empty": (start(0, status=404), body(b"")),
    "at the limit": (start(JOINED_BYTES), body(b"x" * JOINED_BYTES)),
}
LEFT = {
    "stream": (start(None, KEPT), body(b"one", more=True), body(b"two")),
    "parts of a known length": (start(6), body(b"one", more=True), body(b"two")),
    "without a length": (start(None), body(b"all")),
    "closing": (start(2, (b"connection", b"close")), body(b"{}")),
    "large": (start(JOINED_BYTES + 1), body(b"x" * (JOINED_BYTES + 1))),
    "no content": (start(None, status=204), body(b"")),
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("messages", (WHOLE | LEFT).values(), ids=(WHOLE | LEFT).keys())
async def test_the_bytes_are_those_of_uvicorn(messages: Any, method: str, keep_alive: bool) -> None:
    ours, theirs = (Answered(method, keep_alive=keep_alive, whole=whole) for whole in (True, False))
    await ours.send_all(messages)
    await theirs.send_all(messages)
    assert ours.outcome == theirs.outcome
    assert ours.complete == 1


@pytest.mark.parametrize("messages", WHOLE.values(), ids=WHOLE.keys())
async def test_a_whole_answer_is_one_write(messages: Any) -> None:
    answered = Answered()
    await answered.send_all(messages)
    assert len(answered.written) == 1


@pytest.mark.parametrize(
    "messages",
    [
        (start(2, (b"x-note", b"a\r\nset-cookie: b")), body(b"{}")),
        (start(2, (b"x-note", b"a\0b")), body(b"{}")),
        (start(3), body(b"{}")),
        (start(1), body(b"{}")),
        (body(b"{}"), start(2)),
    ],
    ids=["a break in a field", "a null in a field", "too short", "too long", "no head"],
)
async def test_a_broken_answer_is_refused_as_uvicorn_refuses_it(messages: Any) -> None:
    refusals = []
    for whole in (True, False):
        answered = Answered(whole=whole)
        with pytest.raises(RuntimeError) as refusal:
            await answered.send_all(messages)
        refusals.append(str(refusal.value))
        assert b"set-cookie" not in b"".join(answered.written)
    assert refusals[0] == refusals[1]


async def test_nothing_is_written_to_a_peer_that_is_gone() -> None:
    answered = Answered()
    await answered.send(start(2))
    answered.cycle.disconnected = True
    await answered.send(body(b"{}"))
    assert answered.written == []


async def test_an_answer_waits_for_a_peer_that_does_not_read() -> None:
    answered = Answered()
    answered.cycle.flow.pause_writing()
    await answered.send(start(2))
    sending = asyncio.ensure_future(answered.send(body(b"{}")))
    await asyncio.sleep(0)
    assert answered.written == []
    answered.cycle.flow.resume_writing()
    await sending
    assert b"".join(answered.written).endswith(b"\r\n\r\n{}")


async def test_an_application_that_fails_after_a_head_is_answered_with_a_500() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await send(start(2))
        raise ValueError

    answered = Answered()
    answered.cycle.send = answered.send  # type: ignore[assignment, method-assign]
    answered.cycle.logger.disabled = True
    await answered.cycle.run_asgi(fails)
    assert b"".join(answered.written).startswith(b"HTTP/1.1 500 ")


async def test_answers_arrive_over_one_connection_in_order(serve: Serve) -> None:
    server = await serve(Playground)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    requests = (b"GET /health", b"HEAD /health", b"GET /nothing", b"GET /health")
    async with asyncio.timeout(60):
        for request in requests:
            writer.write(b"%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % request)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answers = await reader.read()
    writer.close()
    statuses = re.findall(rb"HTTP/1\.1 (\d+) ", answers)
    assert statuses == [b"200", b"405", b"404", b"200", b"200"]
