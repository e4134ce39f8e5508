"""A worker process: a complete server on a port of 127.0.0.1, which serves its gateway alone.

The supervisor starts it as `python -m ludus.server.workers.child FD`, writes an `Order` to its standard input and keeps
that open. The process writes one line to the file descriptor `FD`: its port, or why it cannot serve. It dies with the
supervisor, however that ends: the kernel kills it (on Linux), and elsewhere it notices the end of its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import hmac
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.protocol.errors import InvalidRequest, LudusError
from ludus.server.tasks.loading import load_environments
from ludus.server.tasks.noisy import all_with_noise
from ludus.server.web import logs
from ludus.server.web.guard import refuse
from ludus.server.web.serve import build, listen, serve_app
from ludus.server.web.settings import ServerSettings
from ludus.server.workers.upstream import GATEWAY_HEADER

if TYPE_CHECKING:
    from ludus.server.runtime.host import EpisodeHost

LOAD_PATH: Final = "/workers/load"
"""The path at which the gateway asks for the load, which is also the health check."""

ORPHANED: Final = 70
"""The exit status of a worker whose supervisor is gone."""

_PR_SET_PDEATHSIG: Final = 1


class Order(BaseModel):
    """What a worker is to do."""

    specs: list[str]
    noise: list[str]
    settings: ServerSettings
    secret: str
    supervisor: int
    """The supervisor's process id."""


class Load(BaseModel):
    """How busy a worker is."""

    running: int
    starting: int
    queued: int


class FromGateway:
    """ASGI middleware that serves the requests of the gateway alone, and takes the client's address from them.

    Args:
        app: the application.
        secret: what the gateway sends in its header.
        host: the runtime, whose load the gateway asks for.
    """

    def __init__(self, app: ASGIApp, secret: str, host: EpisodeHost) -> None:
        self._app = app
        self._secret = secret.encode()
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        introduction = next((value for name, value in scope["headers"] if name == GATEWAY_HEADER), b"")
        secret, _, peer = introduction.partition(b" ")
        if not hmac.compare_digest(secret, self._secret):
            await refuse(scope, receive, send, InvalidRequest("this port is for the gateway alone; use its address"))
            return
        if not peer and scope["path"] == LOAD_PATH:  # the gateway's own request, and none that it passes on
            await self._tell_load(send)
            return
        client = scope.get("client")
        await self._app({**scope, "client": (peer.decode("latin-1"), client[1] if client else 0)}, receive, send)

    async def _tell_load(self, send: Send) -> None:
        stats = self._host.stats()
        body = Load(running=stats.running, starting=stats.starting, queued=stats.queued).model_dump_json().encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> int:
    """Serve until a signal, and return the exit code."""
    announce = int(sys.argv[1])
    order = Order.model_validate_json(sys.stdin.buffer.readline())
    _follow(order.supervisor)
    settings = order.settings
    logs.configure(settings.log_format, settings.log_level)
    try:
        app = build(all_with_noise(load_environments(order.specs), order.noise), settings)
        app.surround(lambda inner: FromGateway(inner, order.secret, app.context.host))
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        names = list(app.context.host.catalog)

        def ready(url: str) -> None:
            _write(announce, {"port": port, "environments": names})

        return serve_app(app, settings, listener, ready)
    except LudusError as error:
        _write(announce, {"error": error.message})
        return 1
    finally:
        logs.flush()


def _write(descriptor: int, line: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps(line).encode() + b"\n")


def _follow(supervisor: int) -> None:
    """Make this process die with the supervisor, and not with the signals of the terminal."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(ORPHANED)
    kept = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # environments may read standard input
    os.close(nothing)

    def wait_for_end() -> None:
        while os.read(kept, 1024):
            pass
        os._exit(ORPHANED)

    threading.Thread(target=wait_for_end, daemon=True, name="ludus-supervisor").start()


if __name__ == "__main__":
    sys.exit(main())
