"""The server process: checks before startup, sockets, signals and an orderly shutdown.

SIGTERM or SIGINT → no new connections, no new episodes → running steps end, within `shutdown_seconds`
                  → connections close → every episode is torn down → exit code 0
a second signal   → the process exits at once
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn

from ludus.common.heap import settle_heap
from ludus.protocol.errors import AuthoringError, ShuttingDown
from ludus.server.auth import CapabilitySigner, TokenStore
from ludus.server.auth.quotas import Quotas
from ludus.server.auth.usage import UsageTable
from ludus.server.authoring.environment import Environment
from ludus.server.durability.journal import Journal
from ludus.server.durability.journals import journal_of, open_database
from ludus.server.hosting.host import EpisodeHost
from ludus.server.runtime.ids import Ids
from ludus.server.serving.app import LudusApp, create_app
from ludus.server.serving.settings import ServerSettings, is_loopback
from ludus.server.tasks.difficulty import load_difficulty_files
from ludus.server.web import logs
from ludus.server.web.http_protocol import BoundedHttpProtocol, run_timeout_sweeper
from ludus.server.web.websocket_protocol import BoundedWebSocketProtocol

__all__ = ["HEADERS", "listen"]


CAPABILITY_KEY_VARIABLE: Final = "LUDUS_CAPABILITY_KEY"
"""The environment variable that holds the capability key itself, in hexadecimal."""

HEADERS: Final = [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
"""The headers of every answer. A play URL is a credential, so `Referer` must not send it to other servers."""

_FIRST_PARTS: Final = frozenset({"mcp", "play", "channel", "workers"})
"""The first parts of the server's own paths, with which a root path may not begin."""

HAND_OVER_SECONDS: Final = 0.25
"""How long running steps may go on once another process is to go on with the episodes. It repeats the others."""

_CLOSING_SECONDS: Final = 3
_TICK_SECONDS: Final = 0.1
_log = logging.getLogger("ludus.server")


class ServeError(AuthoringError):
    """The server cannot start with its settings; the message says what to change."""


def build(
    environments: Sequence[type[Environment[Any]]],
    settings: ServerSettings,
    variables: Mapping[str, str] = os.environ,
    journal: Journal | None = None,
    quotas: Quotas | None = None,
    tokens: TokenStore | None = None,
) -> LudusApp:
    """Return the application for `environments`, with credentials from `settings` and `variables`.

    `tokens` takes the place of the trainer tokens that these name.

    Raises:
        ServeError: other machines can reach the address and there are no tokens; the token file or the key is
            unusable; or the settings contradict each other.
        AuthoringError: an environment class has a mistake, or a difficulty file does not fit the served environments.
    """
    tokens = tokens if tokens is not None else read_tokens(settings, variables)
    if journal is None:
        journal = journal_of(settings.journal, settings.journal_url, settings.journal_sync, settings.worker)
    try:
        signer = _signer(settings, variables)
    except ValueError as error:
        raise ServeError(str(error)) from None
    host = EpisodeHost(environments, limits=settings.limits, journal=journal, capabilities=signer)
    host.ids = Ids(settings.worker)
    host.places.quotas = quotas or _quotas(settings, tokens)
    if journal is not None and (settings.token_limits.stored_bytes or (tokens is not None and tokens.limits_bytes)):
        journal.sizes = Counter()
    load_difficulty_files(host.catalog, settings.difficulty)
    _check_root_path(settings, host.catalog)
    return create_app(host, settings, tokens)


def read_tokens(settings: ServerSettings, variables: Mapping[str, str] = os.environ) -> TokenStore | None:
    """Return the trainer tokens; None for a server without tokens, which only this machine may reach.

    Raises:
        ServeError: see `build`.
    """
    try:
        tokens = TokenStore.from_environment(settings.token_file, variables)
    except ValueError as error:
        raise ServeError(str(error)) from None
    if not tokens and (reachable_from := _reachable(settings)):
        file = settings.token_file or "tokens.json"
        problem = "has no tokens" if tokens is None else f"has an empty token file ({file})"
        raise ServeError(
            f"refusing to {reachable_from} and this server {problem}. "
            f"Create one with `ludus token create --name trainer --file {file}` and serve with `--token-file {file}`, "
            "or listen on 127.0.0.1 without a proxy"
        )
    if settings.cors and not settings.allow_origins:
        raise ServeError("--cors has no origins: name each origin whose pages may read the answers with --allow-origin")
    return tokens


