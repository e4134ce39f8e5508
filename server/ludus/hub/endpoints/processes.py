"""The server processes of an endpoint: one serves, and one more may be ready to take its place.

How this works:

* A process runs in a sandbox of its own: own user id, no network but its own loopback, no file of this machine except
  the system, the hub's installation and its virtual environment, all read-only, and no environment variable but those
  of the sandbox and the secrets that the operator has granted. Its files lie in memory and end with it.
* The hub writes its orders to its standard input and reads its answers from its standard output, as the gateway does
  with workers (`ludus.server.workers.orders`); while it serves, its spans arrive there (`span_relay.py`). Standard
  error goes to the endpoint's log.
* The hub's connections are made inside the sandbox and handed out, so no address of this machine is opened.
* The sandbox ends with the hub, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ludus.hub.endpoints.places import ENVIRONMENT, shown_packages
from ludus.hub.endpoints.resources import grant
from ludus.hub.endpoints.sandboxes import ProcessSandboxes
from ludus.protocol.errors import LudusError
from ludus.sandbox import Limits, Process, Sandbox, SandboxProvider, SandboxSettings
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.core.errors import SandboxFailed, SandboxPortClosed
from ludus.server.workers.orders import KILLED, SERVE, Order
from ludus.server.workers.processes import NotStarted
from ludus.server.workers.tending import LONG_LIFE_SECONDS

if TYPE_CHECKING:
    from ludus.hub.endpoints.logs import LogRing
    from ludus.hub.endpoints.releases import Release
    from ludus.hub.endpoints.span_relay import SpanRelay
    from ludus.hub.settings.endpoints import EndpointSettings
    from ludus.server.workers.pool import Worker

log = logging.getLogger("ludus.hub.endpoints")

UNSAFE: Final = "unsafe-local"
"""The sandbox of a hub whose operator runs own packages without one."""

STOP_SECONDS: Final = 5.0
"""How long a process may take to end after it was asked to."""

LOG_SECONDS: Final = 1.0
"""How long a process that cannot start may take to end by itself, and what it has written to be read."""

SPANS_SECONDS: Final = 2.0
"""How long the spans that a process has left behind may take to be read."""

ReadSpans = Callable[[Process], Coroutine[Any, Any, None]]

_FOREVER: Final = 1e9
_ENDLESS: Final = 2**60


class GivenUp(Exception):
    """The processes of an endpoint have ended too often soon after their start."""


class EndpointProcess:
    """A server process of an endpoint; it is what `ludus.server.workers.processes.Process` describes.

    Args:
        box: the sandbox, which ends with the process.
        sandboxes: those that the process has itself; None if it can have none.
        process: the process.
        worker: the worker that it is going to be.
        ring: gets what it writes.
        read_spans: sends its spans on until its output ends; None if it writes none.
    """

    def __init__(
        self, box: Sandbox, sandboxes: ProcessSandboxes | None, process: Process, worker: Worker, ring: LogRing,
        read_spans: ReadSpans | None = None,
    ) -> None:  # fmt: skip
        self.title = "sandbox"
        self.environments: list[str] = []
        self._box = box
        self._sandboxes = sandboxes
        self._process = process
        self._worker = worker
        self._lost = False
        self._closing: asyncio.Task[None] | None = None
        self._reading = asyncio.get_running_loop().create_task(_read_log(process, ring))
        self._read_spans = read_spans
        self._spans: asyncio.Task[None] | None = None

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        end = self._process.end
        if end is None:
            return KILLED if self._lost else None
        return end.exit_code if end.exit_code is not None else -(end.signal or 0)

    @property
    def ending(self) -> str:
        """How it ended; empty while it runs."""
        return str(self._process.end.ending) if self._process.end is not None else ""

    @property
    def closed(self) -> bool:
        """Whether it has ended, and nothing is left of it."""
        return self._closing is not None and self._closing.done()

    def note_question(self) -> None:
        """Do nothing: such a process can always be killed."""

    async def turns(self) -> int:
        """Return that no sign of life is known: untrusted code would only pretend to give some."""
        return 0

    async def load(self, order: Order, seconds: float) -> None:
        """Give it its order, and wait until it has loaded its environments.

        Raises:
            NotStarted: it cannot, or not within so many seconds; it has ended.
        """
        await self._write(order.model_dump(mode="json"))
        await self._answer(seconds)

    async def serve(self, seconds: float) -> tuple[str, int]:
        """Let it serve, and return its host and port inside the sandbox."""
        await self._write(SERVE)
        said = await self._answer(seconds)
        try:
            port, names = int(said["port"]), [str(name) for name in said["environments"]]
        except (KeyError, TypeError, ValueError):
            await self.kill()
            raise NotStarted("its process answered nonsense") from None
        self.environments = names
        self._worker.dial = lambda: self._dial(port)
        if self._read_spans is not None:
            self._spans = asyncio.get_running_loop().create_task(self._read_spans(self._process))
        return "127.0.0.1", port

    async def release(self, seconds: float) -> None:
        """Let it end in order; an endpoint has no journal that another process could open."""
        await self.stop(seconds)

    async def stop(self, seconds: float) -> None:
        """Let it end in order, and wait for that; kill it after so many seconds."""
        await self._process.signal(signal.SIGTERM)
        await self.leave(min(seconds, STOP_SECONDS))

    async def leave(self, seconds: float) -> None:
        """Wait for its end; kill it after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def wait(self) -> None:
        """Wait until it has ended, and remove its sandbox."""
        try:
            await self._process.wait()
        except SandboxFailed:
            self._lost = True
        await self._close()

    async def kill(self) -> None:
        """Kill it with everything in its sandbox, and wait for its end."""
        self._process.request_kill()
        await self._close()

    def kill_now(self) -> None:
        """Kill it without waiting for its end."""
        self._process.request_kill()

    async def _close(self) -> None:
        """Remove everything of the process; a caller that is canceled leaves it to go on."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_once())
        await asyncio.shield(self._closing)

    async def _close_once(self) -> None:
        # The output cannot be read after the sandbox is closed, and its end says why the process does not run.
        await asyncio.wait({self._reading}, timeout=LOG_SECONDS)
        await self._box.aclose()
        if self._sandboxes is not None:
            await self._sandboxes.aclose()
        self._lost = self._lost or self._process.end is None
        await asyncio.gather(self._reading, return_exceptions=True)
        if self._spans is not None:
            await asyncio.wait({self._spans}, timeout=SPANS_SECONDS)
            self._spans.cancel()
            await asyncio.gather(self._spans, return_exceptions=True)

    async def _dial(self, port: int) -> socket.socket:
        """Return a connection to the process.

        Raises:
            OSError: it does not accept it.
        """
        try:
            return await self._box.connect(port)
        except (SandboxPortClosed, SandboxFailed) as error:
            raise ConnectionRefusedError(error.message) from None

    async def _write(self, line: object) -> None:
        try:
            await self._process.write(json.dumps(line).encode() + b"\n")
        except LudusError:  # it has ended, which its answer will say
            return

    async def _answer(self, seconds: float) -> dict[str, Any]:
        """Return what it answers.

        Raises:
            NotStarted: it says why it cannot, ends without a word, or does not answer in time; it has ended.
        """
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.read_line()
            said = json.loads(line) if line else {"error": "its process ended before it served"}
        except TimeoutError:
            self.kill_now()
            said = {"error": f"it did not start within {seconds:g} s"}
        except (ValueError, SandboxFailed):
            self.kill_now()
            said = {"error": "its process answered nonsense, or its sandbox was lost"}
        if not isinstance(said, dict) or "error" in said:
            # A process that has said why ends by itself, and its exit code says more than a kill.
            await self.leave(LOG_SECONDS)
            why = str(said["error"]) if isinstance(said, dict) else "its process answered nonsense"
            raise NotStarted(f"{why} ({self.ending})" if self.ending else why)
        return said


class EndpointLauncher:
    """Starts the processes of one release, and keeps one more ready when that is wanted.

    Args:
        release: the release.
        folder: its virtual environment.
        worker: the worker that its processes are.
        settings: the settings of the endpoints.
        provider: creates sandboxes.
        ring: gets what the processes write.
        relay: sends their spans on.
    """

    def __init__(
        self, release: Release, folder: Path, worker: Worker, settings: EndpointSettings,
        provider: SandboxProvider, ring: LogRing, relay: SpanRelay,
    ) -> None:  # fmt: skip
        self._release = release
        self._folder = folder
        self._worker = worker
        self._settings = settings
        self._provider = provider
        self._ring = ring
        self._relay = relay
        self._spare: asyncio.Task[EndpointProcess] | None = None
        self._processes: list[EndpointProcess] = []
        """Those of which something may be left."""
        self._starts: list[float] = []
        """When the last processes were started that have not lived long."""
        self._up_since = 0.0

    async def start(self, order: Order, seconds: float) -> EndpointProcess:
        """Return the process that is ready, or start one; see `Launcher.start`.

        Raises:
            NotStarted: it cannot load its environments, or not in time.
            GivenUp: the processes before have ended too soon, too many times in turn.
        """
        self._count_start()
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                process = await spare
                if process.status is None:
                    return process
                await process.kill()
            except NotStarted:
                pass  # start one as if there had been none
        return await self._start(order, min(seconds, self._settings.limits.start_seconds))

    def look(self) -> bool:
        """Return whether the process has lived long enough for its end to be no failed start, and note that."""
        now = asyncio.get_running_loop().time()
        self._up_since = (self._up_since or now) if self._worker.up else 0.0
        if not self._up_since or now - self._up_since <= LONG_LIFE_SECONDS:
            return False
        self._starts.clear()
        return True

    @property
    def has_spare(self) -> bool:
        """Whether a process is ready to take over."""
        return self._spare is not None and self._spare.done() and _usable(self._spare)

    def keep_spare(self, order: Order) -> None:
        """Start a process that is not needed yet."""
        if self._spare is None or (self._spare.done() and not _usable(self._spare)):
            seconds = self._settings.limits.start_seconds
            self._spare = asyncio.get_running_loop().create_task(self._start(order, seconds))
            self._spare.add_done_callback(_forget)

    async def drop_spare(self) -> None:
        """End the process that is not needed."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()
            done = await asyncio.gather(spare, return_exceptions=True)
            if isinstance(done[0], EndpointProcess):
                await done[0].kill()

    def kill_now(self) -> None:
        """Kill every process that it has started, without waiting for their ends."""
        for process in self._processes:
            process.kill_now()

    async def close(self) -> None:
        """End every process that it has started, and wait until nothing of them is left."""
        await self.drop_spare()
        await asyncio.gather(*(process.kill() for process in self._processes))

    async def _start(self, order: Order, seconds: float) -> EndpointProcess:
        sandboxed = self._settings.sandbox != UNSAFE
        settings = self._sandbox_settings()
        sandboxes = self._sandboxes(settings)
        try:
            box = await (self._provider if sandboxes is None else sandboxes).create(settings)
        except LudusError as error:
            raise NotStarted(f"it has no sandbox: {error.message}") from None
        try:
            python = f"{ENVIRONMENT if sandboxed else self._folder.resolve()}/bin/python"
            argv = [python, "-I", "-B", "-m", "ludus.hub.endpoints.child"]
            traces = self._relay.variables()
            process = await box.spawn(argv, env={**self._secrets(), **traces})
        except BaseException as error:
            await box.aclose()
            if sandboxes is not None:
                await sandboxes.aclose()
            if isinstance(error, LudusError):
                raise NotStarted(f"its process cannot be started: {error.message}") from None
            raise
        read = partial(self._relay.read, release=self._release, worker=self._worker.name, note=self._ring.add)
        found = EndpointProcess(box, sandboxes, process, self._worker, self._ring, read if traces else None)
        self._processes = [one for one in self._processes if not one.closed] + [found]
        try:
            await found.load(order, seconds)
        except BaseException:
            await found.kill()
            raise
        return found

    def _sandboxes(self, settings: SandboxSettings) -> ProcessSandboxes | None:
        """Return the place of a process and of its sandboxes; None where processes have no bubblewrap sandbox."""
        if not isinstance(self._provider, Bubblewrap):
            return None
        return ProcessSandboxes(
            self._provider, self._release.title, settings.limits, self._settings.limits.sandboxes,
            known=tuple((inside, outside) for outside, inside in settings.readonly), network=settings.network,
            note=self._ring.add,
        )  # fmt: skip

    def _sandbox_settings(self) -> SandboxSettings:
        release, given = self._release, self._settings.limits
        granted = grant(release, given)
        limits = Limits(
            memory=granted.memory, processes=given.processes, disk=granted.disk, file_size=given.file_size,
            traffic=given.traffic, spawned=1, spawned_seconds=_FOREVER, spawned_cpu_seconds=_FOREVER,
            spawned_output=_ENDLESS,
        )  # fmt: skip
        if self._settings.sandbox == UNSAFE:
            return SandboxSettings(provider=UNSAFE, limits=limits, loopback=True, warm=0)
        connected = {release.id, "*"} & set(self._settings.network)
        shown = ((str(self._folder.resolve()), ENVIRONMENT), *shown_packages())
        return SandboxSettings(
            provider=self._settings.sandbox, limits=limits, readonly=shown, loopback=True, warm=0,
            network=release.network if connected else (),
        )  # fmt: skip

    def _secrets(self) -> Mapping[str, str]:
        given = self._settings.secrets.get(self._release.id, {})
        return {name: given[name] for name in self._release.secrets if name in given}

    def _count_start(self) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._starts) >= self._settings.crashes:
            self._starts.clear()
            raise GivenUp(f"its process ended {self._settings.crashes} times in turn soon after it had started")
        self._starts.append(now)


async def _read_log(process: Process, ring: LogRing) -> None:
    try:
        while line := await process.stderr.read_line():
            ring.add(line.decode("utf-8", "replace"))
    except SandboxFailed:
        return
    end = await process.wait()
    ring.add(f"[the process ended: {end.ending}]")


def _usable(spare: asyncio.Task[EndpointProcess]) -> bool:
    return not spare.cancelled() and spare.exception() is None and spare.result().status is None


def _forget(task: asyncio.Task[EndpointProcess]) -> None:
    if not task.cancelled():
        task.exception()
