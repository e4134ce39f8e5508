"""The worlds that a run makes on its servers, so that none is left there.

How this works:

* Each world is written to a file in the run's folder when the server has made it, and again when it is deleted. A run
  that finds a file of an earlier process, which was killed, deletes what is left of it before it plays anything.
* A world is made in a task of its own, which goes on if its caller is canceled, so that its id is always learned.
* Branches of a recorded world that the file does not have, because the process was killed before it had the answer, are
  found on the server by their origin.
* A world that cannot be deleted, for example because its server is away, stays in the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ludus.client import Client
from ludus.protocol import errors as e
from ludus.trainer.errors import TrainerError

FILE: Final = "worlds.jsonl"
"""The name of the file in the run's folder."""

CLEAN_SECONDS: Final = 30.0
"""How long to try to delete a world."""


T = TypeVar("T")


class _Place(NamedTuple):
    client: Client
    environment: str


class WorldKeeper:
    """The record of the worlds that a run has made and not deleted yet.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, _Place] = {}
        self._kept: dict[str, str] = {}
        """The label of the environment of each world, by the world's id."""
        self._tasks = set[asyncio.Task[Any]]()

    def add(self, label: str, client: Client, environment: str) -> None:
        """Add an environment of the run: its label, its server's client, and its name there."""
        self._places[label] = _Place(client, environment)

    def __len__(self) -> int:
        """Return the number of worlds that are not deleted yet."""
        return len(self._kept)

    async def make(self, label: str, create: Callable[[], Awaitable[str]]) -> str:
        """Make a world with `create`, which returns its id, and record it. If the caller is canceled meanwhile, the
        world is deleted as soon as it is there.

        Raises:
            TrainerError: the file cannot be written to.
            Exception: what `create` raises.
        """

        async def record() -> str:
            world = await create()
            self._kept[world] = label
            self._write({"environment": label, "world": world})
            return world

        task = self._spawn(record())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._spawn(self._abandon(task))
            raise

    async def delete(self, world: str) -> None:
        """Delete a world, and before it close the episode that plays there. Goes on if the caller is canceled, raises
        no error of the server, and gives up after `CLEAN_SECONDS`: the end of the run tries again."""
        await asyncio.shield(self._spawn(self._delete(world)))

    def forget(self, world: str) -> None:
        """Remove a world that is not on the server any more from the record."""
        if self._kept.pop(world, None) is not None:
            self._write({"deleted": world})

    async def recover(self) -> None:
        """Delete the worlds that an earlier process of the run has left.

        Raises:
            TrainerError: the file cannot be read or written to.
        """
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        except OSError as error:
            raise TrainerError(f"cannot read {self._path}: {error.strerror}") from None
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):  # the last line may be cut off
                entry = json.loads(line)
                if "deleted" in entry:
                    self._kept.pop(entry["deleted"], None)
                else:
                    self._kept[entry["world"]] = entry["environment"]
        if lines:
            await self.clean_up()

    async def clean_up(self) -> None:
        """Delete all worlds of the run that are still there. Raises no error of a server."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._kept:
            await self._find_strays()
            await asyncio.gather(*[self._delete(world) for world in self._kept])
        if not self._kept:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _find_strays(self) -> None:
        """Record the branches of recorded worlds that the record does not have."""
        for label, place in self._places.items():
            if label not in self._kept.values():
                continue
            with suppress(e.LudusError, TimeoutError):
                async with asyncio.timeout(CLEAN_SECONDS):
                    worlds = await place.client.worlds(place.environment)
                self._kept |= {one.world: label for one in worlds if one.origin and one.origin.world in self._kept}

    async def _delete(self, world: str) -> None:
        place = self._places.get(self._kept.get(world, ""))
        if place is None:
            return
        with suppress(e.LudusError, TimeoutError):
            async with asyncio.timeout(CLEAN_SECONDS):
                await place.client.world(world).delete(end=True)
            self.forget(world)

    async def _abandon(self, making: asyncio.Task[str]) -> None:
        (made,) = await asyncio.gather(making, return_exceptions=True)
        if isinstance(made, str):
            await self._delete(made)

    def _spawn(self, work: Awaitable[T]) -> asyncio.Task[T]:
        async def run() -> T:
            return await work

        task = asyncio.get_running_loop().create_task(run(), name="ludus-worlds")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _write(self, entry: dict[str, str]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise TrainerError(f"cannot write {self._path}: {error.strerror}; the run can be resumed") from None
