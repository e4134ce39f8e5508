"""The server of one release: started by its first request, watched, replaced when it dies, stopped when it is idle.

How this works:

* `ReleaseServer.ensure` is what every request waits for that needs a server. It makes the virtual environment, and
  hands the worker to a `Tender`, which is the gateway's own: it checks the process's health, kills one that does not
  answer, and starts the next one with growing pauses.
* A process that cannot start, or that ends too often soon after its start, ends the attempt. Until `retry_seconds` are
  over, requests then get the reason with the end of the log; after that, a request tries again.
* A server that has had no request and no running episode for `idle_seconds` is stopped; the next request starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from ludus.common.backoff import Backoff
from ludus.hub.endpoints.errors import EndpointFailed, EndpointRefused, InstallRefused
from ludus.hub.endpoints.logs import LogRing
from ludus.hub.endpoints.processes import EndpointLauncher, GivenUp
from ludus.hub.endpoints.replicas import Replicas
from ludus.hub.endpoints.resources import grant
from ludus.protocol.errors import InfrastructureFailed, LudusError, ShuttingDown
from ludus.registry.types.errors import VersionBlocked
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.orders import Order
from ludus.server.workers.pool import State, Worker
from ludus.server.workers.tending import Tender

if TYPE_CHECKING:
    from pathlib import Path

    from ludus.hub.endpoints.environments import Environments
    from ludus.hub.endpoints.releases import Release
    from ludus.hub.endpoints.span_relay import SpanRelay
    from ludus.hub.settings.endpoints import EndpointSettings
    from ludus.sandbox import SandboxProvider

log = logging.getLogger("ludus.hub.endpoints")

_TAIL_LINES: Final = 20
_LONGEST_RETRY: Final = 600.0


class ReleaseServer:
    """The server of one release.

    Args:
        release: the release.
        settings: the settings of the endpoints.
        environments: makes its virtual environment.
        provider: creates sandboxes.
        secret: what the gateway proves itself with.
        admit: makes room for it among the servers that run, or raises a `CapacityError`.
        admit_replica: returns whether there is room for one more process of it.
        starting: limits how many servers start at one time.
        relay: sends the spans of its processes on.
        process: the name of this process of the hub.

    Attributes:
        worker: what the gateway knows of its first process.
        replicas: all of its processes.
        ring: what its processes have written.
        in_use: how many requests it has.
        used_at: when it was last used, on the event loop's clock.
        blocked: why its wheel is blocked, so that it does not run; None if it is not.
    """

    def __init__(
        self, release: Release, settings: EndpointSettings, environments: Environments,
        provider: SandboxProvider, secret: str, admit: Callable[[ReleaseServer], None],
        admit_replica: Callable[[ReleaseServer], bool], starting: asyncio.Semaphore, relay: SpanRelay,
        process: str,
    ) -> None:  # fmt: skip
        self.release = release
        self.worker = Worker(release.worker(process))
        self.replicas = Replicas(release.title, self.worker, settings, self._serve_replica, lambda: admit_replica(self))
        self.ring = LogRing(settings.limits.log_bytes)
        self.in_use = 0
        self.blocked: str | None = None
        self.used_at = asyncio.get_running_loop().time()
        self._settings = settings
        self._environments = environments
        self._provider = provider
        self._secret = secret
        self._admit = admit
        self._starting = starting
        self._relay = relay
        self._folder: Path | None = None
        """The virtual environment while it runs."""
        self._launchers: dict[str, EndpointLauncher] = {}
        """Those of all processes, by their workers."""
        self._running: asyncio.Task[None] | None = None
        self._tender: Tender | None = None
        self._ending = False
        """Whether it is being stopped."""
        self._failure: LudusError | None = None
        self._retry_at = 0.0
        self._retries = self._new_retries()

    @property
    def running(self) -> bool:
        """Whether it runs, starts, or is between two processes."""
        return self._running is not None and not self._running.done()

    @property
    def state(self) -> Literal["ready", "starting", "failed", "stopped"]:
        """What it is doing, for metrics; `failed` until a request tries it again."""
        if self.worker.up:
            return "ready"
        if self.running:
            return "starting"
        return "failed" if self._failure is not None else "stopped"

    @property
    def load(self) -> int:
        """How many episodes all of its processes run, start, or have waiting."""
        return sum(worker.load for worker in self.replicas.workers)

    def has_lost_episodes(self, worker: Worker) -> bool:
        """Return whether a process has died since the server was started, and the next one does not serve yet."""
        if worker is not self.worker:
            return not worker.up
        if not self.running or self.worker.up or self._ending or self._tender is None:
            return False
        return bool(self._tender.environments)

    @property
    def ready(self) -> list[Worker]:
        """The workers that take new episodes; none while it is being stopped, for its replicas do not come back."""
        return [] if self._ending else self.replicas.pool.ready

    @property
    def unused(self) -> bool:
        """Whether it has no request and no episode that has not ended."""
        return not self.in_use and not self.load

    @property
    def _launcher(self) -> EndpointLauncher | None:
        return self._launchers.get(self.worker.name)

    @property
    def has_spare(self) -> bool:
        """Whether another process is ready to take over."""
        return self._launcher is not None and self._launcher.has_spare

    async def ensure(self) -> None:
        """Start it if it does not run, and wait until it serves.

        Raises:
            VersionBlocked: its wheel is blocked.
            EndpointRefused: it may not run here.
            InstallRefused: it cannot be installed.
            EndpointFailed: it does not start.
            CapacityError: too many other endpoints run.
            ShuttingDown: it takes longer than a request may wait.
        """
        if (refusal := self.refusal(about_episodes=False)) is not None:
            raise refusal
        loop = asyncio.get_running_loop()
        self.used_at = loop.time()
        limits = self._settings.limits
        installed = self._environments.folder_of(self.release).is_dir()
        seconds = limits.start_seconds + (0 if installed else limits.install_seconds)
        try:
            async with asyncio.timeout(seconds):
                while not self.worker.up:
                    if not self.running:
                        self._begin()
                    await self._up_or_ended()
                    if not self.running:
                        self._raise_failure()
        except TimeoutError:
            raise ShuttingDown(
                f"{self.release.title} is not ready after {seconds:g} s; try again", retryAfter=5.0
            ) from None

    async def _up_or_ended(self) -> None:
        """Wait until it serves, or the run has ended."""
        assert self._running is not None
        up = asyncio.ensure_future(self.worker.wait_up(float("inf")))
        try:
            await asyncio.wait({up, self._running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)

    def look(self, *, wanted: bool) -> bool:
        """Note what it is doing, and return whether it is idle and should be stopped.

        Args:
            wanted: whether it has connections that wait for nothing, but may have requests soon.
        """
        now = asyncio.get_running_loop().time()
        if not self.running:
            return False
        for launcher in self._launchers.values():
            if launcher.look() and launcher is self._launcher:
                self._retries = self._new_retries()
        if not self.unused or wanted or not self.worker.up:
            self.used_at = now
        if self._launcher is not None and self._settings.spares and self.worker.up and self.worker.load:
            self._launcher.keep_spare(self._order(self.worker))
        return now - self.used_at > self._settings.idle_seconds

    async def stop(self) -> None:
        """Stop it, if it runs, and wait until nothing of it is left."""
        running = self._running
        if running is not None and not running.done():
            self._ending = True
            self.worker.become(State.STOPPING)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    # ── one run ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        if asyncio.get_running_loop().time() < self._retry_at:
            self._raise_failure()
        self._check()
        self._admit(self)
        self._failure = None
        self._ending = False
        self.worker.become(State.STARTING)
        self._running = asyncio.get_running_loop().create_task(self._run())

    def kill_now(self) -> None:
        """Kill all of its processes without waiting for their ends."""
        for launcher in self._launchers.values():
            launcher.kill_now()

    def refusal(self, *, about_episodes: bool) -> LudusError | None:
        """Return the error for a request if its wheel is blocked: that of a lost episode, or of a version.

        Args:
            about_episodes: whether the request is about an episode that ran here.
        """
        if self.blocked is None:
            return None
        if about_episodes:
            return InfrastructureFailed(
                f"the administrator of this hub has blocked {self.release.title}, which ended the episode: "
                f"{self.blocked}", endReason="infrastructure_error",
            )  # fmt: skip
        return VersionBlocked.of(self.release.title, self.blocked)

    def _check(self) -> None:
        if (refusal := self.refusal(about_episodes=False)) is not None:
            raise refusal
        if not self.release.signed:
            raise EndpointRefused(
                f"{self.release.title} was uploaded without a signature, so it does not run here: publish it with "
                "`ludus publish`, which signs it"
            )
        grant(self.release, self._settings.limits)

    async def _run(self) -> None:
        """Install it and keep it running, until it fails or this is canceled."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with self._starting:
                    folder = await stack.enter_async_context(self._environments.using(self.release))
                self._folder = folder
                scaling = asyncio.get_running_loop().create_task(self.replicas.run())
                try:
                    await self._serve(self.worker)
                finally:
                    scaling.cancel()
                    await asyncio.shield(asyncio.ensure_future(self.replicas.close()))
        except (InstallRefused, EndpointFailed) as error:
            self._fail(error)
        except GivenUp as error:
            self._fail(self._failed(str(error)))
        except Exception as error:
            log.exception("the endpoint %s failed", self.release.title)
            self._fail(self._failed(f"the hub could not run it ({type(error).__name__}); its log has the cause"))
        finally:
            self._tender = None
            self.worker.become(State.STARTING)

    async def _serve(self, worker: Worker) -> None:
        """Keep the process of a worker running, until it retires or this is canceled.

        Raises:
            EndpointFailed: it cannot start.
            GivenUp: it ends too often soon after its start.
        """
        assert self._folder is not None
        launcher = EndpointLauncher(
            self.release, self._folder, worker, self._settings, self._provider, self.ring, self._relay
        )
        settings = self._server_settings(worker)
        tender = Tender(
            worker, self.replicas.pool, launcher, lambda: self._order(worker), settings, f"{self._secret} ".encode()
        )
        self._launchers[worker.name] = launcher
        if worker is self.worker:
            self._tender = tender
        try:
            await tender.run()
        finally:
            del self._launchers[worker.name]
            await asyncio.shield(asyncio.ensure_future(_end(tender, launcher)))
        if tender.failed.done():
            raise self._failed(tender.failed.result())

    async def _serve_replica(self, worker: Worker) -> None:
        try:
            await self._serve(worker)
        except GivenUp as error:
            raise self._failed(str(error)) from None

    def _raise_failure(self) -> None:
        """Raise the error with which the last run ended, if it did, with the time that is left until the next one."""
        if (error := self._failure) is not None:
            left = self._retry_at - asyncio.get_running_loop().time()
            facts = {**error.data, "kind": type(error).__name__, "retryAfter": max(0.0, round(left, 1))}
            raise type(error)(error.message, **facts)

    def _new_retries(self) -> Backoff:
        first = self._settings.retry_seconds
        return Backoff(first, max(_LONGEST_RETRY, first))

    def _fail(self, error: LudusError) -> None:
        log.warning("%s", error.message)
        self._failure = error
        self._retry_at = asyncio.get_running_loop().time() + self._retries.next()

    def _failed(self, why: str) -> EndpointFailed:
        tail = self.ring.tail(_TAIL_LINES)
        message = f"{self.release.title} does not run: {why}"
        return EndpointFailed(f"{message}. The end of its log:\n{tail}" if tail else message)

    def _order(self, worker: Worker) -> Order:
        settings = self._server_settings(worker)
        return Order(specs=list(self.release.specs), noise=[], settings=settings, secret=self._secret)

    def _server_settings(self, worker: Worker) -> ServerSettings:
        return ServerSettings(
            port=0, worker=worker.name, root_path=self.release.path, allow_hosts=("*",),
            limits=self._settings.limits.server, unresponsive_seconds=self._settings.unresponsive_seconds,
            shutdown_seconds=2.0,
        )  # fmt: skip


async def _end(tender: Tender, launcher: EndpointLauncher) -> None:
    try:
        await tender.stop()
    finally:
        await launcher.close()


async def stop_all(servers: list[ReleaseServer]) -> None:
    """Stop servers at the same time, and wait for that also when this is canceled."""
    stopping = asyncio.ensure_future(asyncio.gather(*(server.stop() for server in servers)))
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.shield(stopping)
    await stopping
