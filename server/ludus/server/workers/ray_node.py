"""What runs on the nodes of a Ray cluster: an actor for each process of a worker, and one for the server's address.

An actor starts the ordinary process of a worker (`child.py`) next to itself, and passes on what the supervisor wants
of it. No step passes through an actor: the gateway talks to the process directly. Ray never restarts an actor, and the
process dies with it.

Ray loads this module by its name, so every node needs the same version of Ludus.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ray

from ludus.server.workers.orders import Order, mark_of
from ludus.server.workers.processes import LocalLauncher, LocalProcess, NotStarted

NAMESPACE = "ludus"
"""Ray's namespace of the addresses of servers."""


class NodeProcess:
    """An actor that has one process of a worker on its node. An answer with `error` says why something failed."""

    def __init__(self) -> None:
        self._process: LocalProcess | None = None

    async def node(self) -> dict[str, Any]:
        """Return where the actor is."""
        return {"host": ray.util.get_node_ip_address(), "node": ray.get_runtime_context().get_node_id()}

    async def load(self, order: str, variables: Mapping[str, str], folder: str, seconds: float) -> dict[str, Any]:
        """Start the process; see `Launcher.start`.

        Args:
            order: the order, as JSON.
            variables: variables of the process's environment.
            folder: the folder in which it runs, if that exists here.
            seconds: how long it may take.
        """
        host = ray.util.get_node_ip_address()
        placed = place(Order.model_validate_json(order), host)
        if isinstance(placed, str):
            return {"error": placed}
        launcher = LocalLauncher(variables, folder if os.access(folder, os.X_OK) else None)
        try:
            self._process = await launcher.start(placed, seconds)
        except NotStarted as error:
            return {"error": str(error)}
        return {"title": f"{self._process.title} on the Ray node {host}"}

    async def serve(self, seconds: float) -> dict[str, Any]:
        """Let it serve; see `Process.serve`."""
        try:
            host, port = await self._own.serve(seconds)
        except NotStarted as error:
            return {"error": str(error)}
        return {"host": host, "port": port, "environments": self._own.environments}

    async def turns(self) -> int:
        """Return the number of its last sign of life; see `Process.turns`."""
        return await self._own.turns()

    async def release(self, seconds: float) -> None:
        """Let it free its journal; see `Process.release`."""
        await self._own.release(seconds)

    async def leave(self, seconds: float) -> None:
        """Wait for its end; see `Process.leave`."""
        await self._own.leave(seconds)

    async def stop(self, seconds: float) -> None:
        """Let it end in order; see `Process.stop`."""
        await self._own.stop(seconds)

    async def kill(self) -> None:
        """Kill it, and wait for its end."""
        if self._process is not None:
            await self._process.kill()

    async def wait(self) -> int | None:
        """Wait for its end, and return its exit status."""
        await self._own.wait()
        return self._own.status

    @property
    def _own(self) -> LocalProcess:
        assert self._process is not None
        return self._process


class Address:
    """An actor that knows the address of a server, under whose name it is found; it ends with the server.

    Args:
        url: the address.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def url(self) -> str:
        """Return the address."""
        return self._url


def place(order: Order, host: str) -> Order | str:
    """Return an order as it is for this node; or why the worker cannot be here.

    Args:
        order: the order of the supervisor.
        host: the address of this node.
    """
    settings = order.settings
    if order.mark is not None and settings.journal is not None:
        file = mark_of(settings.journal)
        try:
            content = file.read_text("utf-8")
        except OSError:
            content = None
        if content != order.mark:
            return (
                f"the Ray node {host} does not share the folder of the journals ({file.parent}) with the supervisor, "
                "so no other node would find the episodes: put the journals on a file system that all nodes have, or "
                "serve without --journal"
            )
    if settings.usage_file is not None and not os.access(settings.usage_file.parent, os.W_OK):
        settings = settings.model_copy(update={"usage_file": None})
    return order.model_copy(update={"host": host, "settings": settings})
