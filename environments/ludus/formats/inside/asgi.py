"""Requests and WebSockets to an ASGI application in this process, without a network.

How this works: one thread of the process runs an event loop, as the application's own server would; the calls here
block until that loop has the reply. The thread belongs to one process, so a forked child gets its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_LOCK = threading.Lock()
_LIFESPAN_SECONDS = 60.0


class AppFailed(Exception):
    """The application raised, or closed the connection without a reply."""


def run(coroutine: Any) -> Any:
    """Return the result of a coroutine on this process's event loop. Blocks."""
    with _LOCK:
        loop = _LOOPS.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _LOOPS[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, daemon=True, name="asgi").start()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


class App:
    """A running application: its startup has run, and `close` runs its shutdown."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._lifespan = run(_Lifespan.begin(app))

    def request(
        self, method: str, path: str, body: Any = None, headers: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, bytes]:
        """Return the status and the body of the reply to a request with a JSON body."""
        status, _, content = run(_request(self.app, method, path, body, headers))
        return status, content

    def exchange(
        self, method: str, path: str, body: Any = None, headers: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the status, the headers (with names in lower case) and the body of the reply to a request."""
        status, found, content = run(_request(self.app, method, path, body, headers))
        return status, found, content

    def websocket(self, path: str) -> Socket:
        """Open a WebSocket.

        Raises:
            AppFailed: the application does not accept it.
        """
        return Socket(self.app, path)

    def close(self) -> None:
        """Run the application's shutdown."""
        run(self._lifespan.end())


class Socket:
    """A WebSocket with messages of text."""

    def __init__(self, app: Any, path: str) -> None:
        self._connection: _Connection = run(_connect(app, path))

    def send(self, text: str) -> None:
        """Send a message."""
        run(self._connection.to_app.put({"type": "websocket.receive", "text": text}))

    def receive(self) -> str:
        """Return the next message.

        Raises:
            AppFailed: the application closed the connection, or raised.
        """
        message = run(self._connection.next())
        if message["type"] != "websocket.send":
            raise AppFailed(f"the environment's server closed the connection{_reason(message)}")
        text = message.get("text")
        return str(text) if text is not None else str(message["bytes"], "utf-8")

    def close(self) -> None:
        """Close the connection and wait until the application has freed the session."""
        run(self._connection.end())


class _Connection:
    def __init__(self) -> None:
        self.to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None
        self.closed = False

    async def serve(self, app: Any, scope: dict[str, Any]) -> None:
        reason = ""
        try:
            await app(scope, self.to_app.get, self.from_app.put)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        await self.from_app.put({"type": "websocket.close", "reason": reason})

    async def next(self) -> dict[str, Any]:
        if self.closed:
            return {"type": "websocket.close", "reason": "it was closed before"}
        message = await self.from_app.get()
        self.closed = message["type"] == "websocket.close"
        return message

    async def end(self) -> None:
        await self.to_app.put({"type": "websocket.disconnect", "code": 1000})
        assert self.task is not None
        await self.task


async def _connect(app: Any, path: str) -> _Connection:
    connection = _Connection()
    scope = {**_scope("websocket", path, ()), "scheme": "ws", "subprotocols": []}
    await connection.to_app.put({"type": "websocket.connect"})
    connection.task = asyncio.ensure_future(connection.serve(app, scope))
    message = await connection.next()
    if message["type"] != "websocket.accept":
        raise AppFailed(f"the server does not accept a WebSocket at {path}{_reason(message)}")
    return connection


async def _request(
    app: Any, method: str, path: str, body: Any, headers: Sequence[tuple[str, str]]
) -> tuple[int, list[tuple[str, str]], bytes]:
    content = b"" if body is None else json.dumps(body).encode()
    own = [("content-type", "application/json"), ("content-length", str(len(content)))] if body is not None else []
    scope = {**_scope("http", path, [*own, *headers]), "method": method, "scheme": "http"}
    given = [{"type": "http.request", "body": content, "more_body": False}]
    done = asyncio.Event()
    status, parts = 500, []
    found: list[tuple[str, str]] = []

    async def receive() -> dict[str, Any]:
        if given:
            return given.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            found.extend((name.decode("latin-1").lower(), text.decode("latin-1")) for name, text in message["headers"])
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                done.set()

    try:
        await app(scope, receive, send)
    except Exception as error:
        raise AppFailed(f"{method} {path} raised {type(error).__name__}: {error}") from error
    return status, found, b"".join(parts)


class _Lifespan:
    """The startup and shutdown of an application; one that has none is served without."""

    def __init__(self) -> None:
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def begin(cls, app: Any) -> _Lifespan:
        made = cls()
        made._task = asyncio.ensure_future(made._serve(app))
        reply = await made._ask("startup")
        if reply.startswith("lifespan.startup.failed"):
            raise AppFailed(f"the server's startup failed{reply.partition(' ')[2]}")
        return made

    async def end(self) -> None:
        assert self._task is not None
        if not self._task.done():
            await self._ask("shutdown")

    async def _ask(self, what: str) -> str:
        await self._to_app.put({"type": f"lifespan.{what}"})
        return await asyncio.wait_for(self._replies.get(), _LIFESPAN_SECONDS)

    async def _serve(self, app: Any) -> None:
        async def send(message: dict[str, Any]) -> None:
            await self._replies.put(message["type"] + (f" : {message['message']}" if message.get("message") else ""))

        try:
            await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._to_app.get, send)
        except Exception:  # the application does not know lifespans
            pass
        await self._replies.put("ended")


def _scope(kind: str, path: str, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    parts = urlsplit(path)
    named = [("host", "localhost"), *headers]
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in named],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }


def _reason(message: dict[str, Any]) -> str:
    reason = message.get("reason") or ""
    return f" ({reason})" if reason else ""
