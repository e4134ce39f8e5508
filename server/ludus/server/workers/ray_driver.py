"""The process of the supervisor that is connected to a Ray cluster; see `ray_processes`.

Ray ends a process that has lost the cluster, and some of its calls block. So the connection has this process, and the
gateway goes on whatever happens to it. When it ends, its actors end, too.

It is started as `python -m ludus.server.workers.ray_driver FD`, and reads lines of JSON from its standard input:
`Options`, then calls, each with an `id`. It answers each with a line that has the `id`, in any order, and it reports
the end of a worker's process with a line that has `ended`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ray
from pydantic import BaseModel
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ludus.server.web import logs
from ludus.server.web.logs import LogFormat, LogLevel
from ludus.server.workers.orders import KILLED
from ludus.server.workers.parent import Answers, follow_parent
from ludus.server.workers.ray_node import NAMESPACE, Address, NodeProcess

log = logging.getLogger("ludus.ray")

LOCAL: Final = "local"
"""The address that starts a Ray on this machine, which ends with the server."""

LOOK_SECONDS: Final = 10.0
"""How long the cluster may take to answer a question about its nodes, before it counts as lost."""

PLACE_SECONDS: Final = 10.0
"""How long a worker may wait for a place before the log says what the cluster lacks."""

MOST_TRIES: Final = 3
"""How often a worker is placed, if the node of its actor is lost meanwhile."""

ANSWER_SECONDS: Final = 1.0
"""How long a node may take to accept a connection."""

REACH_SECONDS: Final = 5.0
"""How long the head of a cluster may take to accept a connection."""

SPARE_SECONDS: Final = 5.0
"""How long after its own limit an actor may answer."""

KILL_SECONDS: Final = 3.0
"""How long an actor may take to kill its process, before the actor is killed."""

NAME_SECONDS: Final = 15.0
"""How long the name of a server that has ended may be taken."""

NO_LUDUS: Final = "a Ray node cannot start workers; install this version of Ludus there, or leave the node out"


class Options(BaseModel):
    """How to connect, and what each worker needs."""

    parent: int
    address: str
    cpus: float
    memory: float | None
    """GiB."""
    working_dir: str | None
    log_format: LogFormat
    log_level: LogLevel


class Failed(Exception):
    """A call failed; the message says why."""


class ClusterLost(Failed):
    """The cluster does not answer."""


@dataclass
class _Placed:
    """An actor and the node that it is on."""

    actor: Any
    node: str
    died: bool = False
    """Whether the actor is known to have died."""


class Driver:
    """Answers the calls of the supervisor.

    Args:
        options: see `Options`.
        answers: where the answers go.
    """

    def __init__(self, options: Options, answers: Answers) -> None:
        self._options = options
        self._answers = answers
        self._placed: dict[int, _Placed] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._address: Any = None
        self._choices: Counter[str] = Counter()
        """How often each node was chosen here, and not by Ray."""
        self._calls = {
            "start": self.start, "serve": self.serve, "release": self._pass_on("release"),
            "leave": self._pass_on("leave"), "stop": self._pass_on("stop"), "kill": self.kill,
            "turns": self.turns, "publish": self.publish, "hosts": self.hosts,
        }  # fmt: skip

    async def run(self, orders: queue.SimpleQueue[Any]) -> None:
        """Answer calls until the order to end."""
        while (call := await asyncio.to_thread(orders.get)) is not None:
            self._spawn(self._answer(call))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: dict[str, Any]) -> None:
        identifier = call.pop("id")
        try:
            answer = await self._calls[call.pop("call")](**call)
        except ClusterLost as error:
            answer = {"error": str(error), "lost": True}
        except (Failed, RayError) as error:
            answer = {"error": _last_line(error)}
        self._answers.write({"id": identifier, **answer})

    # ── processes ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(
        self, worker: str, order: str, variables: Mapping[str, str], folder: str, seconds: float
    ) -> dict[str, Any]:
        """Start a process, and return its number and title once it has loaded its environments."""
        deadline = asyncio.get_running_loop().time() + seconds
        number = next(self._numbers)
        for tries_left in reversed(range(MOST_TRIES)):
            actor = await asyncio.to_thread(self._create, await self._strategy())
            try:
                placement = await self._place(worker, actor, deadline)
                loaded = await _load(actor, order, variables, folder, deadline)
            except (Failed, RayError) as error:
                await asyncio.to_thread(_end_actor, actor)
                if getattr(error, "actor_init_failed", False):
                    raise Failed(f"{NO_LUDUS}: {_last_line(error)}") from None
                if not tries_left or not isinstance(error, RayActorError):
                    raise
                log.warning("worker %s is placed again: %s", worker, _last_line(error))
                continue
            self._placed[number] = _Placed(actor, placement["node"])
            self._spawn(self._watch(number, self._placed[number]))
            return {"process": number, "title": loaded["title"]}
        raise Failed(f"worker {worker} found no place in the Ray cluster")

    async def _strategy(self) -> Any:
        """Return how Ray is to choose a node.

        Ray takes seconds to notice that a node is lost. A node that does not answer, but counts as alive, is avoided.
        """
        nodes = [node for node in await _nodes() if node["Alive"]]
        answers = await asyncio.gather(*map(_answers, nodes))
        if all(answers):
            return "SPREAD"
        used = Counter(placed.node for placed in self._placed.values())
        fit = [
            node for node, answer in zip(nodes, answers, strict=True)
            if answer and node["Resources"].get("CPU", 0.0) >= self._options.cpus
        ]  # fmt: skip
        if not fit:
            return "SPREAD"
        chosen = min(fit, key=lambda node: (used[node["NodeID"]], self._choices[node["NodeID"]]))
        self._choices[chosen["NodeID"]] += 1
        return NodeAffinitySchedulingStrategy(chosen["NodeID"], soft=True)

    def _create(self, strategy: Any) -> Any:
        needs: dict[str, Any] = {"num_cpus": self._options.cpus}
        if self._options.memory is not None:
            needs["memory"] = int(self._options.memory * 1024**3)
        actor = ray.remote(NodeProcess).options(
            max_restarts=0, max_task_retries=0, scheduling_strategy=strategy, max_concurrency=100, **needs
        )
        return actor.remote()

    async def _place(self, worker: str, actor: Any, deadline: float) -> Any:
        """Return where an actor is, once it is there; the log says what keeps it from being anywhere."""
        needs = f"{self._options.cpus:g} CPU" + (f" and {self._options.memory:g} GiB" if self._options.memory else "")
        placing = asyncio.ensure_future(_result(actor.node.remote()))
        while not (await asyncio.wait([placing], timeout=PLACE_SECONDS))[0]:
            has = await asyncio.to_thread(_resources)
            log.warning("worker %s waits for a Ray node with room for %s; %s", worker, needs, has)
            if asyncio.get_running_loop().time() > deadline:
                raise Failed(f"no Ray node had room for {needs} in time; {has}")
        return placing.result()

    async def _watch(self, number: int, placed: _Placed) -> None:
        """Report the end of a process."""
        try:
            status = await _result(placed.actor.wait.remote())
        except RayError:
            status, placed.died = KILLED, True
        self._answers.write({"ended": number, "status": KILLED if status is None else status})

    async def serve(self, process: int, seconds: float) -> dict[str, Any]:
        """Let a process serve, and return where it does."""
        served: dict[str, Any] = await _result(self._placed[process].actor.serve.remote(seconds))
        return served

    async def turns(self, process: int) -> dict[str, Any]:
        """Return the number of a process's last sign of life."""
        return {"turns": await _result(self._placed[process].actor.turns.remote())}

    def _pass_on(self, method: str) -> Any:
        """Return the call of a method of an actor that answers nothing."""

        async def call(process: int, seconds: float) -> dict[str, Any]:
            await _result(getattr(self._placed[process].actor, method).remote(seconds))
            if method != "release":
                await self._discard(process)
            return {}

        return call

    async def kill(self, process: int) -> dict[str, Any]:
        """Kill a process, and return whether it is certain that it has ended."""
        placed = self._placed.get(process)
        if placed is None:
            return {"certain": True}
        certain = not placed.died
        try:
            if certain:
                await asyncio.wait_for(_result(placed.actor.kill.remote()), KILL_SECONDS)
        except RayActorError:
            placed.died = True
        except (RayError, TimeoutError):
            certain = False
        if placed.died:  # and its process with it, if its node lives
            certain = await self._lives(placed.node)
        await self._discard(process)
        return {"certain": certain}

    async def _lives(self, node: str) -> bool:
        try:
            return any(entry["NodeID"] == node and entry["Alive"] for entry in await _nodes())
        except ClusterLost:
            return False

    async def _discard(self, process: int) -> None:
        """End the actor of a process that has ended, so that its place is free."""
        if (placed := self._placed.pop(process, None)) is not None:
            await asyncio.to_thread(_end_actor, placed.actor)

    # ── the cluster ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def hosts(self) -> dict[str, Any]:
        """Return the addresses of the cluster's machines."""
        return {"hosts": sorted({entry["NodeManagerAddress"] for entry in await _nodes() if entry["Alive"]})}

    async def publish(self, name: str, url: str) -> dict[str, Any]:
        """Make the address of the server known under a name; `{host}` in it is the address of this machine."""
        url = url.replace("{host}", ray.util.get_node_ip_address())
        strategy = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(Address).options(
            name=name, namespace=NAMESPACE, num_cpus=0, scheduling_strategy=strategy
        )  # fmt: skip
        deadline = asyncio.get_running_loop().time() + NAME_SECONDS
        while True:
            try:
                self._address = await asyncio.to_thread(actor.remote, url)
                await _result(self._address.url.remote())
                return {}
            except ValueError:  # a server that was killed may have its name a little longer
                if asyncio.get_running_loop().time() > deadline:
                    problem = f"the Ray cluster has a server with the name {name!r}; choose another one with --ray-name"
                    raise Failed(problem) from None
                await asyncio.sleep(0.5)


