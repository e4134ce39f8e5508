"""A worker process: a complete server, which serves its gateway alone.

It is started as `python -m ludus.server.workers.child FD` by `processes.LocalLauncher`, which writes lines of JSON to
its standard input: an `Order`, then `SERVE`, and `HAND_OVER` if another process is to take its episodes over. The
process answers on the file descriptor `FD`: once its environments are loaded, once it serves, and once its journal is
free; or why it cannot serve. A process that takes over from another one is loaded when it has rebuilt the episodes, as
far as the journal goes. It dies with its parent (see `parent`). A process on another machine also ends itself when its
gateway does not ask for its load any more, so that its successor can open the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.common.heap import settle_heap, uncollected
from ludus.protocol.errors import InvalidRequest, LudusError
from ludus.server.serving.serve import LudusServer, build, listen, serve_app, uvicorn_config
from ludus.server.tasks.loading import load_environments
from ludus.server.tasks.noisy import all_with_noise
from ludus.server.web import logs
from ludus.server.web.guard import refuse
from ludus.server.workers.orders import END_PATH, HAND_OVER, LOAD_PATH, SERVE, Load, Order
from ludus.server.workers.parent import Answers, follow_parent
from ludus.server.workers.upstream import GATEWAY_HEADER

if TYPE_CHECKING:
    from ludus.server.auth import TokenStore
    from ludus.server.hosting.host import EpisodeHost

__all__ = ["serve_order"]


FENCED: Final = 71
"""The exit status of a worker that was ordered to end by its gateway, or not asked for its load for too long."""

BEAT_SECONDS: Final = 0.2
"""The time between two signs of life of the event loop."""

END_SECONDS: Final = 0.05
"""How long the answer to that may take to leave."""


class FromGateway:
    """ASGI middleware that serves the requests of the gateway alone, and takes the client's address from them.

    Args:
        app: the application.
        secret: what the gateway sends in its header.
        host: the runtime, whose load the gateway asks for.
        lease: is renewed by such a question.
    """

    def __init__(self, app: ASGIApp, secret: str, host: EpisodeHost, lease: Lease) -> None:
        self._app = app
        self._secret = secret.encode()
        self._host = host
        self._lease = lease

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
        if not peer and scope["path"] == END_PATH:
            asyncio.get_running_loop().call_later(END_SECONDS, os._exit, FENCED)
            await _answer(send, b"{}")
            return
        client = scope.get("client")
        await self._app({**scope, "client": (peer.decode("latin-1"), client[1] if client else 0)}, receive, send)

    async def _tell_load(self, send: Send) -> None:
        self._lease.renew()
        stats = self._host.stats()
        load = Load(running=stats.running, starting=stats.starting, queued=stats.queued, kept=stats.kept + stats.worlds)
        await _answer(send, load.model_dump_json().encode())


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Lease:
    """Ends the process when it was not renewed for some seconds; the time begins with the first renewal.

    Args:
        seconds: the time; None for a process that needs no lease.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._renewed = threading.Event()
        self._watched = False

    def renew(self) -> None:
        """Begin the time again."""
        if self._seconds is None:
            return
        self._renewed.set()
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._watch, daemon=True, name="ludus-lease").start()

    def _watch(self) -> None:
        while self._renewed.wait(self._seconds):
            self._renewed.clear()
        os._exit(FENCED)


def main() -> int:
    """Serve until a signal, and return the exit code."""
    answers = Answers(int(sys.argv[1]))
    order = Order.model_validate_json(sys.stdin.buffer.readline())
    return serve_order(order, follow_parent(order.parent), answers)


def serve_order(
    order: Order, orders: queue.SimpleQueue[Any], answers: Answers, tokens: TokenStore | None = None,
    capability_key: bytes | None = None,
) -> int:  # fmt: skip
    """Load the environments of an order, serve them once that is ordered, and return the exit code.

    Args:
        order: what to serve.
        orders: the further orders.
        answers: what this process answers.
        tokens: the trainer tokens, instead of those that the settings name.
        capability_key: signs play capabilities, if the settings name no key.
    """
    settings = order.settings
    logs.configure(settings.log_format, settings.log_level)
    try:
        with uncollected():
            environments = all_with_noise(load_environments(order.specs), order.noise)
            app = build(environments, settings, tokens=tokens)
            host, lease = app.context.host, Lease(order.lease_seconds)
            if capability_key is not None and host.signer is not None:
                host.signer.prefer(capability_key)
            host.on_released = lambda: answers.write({"released": True})
            app.surround(lambda inner: FromGateway(inner, order.secret, host, lease))
            listener = listen(order.host, 0)
            port = listener.getsockname()[1]
            uvicorn_config(app, settings).load()  # imports all that serving needs
            settle_heap()
        if order.takes_over:
            host.takes_over = lambda: _take_over(answers, orders)
        else:
            answers.write({"loaded": True})
            if orders.get() != SERVE:
                return 0

        def ready(server: LudusServer) -> None:
            answers.write({"host": order.host, "port": port, "environments": list(host.catalog)})
            _obey(orders, server)
            if order.signs_of_life:
                _keep_beating(answers)

        return serve_app(app, settings, listener, ready)
    except LudusError as error:
        answers.write({"error": error.message})
        return 1
    finally:
        logs.flush()


async def _take_over(answers: Answers, orders: queue.SimpleQueue[Any]) -> None:
    """Say that nothing more can be done before this process serves, and wait until it may."""
    settle_heap()
    loop, serves = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> None:
        orders.get()  # it is `SERVE`; a process that is not needed is killed
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(serves.set)

    threading.Thread(target=wait, daemon=True, name="ludus-orders").start()
    answers.write({"loaded": True})
    await serves.wait()


def _keep_beating(answers: Answers) -> None:
    """Give the parent a sign of life in each turn of the event loop, `BEAT_SECONDS` apart.

    They come also while so much arrives that no question is answered in time. They end when the loop is blocked or the
    process is stopped.
    """
    loop = asyncio.get_running_loop()

    def beat(turns: int) -> None:
        answers.beat(turns)
        loop.call_later(BEAT_SECONDS, beat, turns + 1)

    beat(1)


def _obey(orders: queue.SimpleQueue[Any], server: LudusServer) -> None:
    """Hand the episodes over when the parent says so."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        if orders.get() == HAND_OVER:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and the journal is free
                loop.call_soon_threadsafe(server.hand_over)

    threading.Thread(target=wait, daemon=True, name="ludus-orders").start()


if __name__ == "__main__":
    sys.exit(main())
