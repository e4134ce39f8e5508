"""A slow answer keeps its connection alive; a quick one is plain JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ludus.server.transports.mcp.keepalive import send_with_keepalive

REPLY = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
EVENTS = [(b"accept", b"application/json, text/event-stream")]
COMMENT = b": working\r\n\r\n"


class Exchange:
    """One request to an application that answers once `comments` comments have gone out."""

    def __init__(self, accept: Any, comments: Any = 0, fault: Any = None) -> None:
        self.scope = {"type": "http", "headers": accept}
        self.sent: list[Any] = []
        self._left = comments
        self._enough = asyncio.Event()
        self._fault = fault
        if not comments:
            self._enough.set()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await asyncio.wait_for(self._enough.wait(), 10)
        if self._fault is not None:
            raise self._fault
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(REPLY)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": REPLY})

    async def receive(self) -> Any:
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self._left -= message.get("body") == COMMENT
        if self._left <= 0:
            self._enough.set()

    async def run(self, patience: Any) -> Any:
        await send_with_keepalive(self.app, self.scope, self.receive, self.send, patience)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something would still send"
        return self.sent


async def test_a_quick_answer_goes_out_untouched() -> None:
    start, body = await Exchange(EVENTS).run(patience=60)
    assert dict(start["headers"])[b"content-type"] == b"application/json"
    assert body["body"] == REPLY


async def test_a_slow_answer_becomes_an_event_stream_with_comments_before_its_only_event() -> None:
    start, *comments, last = await Exchange(EVENTS, comments=3).run(patience=0.01)
    assert start["status"] == 200
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    assert len(comments) >= 3
    assert all(comment["body"] == COMMENT and comment["more_body"] for comment in comments)
    assert last == {
        "type": "http.response.body",
        "body": b"event: message\r\ndata: " + REPLY + b"\r\n\r\n",
        "more_body": False,
    }


async def test_a_client_that_takes_no_events_waits_for_its_json() -> None:
    exchange = Exchange([(b"accept", b"application/json")], comments=1)
    asyncio.get_running_loop().call_later(0.05, exchange._enough.set)
    start, body = await exchange.run(patience=0.01)
    assert dict(start["headers"])[b"content-type"] == b"application/json"
    assert body["body"] == REPLY


async def test_an_application_that_fails_leaves_no_comments_behind() -> None:
    with pytest.raises(RuntimeError, match="no"):
        await Exchange(EVENTS, comments=2, fault=RuntimeError("no")).run(patience=0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}
