"""An environment whose server process answers every request with how it has read it, and keeps a list of them.

The list is what the process's HTTP parser has read, also of requests that it never came to answer. A query empties it.
"""

from __future__ import annotations

from hostile_endpoint import quiet_environment

REPORT = "/report"
"""The end of a path that gives the list."""

SOURCE = f'''
"""Answers with what it has read."""

import json
import time

from ludus.server import Environment, Task, tool
from ludus.server.web.http_protocol import BoundedHttpProtocol

SEEN = []
OWN = ("/health", "/ready", "/metrics")
head_read = BoundedHttpProtocol.on_headers_complete
body_read = BoundedHttpProtocol.on_body
message_read = BoundedHttpProtocol.on_message_complete
lost = BoundedHttpProtocol.connection_lost
start = BoundedHttpProtocol._start_asgi_task


def is_own(path):
    """Return whether a path is one that a gateway asks for by itself."""
    return path.startswith("/workers/") or path in OWN or path.endswith("{REPORT}")


def on_headers_complete(self):
    """Note a request."""
    before, self.entry = self.cycle, None
    head_read(self)
    upgrade = self.parser is not None and self.parser.should_upgrade() and self._should_upgrade()
    path = self.scope.get("path") or self.url.decode("latin-1")
    if (self.cycle is before and not upgrade) or is_own(path):
        return
    self.entry = {{
        "at": time.monotonic(), "method": self.scope["method"], "target": self.url.decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in self.headers],
        "body": "", "complete": False, "gone": False, "upgrade": upgrade,
    }}
    SEEN.append(self.entry)


def on_body(self, body):
    """Note a part of a body."""
    if self.entry is not None:
        self.entry["body"] += body.decode("latin-1")
    body_read(self, body)


def on_message_complete(self):
    """Note the end of a request."""
    if self.entry is not None:
        self.entry["complete"] = True
    message_read(self)


def connection_lost(self, exc):
    """Note that no more of a request comes."""
    if getattr(self, "entry", None) is not None:
        self.entry["gone"] = True
    lost(self, exc)


def _start_asgi_task(self, cycle, app):
    """Answer with what was read, instead of what the server would answer."""
    start(self, cycle, app if is_own(cycle.scope["path"]) and not cycle.scope["path"].endswith("{REPORT}") else answer)


async def answer(scope, receive, send):
    """Answer with what the application is given, and whether that is what was read."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    if scope["path"].endswith("{REPORT}"):
        content = json.dumps(SEEN)
        if scope["query_string"]:
            SEEN.clear()
    else:
        query = "?" + scope["query_string"].decode("latin-1") if scope["query_string"] else ""
        target = scope["raw_path"].decode("latin-1") + query
        content = json.dumps({{"method": scope["method"], "target": target, "body": body.decode("latin-1")}})
    data = content.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({{"type": "http.response.start", "status": 200, "headers": headers}})
    await send({{"type": "http.response.body", "body": data}})


BoundedHttpProtocol.on_headers_complete = on_headers_complete
BoundedHttpProtocol.on_body = on_body
BoundedHttpProtocol.on_message_complete = on_message_complete
BoundedHttpProtocol.connection_lost = connection_lost
BoundedHttpProtocol._start_asgi_task = _start_asgi_task


{quiet_environment("Echoing")}'''
