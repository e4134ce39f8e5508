"""The process of a hub: its socket, its signals, and the built-in library at startup.

SIGTERM or SIGINT → no new connections → running requests end → exit code 0
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

from ludus.hub.app import create_hub, parts_of
from ludus.hub.endpoints.upgrades import channels_of
from ludus.hub.seed import seed
from ludus.hub.settings.hub import HubSettings
from ludus.server.serving.serve import HEADERS, listen
from ludus.server.web import logs
from ludus.server.web.http_protocol import BoundedHttpProtocol, run_timeout_sweeper

GRACE_SECONDS = 10
"""How long running requests may go on when the hub stops."""


class HubServer(uvicorn.Server):
    """uvicorn's server for a hub.

    Args:
        app: the application.
        settings: the hub's settings.
        on_start: called with the hub's address once requests are answered.
    """

    def __init__(self, app: FastAPI, settings: HubSettings, on_start: Callable[[str], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                host=settings.host,
                port=settings.port,
                http=BoundedHttpProtocol,
                ws=channels_of(parts_of(app).endpoints.channels),
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=HEADERS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._host = settings.host
        self._patience = settings.limits.upload_seconds
        """How long a request may take to arrive."""
        self._on_start = on_start
        self._sweeper: asyncio.Task[None] | None = None

    async def startup(self, sockets: object = None) -> None:
        """Enter the application, listen, and report the address."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.started:
            return
        self._sweeper = asyncio.create_task(run_timeout_sweeper(self.server_state.connections, self._patience))
        port = self.servers[0].sockets[0].getsockname()[1]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        self._on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: object = None) -> None:
        """Let running requests end, and leave the application."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await super().shutdown(sockets)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals. Unlike uvicorn, do not raise them again: a requested end is a success."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(settings: HubSettings, log_format: logs.LogFormat = "console", log_level: logs.LogLevel = "INFO") -> int:
    """Serve a hub until a signal ends it, and return the exit code.

    Raises:
        AuthoringError: others can reach the hub and it has no accounts and no tokens, or its port or its folder cannot
            be used.
        HubUnavailable: the database cannot be used.
    """
    logs.configure(log_format, log_level)
    app = create_hub(settings)
    if settings.seed:
        seed(parts_of(app).hub)
    listen(settings.host, settings.port).close()

    def announce(url: str) -> None:
        hub = parts_of(app).hub
        mode = "accounts or tokens required to publish"
        if hub.authenticator.is_open:
            mode = "open: no accounts, this machine only"
        public = f"; public address {settings.public_url}" if settings.public_url else ""
        sys.stdout.write(f"Ludus hub at {url} ({mode}{public}; data in {settings.data})\n")
        sys.stdout.flush()

    server = HubServer(app, settings, announce)
    try:
        server.run()
    finally:
        logs.flush()
    return 0 if server.started else 1
