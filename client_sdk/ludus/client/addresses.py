"""Addresses of servers and tasks: values that pickle, for trainers that fork, spawn workers or send tasks as JSON.

How this works:

* An address holds no connection and no credential. The token is read from an environment variable of the process that
  connects, so an address may be written into a dataset or sent to another machine.
* `ServerAddress.client` shares one client in each event loop of each process: the first block that is entered connects
  it, and the last one that is left closes it. So many workers of one loop share one connection.
* A forked child runs an event loop of its own, and so it has clients of its own.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ludus.client.connecting import TOKEN_VARIABLE, WireName, connect
from ludus.protocol.errors import InvalidParams

if TYPE_CHECKING:
    from ludus.client.client import Client
    from ludus.client.driver import Driver
    from ludus.client.environment import GroupMember
    from ludus.client.formats import FormatName
    from ludus.protocol.episodes import EpisodeLimits


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server. Making it sends no request."""

    url: str
    """`http://host:port` or `https://…`, as for `connect`."""
    wire: WireName = "auto"
    """How to talk to the server; see `connect`."""
    token_variable: str = TOKEN_VARIABLE
    """The environment variable with the token; a server on loopback needs none."""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Yield the client of this address in the running event loop. The last block that is left closes it.

        Raises:
            ValueError: `url` is not the address of a server, or there is no such wire.
        """
        shared = _clients.setdefault(asyncio.get_running_loop(), {})
        entry = shared.get(self)
        if entry is None:
            client = connect(self.url, token=os.environ.get(self.token_variable), wire=self.wire)
            entry = shared[self] = _Shared(client)
        entry.users += 1
        try:
            yield entry.client
        finally:
            entry.users -= 1
            if entry.users == 0:
                shared.pop(self, None)
                await entry.client.close()

    def task(self, environment: str, split: str, task: str, seed: int | None = None) -> TaskAddress:
        """Return the address of a task."""
        return TaskAddress(self, environment, split, task, seed)


@dataclass(frozen=True, slots=True)
class TaskAddress:
    """The address of a task on a server, with the seed of its episodes."""

    server: ServerAddress
    environment: str
    """The environment's name."""
    split: str
    task: str
    """The task's id."""
    seed: int | None = None
    """The seed of each episode; drawn by the server when None."""

    @asynccontextmanager
    async def drive(
        self,
        *,
        form: FormatName = "openai-chat",
        limits: EpisodeLimits | None = None,
        join: GroupMember | None = None,
    ) -> AsyncIterator[Driver]:
        """Start an episode of the task and close it when the block is left; see `RemoteEnvironment.drive`."""
        async with self.server.client() as client:
            environment = client.environment(self.environment)
            async with environment.drive(
                form=form, split=self.split, task=self.task, seed=self.seed, limits=limits, join=join
            ) as driver:
                yield driver

    def to_json(self) -> dict[str, Any]:
        """Return the address as a JSON object, the `ludus` field of exported rows."""
        return {
            "url": self.server.url,
            "wire": self.server.wire,
            "token_variable": self.server.token_variable,
            "environment": self.environment,
            "split": self.split,
            "task": self.task,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the address in a JSON object that `to_json` wrote.

        Raises:
            InvalidParams: it is not such an object; the message names the field.
        """
        fields = dict(value) if isinstance(value, Mapping) else {}
        texts = ("url", "wire", "token_variable", "environment", "split", "task")
        wrong = [name for name in texts if not isinstance(fields.get(name), str)]
        seed = fields.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int | None):
            wrong.append("seed")
        wrong += sorted(fields.keys() - {*texts, "seed"})
        if wrong:
            raise InvalidParams(f"not the address of a task: {', '.join(wrong)} is missing, unknown or of a wrong type")
        server = ServerAddress(fields["url"], fields["wire"], fields["token_variable"])
        return cls(server, fields["environment"], fields["split"], fields["task"], seed)


@dataclass(slots=True)
class _Shared:
    """A client with the number of blocks that use it."""

    client: Client
    users: int = 0


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerAddress, _Shared]] = (
    weakref.WeakKeyDictionary()
)
"""The clients in use, by event loop."""