async def _load(actor: Any, order: str, variables: Mapping[str, str], folder: str, deadline: float) -> dict[str, Any]:
    """Let an actor start its process, and return the answer."""
    seconds = deadline - asyncio.get_running_loop().time()
    loading = _result(actor.load.remote(order, variables, folder, seconds))
    try:
        loaded: dict[str, Any] = await asyncio.wait_for(loading, seconds + SPARE_SECONDS)
    except TimeoutError:
        raise Failed("a worker did not start on its Ray node in time") from None
    if "error" in loaded:
        raise Failed(loaded["error"])
    return loaded


async def _result(reference: Any) -> Any:
    """Return what a call of an actor returns."""
    return await asyncio.wrap_future(reference.future())


async def _answers(node: dict[str, Any]) -> bool:
    """Return whether a node can be reached."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(node["NodeManagerAddress"], node["NodeManagerPort"])
    except OSError:
        return False
    writer.close()
    return True


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


async def _nodes() -> list[dict[str, Any]]:
    try:
        nodes: list[dict[str, Any]] = await asyncio.wait_for(asyncio.to_thread(ray.nodes), LOOK_SECONDS)
    except (RayError, TimeoutError, OSError, RuntimeError) as error:
        raise ClusterLost(f"the Ray cluster does not answer ({type(error).__name__})") from None
    return nodes


def _resources() -> str:
    """Return what the cluster has, in words."""
    with contextlib.suppress(RayError):
        total, free = ray.cluster_resources(), ray.available_resources()
        return (
            f"the cluster has {total.get('CPU', 0):g} CPU ({free.get('CPU', 0):g} free) and "
            f"{total.get('memory', 0) / 1024**3:.1f} GiB ({free.get('memory', 0) / 1024**3:.1f} free)"
        )
    return "the cluster does not answer"


def _end_actor(actor: Any) -> None:
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor)


def _check_reachable(address: str) -> None:
    """Raise `OSError` if nothing listens at an address, which Ray would notice only after a minute."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()


def connect(options: Options) -> None:
    """Connect to the cluster, or start one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0")
    _check_reachable(options.address)
    runtime = {"working_dir": options.working_dir} if options.working_dir is not None else None
    ray.init(
        address=options.address, runtime_env=runtime, namespace=NAMESPACE, logging_level=logging.WARNING,
        include_dashboard=False if options.address == LOCAL else None,
    )  # fmt: skip


def main() -> int:
    """Answer calls until the order to end, and return the exit code."""
    answers = Answers(int(sys.argv[1]))
    options = Options.model_validate_json(sys.stdin.buffer.readline())
    orders = follow_parent(options.parent)
    os.dup2(2, 1)  # what Ray prints is for the log
    logs.configure(options.log_format, options.log_level)
    try:
        connect(options)
    except Exception as error:  # Ray raises errors of many kinds
        text = str(error).strip().splitlines() or [type(error).__name__]
        answers.write({"error": text[0]})
        return 1
    answers.write({"connected": True})
    asyncio.run(Driver(options, answers).run(orders))
    ray.shutdown()
    logs.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