def _quotas(settings: ServerSettings, tokens: TokenStore | None) -> Quotas:
    """Return the limits of principals and client addresses.

    Raises:
        UsageFileUnusable: the file of usage cannot be used.
    """
    return Quotas(
        settings.token_limits,
        wrong_tokens_per_minute=settings.wrong_tokens_per_minute,
        stranger_requests_per_second=settings.stranger_requests_per_second if tokens is not None else None,
        table=UsageTable.open(settings.usage_file) if settings.usage_file is not None else None,
        limits_of=tokens.limits_of if tokens is not None else None,
    )


def _check_root_path(settings: ServerSettings, names: Collection[str]) -> None:
    """Refuse a path prefix that is also the beginning of one of the server's paths, because it would be ambiguous."""
    first_segment = settings.proxies.root_path[1:].partition("/")[0]
    if first_segment in names or first_segment in _FIRST_PARTS:
        whose = f"the environment {first_segment!r}" if first_segment in names else "the server itself"
        raise ServeError(
            f"the root path /{first_segment} is also a path of {whose}; publish the server under another one"
        )


def _reachable(settings: ServerSettings) -> str:
    """Return a phrase for how other machines can reach the server, or an empty string if they cannot."""
    if not settings.on_loopback:
        return f"listen on {settings.host}: others can reach that address"
    if settings.public_url and not is_loopback(urlsplit(settings.public_url).hostname or ""):
        return f"be published at {settings.public_url}: others can reach that address"
    if settings.trusted_proxies and not settings.public_url:
        return "be published by a proxy: others can reach the server through it"
    return ""


def _signer(settings: ServerSettings, variables: Mapping[str, str]) -> CapabilitySigner:
    if settings.capability_key_file is not None:
        return CapabilitySigner.from_file(settings.capability_key_file, settings.capability_seconds)
    text = variables.get(CAPABILITY_KEY_VARIABLE)
    if text:
        return CapabilitySigner.from_text(text, settings.capability_seconds, where=CAPABILITY_KEY_VARIABLE)
    return CapabilitySigner.random(settings.capability_seconds)


def uvicorn_config(app: LudusApp, settings: ServerSettings) -> uvicorn.Config:
    """Return uvicorn's configuration for the application.

    Measured server CPU for a small echo: 9 µs with `websockets-sansio`, 14 µs with `websockets`, 16 µs with `wsproto`.
    Compression is off because on trainers' networks it costs more time than the smaller messages save.
    """
    return uvicorn.Config(
        app,
        interface="asgi3",
        host=settings.host,
        port=settings.port,
        loop="auto",
        http=BoundedHttpProtocol,
        ws=BoundedWebSocketProtocol,
        ws_max_size=2 * settings.limits.body_bytes,  # the channel refuses larger frames itself, with an error message
        ws_ping_interval=settings.ping_seconds,
        ws_ping_timeout=settings.pong_seconds,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=HEADERS,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
        backlog=4096,
    )


