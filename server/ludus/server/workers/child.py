"""A worker process: a complete server, which serves its gateway alone.

It is started as `python -m ludus.server.workers.child FD` by `processes.LocalLauncher`, which keeps its standard input
open and writes lines of JSON to it: an `Order`, then `SERVE`, and `HAND_OVER` if another process is to take its
episodes over. The process answers on the file descriptor `FD`: once its environments are loaded, once it serves, and
once its journal is free; or why it cannot serve. It dies with its parent, however that ends: the kernel kills it (on
Linux), and elsewhere it notices the end of its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hmac
import json
import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.protocol.errors import InvalidRequest, LudusError
from ludus.protocol.heap import settle_heap
from ludus.server.tasks.loading import load_environments
from ludus.server.tasks.noisy import all_with_noise
from ludus.server.web import logs
from ludus.server.web.guard import refuse
from ludus.server.web.serve import LudusServer, build, listen, serve_app, uvicorn_config
from ludus.server.workers.orders import HAND_OVER, LOAD_PATH, SERVE, Load, Order
from ludus.server.workers.upstream import GATEWAY_HEADER

if TYPE_CHECKING:
    from ludus.server.runtime.host import EpisodeHost

ORPHANED: Final = 70
"""The exit status of a worker whose parent is gone."""

_PR_SET_PDEATHSIG: Final = 1


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
        load = Load(running=stats.running, starting=stats.starting, queued=stats.queued, kept=stats.kept)
        body = load.model_dump_json().encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> int:
    """Serve until a signal, and return the exit code."""
    said = _Said(int(sys.argv[1]))
    order = Order.model_validate_json(sys.stdin.buffer.readline())
    orders = _follow(order.parent)
    settings = order.settings
    logs.configure(settings.log_format, settings.log_level)
    try:
        environments = all_with_noise(load_environments(order.specs), order.noise)
        app = build(environments, settings)
        host = app.context.host
        host.on_released = lambda: said.write({"released": True})
        app.surround(lambda inner: FromGateway(inner, order.secret, host))
        listener = listen(order.host, 0)
        port = listener.getsockname()[1]
        uvicorn_config(app, settings).load()  # imports all that serving needs
        settle_heap()
        said.write({"loaded": True})
        if orders.get() != SERVE:
            return 0

        def ready(server: LudusServer) -> None:
            said.write({"host": order.host, "port": port, "environments": list(host.catalog)})
            _obey(orders, server)

        return serve_app(app, settings, listener, ready)
    except LudusError as error:
        said.write({"error": error.message})
        return 1
    finally:
        logs.flush()


class _Said:
    """What the process says to its parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: dict[str, object]) -> None:
        """Write a line; the parent may be gone."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def _follow(parent: int) -> queue.SimpleQueue[str]:
    """Make this process die with its parent, and not with the signals of the terminal; return its orders."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ORPHANED)
    kept = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # environments may read standard input
    os.close(nothing)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen_to_parent() -> None:
        for line in kept:
            orders.put(json.loads(line))
        os._exit(ORPHANED)

    threading.Thread(target=listen_to_parent, daemon=True, name="ludus-parent").start()
    return orders


def _obey(orders: queue.SimpleQueue[str], server: LudusServer) -> None:
    """Hand the episodes over when the parent says so."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        if orders.get() == HAND_OVER:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and the journal is free
                loop.call_soon_threadsafe(server.hand_over)

    threading.Thread(target=wait, daemon=True, name="ludus-orders").start()


if __name__ == "__main__":
    sys.exit(main())
