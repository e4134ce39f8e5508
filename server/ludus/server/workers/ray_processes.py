"""The processes of workers, on the nodes of a Ray cluster.

How this works: Ray decides where a process runs, and starts it. An actor per process starts the ordinary process of a
worker on its node (`ray_node.py`). The gateway talks to that process directly, so no step is a call of an actor. What
is connected to Ray is a process of its own (`ray_driver.py`), with which this module exchanges lines of JSON; the
actors end with it, and it ends with the supervisor.

* The end of a process, of its actor or of its node ends the process for the `Tender`, which starts the next one.
* A node may only be out of reach, and its process alive. So a process on a node ends itself if the gateway did not ask
  it for its load for `LEASE_SECONDS`, and `kill` waits for that if neither Ray nor the process itself confirms its end.
  So there is never a second writer of a journal.
* If the cluster does not answer, or its driver has ended, the next process of a worker is started on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import logging
import os
import secrets
from pathlib import Path
from typing import Any, Final

from ludus.server.serving.serve import ServeError
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.orders import END_PATH, KILLED, Order, mark_of
from ludus.server.workers.pool import Worker
from ludus.server.workers.processes import Lines, LocalLauncher, NotStarted, Process, spawn, write_line
from ludus.server.workers.upstream import GATEWAY_HEADER, ask

log = logging.getLogger("ludus.supervisor")

CONNECT_SECONDS: Final = 60.0
"""How long the connection to a cluster may take. Starting one on this machine takes some of that."""

RECONNECT_SECONDS: Final = 8.0
"""The same after the cluster was lost."""

AVOID_SECONDS: Final = 30.0
"""How long a cluster that did not answer is not asked again."""

LEASE_SECONDS: Final = 5.0
"""How long a process with a journal goes on without a question of its gateway."""

LONG_LEASE_SECONDS: Final = 60.0
"""The same for a process without a journal."""

TURNS_SECONDS: Final = 2.0
"""How long the driver may take to say whether a process gives signs of life."""

END_SECONDS: Final = 1.0
"""How long a process may take to answer that it ends."""

EXIT_SECONDS: Final = 0.2
"""How long it then takes to end."""

CLOSE_SECONDS: Final = 10.0
"""How long the driver may take to end."""

_PASSED_ON: Final = "LUDUS_"
"""Variables of the environment that begin like this are set for the processes on the nodes, too."""


class ClusterLost(Exception):
    """The cluster does not answer, or there is none."""


class CallFailed(Exception):
    """What was asked of the cluster failed; the message says why."""


class RayConnection:
    """A connection to a cluster: the driver's process.

    Args:
        process: the driver.
        lines: what it answers.

    Attributes:
        lost: whether it has ended.
    """

    def __init__(self, process: asyncio.subprocess.Process, lines: Lines) -> None:
        self._process = process
        self._lines = lines
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._reader: asyncio.Task[None] | None = None
        self.lost = False

    @classmethod
    async def open(cls, settings: ServerSettings, seconds: float) -> RayConnection:
        """Connect to the cluster that the settings name, within so many seconds.

        Raises:
            ClusterLost: that is not possible.
        """
        process, lines = await spawn("ludus.server.workers.ray_driver")
        connection = cls(process, lines)
        folder = settings.ray_working_dir
        write_line(process, {
            "parent": os.getpid(), "address": settings.ray, "cpus": settings.ray_cpus, "memory": settings.ray_memory,
            "working_dir": str(folder.resolve()) if folder is not None else None,
            "log_format": settings.log_format, "log_level": settings.log_level,
        })  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                reply = json.loads(await lines.read() or b'{"error": "its driver ended; see the log"}')
        except TimeoutError:
            reply = {"error": f"no answer in {seconds:g} s"}
        except BaseException:
            await connection.close()
            raise
        if "error" in reply:
            await connection.close()
            raise ClusterLost(f"cannot use the Ray cluster at {settings.ray}: {reply['error']}")
        connection._reader = asyncio.get_running_loop().create_task(connection._read())
        return connection

    async def call(self, request: str, /, **parameters: Any) -> dict[str, Any]:
        """Let the driver do something, and return its answer.

        Raises:
            CallFailed: it failed.
            ClusterLost: the cluster or the driver does not answer.
        """
        if self.lost:
            raise ClusterLost("the connection to the Ray cluster has ended")
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        write_line(self._process, {"id": number, "call": request, **parameters})
        try:
            reply: dict[str, Any] = await answer
        finally:
            self._asked.pop(number, None)
        if "error" in reply:
            raise ClusterLost(reply["error"]) if reply.get("lost") else CallFailed(reply["error"])
        return reply

    def send(self, request: str, /, **parameters: Any) -> None:
        """Let the driver do something, without waiting for it."""
        if not self.lost:
            write_line(self._process, {"id": 0, "call": request, **parameters})

    def end_of(self, process: int) -> asyncio.Future[int]:
        """Return the exit status of a process, once it has ended."""
        if process not in self._ends:
            self._ends[process] = asyncio.get_running_loop().create_future()
            if self.lost:
                self._ends[process].set_result(KILLED)
        return self._ends[process]

    async def close(self) -> None:
        """End the driver, and with it all its actors."""
        if self._process.returncode is None:
            write_line(self._process, None)
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            await self._reader
        self._lines.close()

    async def _read(self) -> None:
        while line := await self._lines.read():
            message = json.loads(line)
            if "ended" in message:
                if not (end := self.end_of(message["ended"])).done():
                    end.set_result(message["status"])
            elif (answer := self._asked.get(message["id"])) is not None and not answer.done():
                answer.set_result(message)
        self.lost = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result({"error": "the connection to the Ray cluster has ended", "lost": True})
        for end in self._ends.values():
            if not end.done():
                end.set_result(KILLED)


class RayProcess:
    """A process of a worker on a node; see `Process`.

    Args:
        connection: the connection to the cluster.
        number: the driver's number of the process.
        title: what names it in the log.
        order: its order.
    """

    def __init__(self, connection: RayConnection, number: int, title: str, order: Order) -> None:
        self._connection = connection
        self._number = number
        self._order = order
        self._end = connection.end_of(number)
        self._address = Worker(order.settings.worker or "")
        self._leaving = False
        """Whether it was asked to end, and may have closed its port before."""
        self._asked_at = 0.0
        """When it was last asked for its load."""
        self.title = title
        self.environments: list[str] = []

    def note_question(self) -> None:
        """Note that it is being asked for its load, which renews its lease."""
        self._asked_at = asyncio.get_running_loop().time()

    async def turns(self) -> int:
        """Return the number of its last sign of life; see `Process.turns`."""
        try:
            async with asyncio.timeout(TURNS_SECONDS):
                answer = await self._connection.call("turns", process=self._number)
        except (CallFailed, ClusterLost, TimeoutError):
            return 0
        return int(answer["turns"])

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._end.result() if self._end.done() else None

    async def serve(self, seconds: float) -> tuple[str, int]:
        """Let it open its journal and serve; see `Process.serve`."""
        try:
            async with asyncio.timeout(seconds):
                reply = await self._connection.call("serve", process=self._number, seconds=seconds)
        except (CallFailed, ClusterLost, TimeoutError) as error:
            await self.kill()
            raise NotStarted(str(error) or "it did not start in time") from None
        self.environments = reply["environments"]
        self._address.serves_at(reply["host"], reply["port"])
        return reply["host"], reply["port"]

    async def release(self, seconds: float) -> None:
        """Let it end in order, and return once its journal is free; see `Process.release`."""
        await self._ask("release", seconds)

    async def leave(self, seconds: float) -> None:
        """Wait for its end; see `Process.leave`."""
        await self._ask("leave", seconds)

    async def stop(self, seconds: float) -> None:
        """Let it end in order, and wait for that; see `Process.stop`."""
        await self._ask("stop", seconds)

    async def _ask(self, call: str, seconds: float) -> None:
        self._leaving = True
        try:
            async with asyncio.timeout(seconds + 2):
                await self._connection.call(call, process=self._number, seconds=seconds)
        except (CallFailed, ClusterLost, TimeoutError):
            await self.kill()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await asyncio.shield(self._end)

    async def kill(self) -> None:
        """Kill it, and return once it has certainly ended."""
        try:
            certain = (await self._connection.call("kill", process=self._number))["certain"]
        except (CallFailed, ClusterLost):
            certain = False
        if not certain and not await self._ended_at_once() and self._order.settings.journal is not None:
            seconds_left = self._asked_at + LEASE_SECONDS + 1 - asyncio.get_running_loop().time()
            if seconds_left > 0:
                log.warning("%s cannot be reached; its successor waits %.1f s for its end", self.title, seconds_left)
                await asyncio.sleep(seconds_left)
        if not self._end.done():
            self._end.set_result(KILLED)

    async def _ended_at_once(self) -> bool:
        """Ask the process itself to end, and return whether it certainly has."""
        if not self._address.port:  # it does not serve yet, so it has no journal
            return True
        headers = [(b"host", b"localhost"), (GATEWAY_HEADER, f"{self._order.secret} ".encode())]
        try:
            async with asyncio.timeout(END_SECONDS):
                await ask(self._address, b"POST", END_PATH.encode(), headers)
        except ConnectionRefusedError:
            return not self._leaving
        except OSError:
            return False
        await asyncio.sleep(EXIT_SECONDS)
        return True

    def kill_now(self) -> None:
        """Kill it without waiting for its end."""
        self._connection.send("kill", process=self._number)


class RayLauncher:
    """Starts processes on the nodes of a cluster, and on this machine if the cluster is lost.

    Args:
        settings: the settings of the server; `ray` names the cluster.

    Raises:
        ServeError: Ray is not installed.
    """

    def __init__(self, settings: ServerSettings) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ServeError("--ray needs the package ray; install it with: pip install 'ludus-rl[ray]'")
        self._settings = settings
        self._connection: RayConnection | None = None
        self._connecting = asyncio.Lock()
        self._local = LocalLauncher()
        self._mark = secrets.token_hex(16)
        self._published: tuple[str, str] | None = None
        self._known = False
        """Whether the cluster has ever started a process."""
        self._lost_until = 0.0
        """Until when the cluster is not asked, because it did not answer."""

    async def start(self, order: Order, seconds: float) -> Process:
        """Start a process, and return it once it has loaded its environments; see `Launcher.start`."""
        on_node = self._for_node(order)
        try:
            connection = await self._connect()
            reply = await connection.call(
                "start", worker=order.settings.worker, order=on_node.model_dump_json(),
                variables={name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)},
                folder="" if self._settings.ray_working_dir is not None else os.getcwd(), seconds=seconds,
            )  # fmt: skip
        except CallFailed as error:
            raise NotStarted(str(error)) from None
        except ClusterLost as error:
            if not self._known:
                raise NotStarted(str(error)) from None
            log.error("%s; worker %s is started on this machine", error, order.settings.worker)
            return await self._local.start(order, seconds)
        self._known = True
        return RayProcess(connection, reply["process"], reply["title"], on_node)

    async def publish(self, name: str, settings: ServerSettings, port: int) -> None:
        """Make the server's address known in the cluster, as long as the server runs.

        Args:
            name: the name under which clients find it.
            settings: the settings of the server.
            port: the port that it listens on.

        Raises:
            ServeError: another server has the name, or the cluster is lost.
        """
        everywhere = settings.host in ("0.0.0.0", "::")
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = settings.public_url or f"http://{'{host}' if everywhere else host}:{port}"
        try:
            await (await self._connect()).call("publish", name=name, url=url)
        except (CallFailed, ClusterLost) as error:
            raise ServeError(str(error)) from None
        self._published = name, url

    async def close(self) -> None:
        """End the connection to the cluster, and with it all its actors."""
        if self._connection is not None:
            await self._connection.close()
        if self._settings.journal is not None:
            for file in self._settings.journal.parent.glob(f"{self._settings.journal.name}.*.mark"):
                with contextlib.suppress(OSError):
                    file.unlink()

    async def _connect(self) -> RayConnection:
        """Return a connection to the cluster, a new one if that before was lost.

        Raises:
            ClusterLost: there is none.
        """
        async with self._connecting:
            if asyncio.get_running_loop().time() < self._lost_until:
                raise ClusterLost("the Ray cluster does not answer")
            if self._connection is None or self._connection.lost:
                again = self._connection is not None
                seconds = RECONNECT_SECONDS if again else CONNECT_SECONDS
                try:
                    self._connection = await RayConnection.open(self._settings, seconds)
                except ClusterLost:
                    self._lost_until = asyncio.get_running_loop().time() + AVOID_SECONDS
                    raise
                hosts = (await self._connection.call("hosts"))["hosts"]
                if len(hosts) > 1 and self._settings.journal is not None:
                    log.warning(
                        "the Ray cluster has %d machines: the journals must be on a file system that all of them have, "
                        "with locks that work between machines", len(hosts),
                    )  # fmt: skip
                if again and self._published is not None:
                    with contextlib.suppress(CallFailed):
                        await self._connection.call("publish", name=self._published[0], url=self._published[1])
            return self._connection

    def _for_node(self, order: Order) -> Order:
        """Return an order as another machine needs it: with absolute paths, a lease, and the mark of the folder."""
        settings = order.settings
        files = {
            name: path.resolve()
            for name in ("journal", "token_file", "capability_key_file", "usage_file")
            if isinstance(path := getattr(settings, name), Path)
        }
        changed: dict[str, Any] = {**files, "difficulty": tuple(path.resolve() for path in settings.difficulty)}
        owner_mark, lease = None, LONG_LEASE_SECONDS
        if "journal" in files:
            owner_mark, lease = self._mark, LEASE_SECONDS
            mark_of(files["journal"]).write_text(owner_mark, "utf-8")
        return order.model_copy(
            update={"settings": settings.model_copy(update=changed), "lease_seconds": lease, "mark": owner_mark}
        )