class LudusServer(uvicorn.Server):
    """uvicorn's server, with Ludus's order of shutdown and with limits on arriving requests.

    Args:
        app: the application to serve.
        settings: the settings of the server.
        signals: whether SIGTERM and SIGINT end the server; for a server that is alone in its process.
        on_start: called with this server once requests are answered.
    """

    def __init__(
        self,
        app: LudusApp,
        settings: ServerSettings,
        *,
        signals: bool = False,
        on_start: Callable[[LudusServer], None] | None = None,
    ) -> None:
        super().__init__(uvicorn_config(app, settings))
        self.app = app
        self.settings = settings
        self._signals = signals
        self._on_start = on_start
        self.running = asyncio.Event()
        self._stopping = asyncio.Event()
        self._patience = settings.shutdown_seconds
        """How long running steps may go on once the server stops."""
        self.url = ""
        """The URL at which the server listens, with the actual port; empty before that."""
        self.failed = False
        """Whether the server ends because its journal cannot be written."""
        self._sweeper: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Enter the application and listen."""
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn's only sign of an application that cannot start
            runtime = self.app.context.host
            if (refusal := runtime.startup.refusal or runtime.sandboxes.refusal) is not None:
                raise refusal from None
            raise
        if not self.started:
            return
        self._sweeper = asyncio.get_running_loop().create_task(
            run_timeout_sweeper(self.server_state.connections, self.settings.request_seconds)
        )
        name = self.servers[0].sockets[0].getsockname()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.settings.host, self.settings.host)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{name[1]}"
        self.running.set()
        if (journal := self.app.context.host.journal) is not None:
            journal.begin(self.url, self._journal_broke)
        if self._on_start is not None:
            self._on_start(self)

    def stop(self) -> None:
        """Begin the shutdown now, from the server's own event loop."""
        self.should_exit = True
        self._stopping.set()

    def hand_over(self) -> None:
        """Begin to stop, and free the journal soon: another process goes on with the episodes."""
        self._patience = min(self._patience, HAND_OVER_SECONDS)
        self.stop()

    def _journal_broke(self, error: ShuttingDown) -> None:
        _log.error("the server stops: %s", error.message)
        self.failed = True
        self.stop()

    async def main_loop(self) -> None:
        """Serve until the server is to exit. Unlike uvicorn's loop, this one notices `stop` without a delay."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running steps end, then close connections, then leave the application.

        If the episodes go on in another process, no request is read from now on: what is not read is not answered, so
        clients send it again, to the next process.
        """
        for server in self.servers:
            server.close()
        host = self.app.context.host
        host.ready = False
        if host.goes_on:
            self._each_transport(lambda transport: transport.pause_reading())
        if not await self._steps_end(host) and not host.goes_on:
            _log.warning("steps still run after %g s; their episodes are closed", self._patience)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if host.goes_on:
            host.release()
            self._each_transport(lambda transport: transport.close())
        if self._has_clients():
            await super().shutdown(sockets)
        else:  # spares uvicorn's pause for the ends of connections
            for listener in sockets or []:
                listener.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(*(server.wait_closed() for server in self.servers)), _CLOSING_SECONDS
                )
            await self.lifespan.shutdown()

    def _each_transport(self, act: Callable[[asyncio.Transport], object]) -> None:
        for connection in list(self.server_state.connections):
            transport: asyncio.Transport | None = getattr(connection, "transport", None)
            if transport is not None and not transport.is_closing():
                act(transport)

    def _has_clients(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    async def _steps_end(self, host: EpisodeHost) -> bool:
        """Wait until no step runs, and return whether that happened in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        end = loop.time() + self.settings.shutdown_seconds
        while True:
            idle = not host.busy()
            if idle and (host.goes_on or not self._has_clients()):
                return True
            # The host must stay idle for one tick, because a new outcome may not have reached its socket yet.
            await asyncio.sleep(0.05)
            if idle and not host.busy():
                return True
            if self.force_exit or loop.time() >= (end if host.busy(outside=True) else deadline):
                return False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals if `signals` is set. Unlike uvicorn, do not raise them again: a requested end is a success."""
        if not self._signals:
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start an orderly shutdown at the first signal, and exit at once at the second."""
        if self.should_exit:
            for number in (
                signal.SIGTERM,
                signal.SIGINT,
            ):  # a third one must not wait here for what the second one holds
                signal.signal(number, signal.SIG_DFL)
            _log.warning("exiting at once: a second signal came before the end")
            logs.flush()
            os._exit(128 + sig)
        self.should_exit = True
        self.app.context.host.ready = False


@asynccontextmanager
async def serving(
    environments: Sequence[type[Environment[Any]]],
    settings: ServerSettings | None = None,
    variables: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    quotas: Quotas | None = None,
) -> AsyncIterator[LudusServer]:
    """Run a real server in this event loop, for tests and notebooks. Without `settings`, it listens on a free port.

    `variables` replaces the process's environment variables, which are not read.
    """
    settings = settings or ServerSettings(port=0)
    server = LudusServer(build(environments, settings, variables or {}, journal, quotas), settings)
    task = asyncio.create_task(server.serve())
    started = asyncio.create_task(server.running.wait())
    try:
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            refusal = server.app.context.host.sandboxes.refusal
            raise refusal or ServeError(f"the server did not start: {task.exception() or 'see its log'}")
        yield server
    finally:
        started.cancel()
        server.stop()
        await asyncio.wait([task])
        # uvicorn calls sys.exit when it cannot listen. That was reported above, so it is not raised again.
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), SystemExit):
            await task


def run(
    environments: Sequence[type[Environment[Any]]], settings: ServerSettings, listener: socket.socket | None = None
) -> int:
    """Serve until a signal ends the server, and return the exit code.

    Args:
        environments: the environments to serve.
        settings: the settings of the server.
        listener: a bound socket to listen on; by default one is made for the address in `settings`.

    Raises:
        ServeError: see `build`; or the address cannot be listened on, or standard output cannot be written to.
        SandboxUnavailable, SandboxUnsupported: an environment needs a sandbox that this machine cannot provide.
    """
    logs.configure(settings.log_format, settings.log_level)
    _check_journal(settings)
    app = build(environments, settings)
    if listener is None:
        listen(settings.host, settings.port).close()
    tokens = app.context.tokens is not None
    return serve_app(
        app, settings, listener, lambda server: announce(app.context.host.catalog, server.url, settings, tokens=tokens)
    )


def journals_of_workers(journal: Path) -> list[str]:
    """Return the worker ids that have journals at the path `journal`, in their order (see `--workers`)."""
    prefix = f"{journal.name}.w"
    names = [file.name for file in (journal.parent.iterdir() if journal.parent.is_dir() else ())]
    numbers = [int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
    return [f"w{number}" for number in sorted(numbers)]


def _check_database(settings: ServerSettings) -> None:
    """Refuse to start if the database has journals of a server with workers, whose episodes would not be served."""
    if settings.journal_url is None or settings.worker is not None:
        return
    database = open_database(settings.journal_url)
    numbers = [int(name[1:]) for name in database.workers() if name.startswith("w") and name[1:].isdigit()]
    if numbers:
        raise ServeError(
            f"{database.shown} has the journal of worker w{max(numbers)}, whose episodes this server would not serve: "
            f"serve with --workers {1 + max(numbers)}, or name another database"
        )


def _check_journal(settings: ServerSettings) -> None:
    _check_database(settings)
    if settings.journal is None or settings.journal.exists():
        return
    if workers := journals_of_workers(settings.journal):
        raise ServeError(
            f"{settings.journal} was the journal of a server with workers, whose episodes one process does not serve: "
            f"serve with --workers {1 + int(workers[-1][1:])}, or name another file"
        )


def announce(environments: Collection[str], url: str, settings: ServerSettings, *, tokens: bool) -> None:
    """Print the line that says what is served, and where.

    Raises:
        OSError: standard output cannot be written to.
    """
    mode = "tokens required" if tokens else "open: no tokens, this machine only"
    public = f"; public address {settings.public_url}" if settings.public_url else ""
    count = f"{settings.workers}" + (f"-{settings.max_workers}" if settings.max_workers is not None else "")
    workers = f"; {count} workers" if settings.workers is not None else ""
    sys.stdout.write(f"Serving {', '.join(environments)} at {url} ({mode}{public}{workers})\n")
    sys.stdout.flush()


def serve_app(
    app: LudusApp, settings: ServerSettings, listener: socket.socket | None, on_start: Callable[[LudusServer], None]
) -> int:
    """Serve an application until a signal ends the server, and return the exit code.

    Args:
        app: the application.
        settings: the settings of the server.
        listener: a bound socket to listen on; by default one is made for the address in `settings`.
        on_start: called with the server once requests are answered; it may raise OSError if it cannot write.

    Raises:
        ServeError: standard output cannot be written to.
        SandboxUnavailable, SandboxUnsupported: an environment needs a sandbox that this machine cannot provide.
    """
    unwritten: list[OSError] = []

    def started(server: LudusServer) -> None:
        settle_heap()
        try:
            on_start(server)
        except OSError as error:
            unwritten.append(error)
            server.stop()

    raise_file_limit()
    server = LudusServer(app, settings, signals=True, on_start=started)
    try:
        server.run(None if listener is None else [listener])
    finally:
        logs.flush()
    if unwritten:
        give_up_output()
        raise unwritable(unwritten[0])
    return 0 if server.started and not server.failed else 1


def unwritable(error: OSError) -> ServeError:
    """Return the error for a standard output that cannot be written to."""
    return ServeError(
        f"cannot write to standard output: {error.strerror}. Free some space, or send the output elsewhere"
    )


def give_up_output() -> None:
    """Redirect standard output to the null device, so that Python does not retry the failed write at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, or say why that is not possible, before anything is started.

    Raises:
        ServeError: the port is in use or not permitted for this user, or the address is not one of this machine's.
    """
    endpoint = f"port {port} of {host}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as asyncio's own servers do
            listener.bind(address)
        except OSError:
            listener.close()
            raise
        return listener
    except socket.gaierror:
        raise ServeError(f"there is no address {host!r} on this machine; name one with --host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServeError(
                f"{endpoint} is in use, perhaps by another server; choose another with --port, where 0 takes a free one"
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ServeError(f"the address {host} is not one of this machine's; name one that is with --host") from None
        reason = (error.strerror or str(error)).lower()
        raise ServeError(f"cannot listen on {endpoint}: {reason}; choose another with --port") from None


def raise_file_limit() -> None:
    """Raise the limit on open files, and so on connections, to the hard limit; the usual soft limit is 1,024."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
