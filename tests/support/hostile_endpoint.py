"""A package whose process answers with whatever bytes a test puts into the address."""

from __future__ import annotations

from base64 import urlsafe_b64encode


def quiet_environment(name: str) -> str:
    """Return the source of an environment that does nothing, for modules that change the server around it."""
    return f'''
class {name}(Environment[Task]):
    """Does nothing."""

    splits = {{"train": [Task(id="only")]}}

    def prompt(self):
        """Say nothing."""
        return "Nothing."

    @tool
    def look(self) -> str:
        """Look."""
        return "nothing"
'''


RAW = "/play/raw/"
"""The path below the endpoint behind which the bytes of an answer stand; `wait` in the query keeps the connection."""

SOURCE = f'''
"""Answers with what it is given."""

import asyncio
from base64 import urlsafe_b64decode

from ludus.server import Environment, Task, tool
from ludus.server.web.http_protocol import BoundedHttpProtocol

received = BoundedHttpProtocol.data_received


def data_received(self, data):
    """Answer with the bytes in the address."""
    path = data.split(b" ", 2)[1] if data.count(b" ") > 1 else b""
    found = path.partition(b"{RAW}")[2]
    if not found:
        received(self, data)
        return
    answer, _, query = found.partition(b"?")
    self.transport.write(urlsafe_b64decode(answer))
    if query == b"endless":
        asyncio.get_running_loop().create_task(write_on(self.transport))
    elif query != b"wait":
        self.transport.close()


async def write_on(transport):
    """Write until nobody is there."""
    while not transport.is_closing():
        transport.write(b"a" * 65536)
        await asyncio.sleep(0)


BoundedHttpProtocol.data_received = data_received


{quiet_environment("Hostile")}'''


def raw_path(answer: bytes, query: str = "") -> str:
    """Return the path below the endpoint at which its process sends these bytes."""
    return RAW + urlsafe_b64encode(answer).decode() + (f"?{query}" if query else "")


def answer(*lines: str, body: str = "", status: str = "200 OK") -> bytes:
    """Return the bytes of an answer with these header lines."""
    content = body.encode()
    fields = [*lines, f"content-length: {len(content)}"]
    return "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode() + content
