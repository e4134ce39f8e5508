"""The worlds that a run makes on its servers, so that none is left there.

How this works:

* Each world is written to a file in the run's folder when the server has made it, and again when it is deleted. A run
  that finds a file of an earlier process, which was killed, deletes what is left of it before it plays anything.
* A world is made in a task of its own, which goes on if its caller is canceled, so that its id is always learned.
* A process can be killed before it has the answer, and then the file does not have the world. Branches of a recorded
  world are found on the server by their origin. The start in a new world is written down with its key before it is
  requested, and is requested again: while that episode is open, the server gives the same answer to the same key.
* A world that cannot be deleted, for example because its server is away, stays in the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ludus.client import Client, GroupMember, WorldChoice
from ludus.protocol import errors as e
from ludus.protocol.text import split_lines
from ludus.trainer.core.errors import TrainerError

FILE: Final = "worlds.jsonl"
"""The name of the file in the run's folder."""

CLEAN_SECONDS: Final = 30.0
"""How long to try to delete a world."""


T = TypeVar("T")


class FirstStart(NamedTuple):
    """The start of an episode in a new world."""

    key: str
    """Chosen by the run; no other start has it."""
    split: str
    task: int
    """The task's index in the split."""
    seed: int | None
    """None if the environment takes none."""

    @property
    def member(self) -> GroupMember:
        """What a client names to get the same answer each time: a group of one episode."""
        return GroupMember(self.key, 1, 0)


class _Place(NamedTuple):
    client: Client
    environment: str
    secrets: Mapping[str, str]


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
        self._starts: dict[str, tuple[str, FirstStart]] = {}
        """The label and the start, by its key, of each world that was requested and is not recorded yet."""
        self._tasks = set[asyncio.Task[Any]]()

    def add(self, label: str, client: Client, environment: str, secrets: Mapping[str, str]) -> None:
        """Add an environment of the run: its label, its server's client, its name there, and its secrets."""
        self._places[label] = _Place(client, environment, secrets)

    def __len__(self) -> int:
        """Return the number of worlds that are not deleted yet."""
        return len(self._kept)

    async def make(self, label: str, create: Callable[[], Awaitable[str]], start: FirstStart | None = None) -> str:
        """Make a world with `create`, which returns its id, and record it. If the caller is canceled meanwhile, the
        world is deleted as soon as it is there.

        Args:
            label: the environment's label.
            create: makes the world.
            start: what `create` requests, if the world is no branch.

        Raises:
            TrainerError: the file cannot be written to.
            Exception: what `create` raises.
        """

        async def record() -> str:
            if start is not None:
                self._starts[start.key] = label, start
                self._write({"environment": label, "start": start._asdict()})
            try:
                world = await create()
            except e.LudusError:
                if start is not None:
                    self._drop(start)
                raise
            self._keep(label, world, start)
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
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        except OSError as error:
            raise TrainerError(f"cannot read {self._path}: {error.strerror}") from None
        lines = [line for line in split_lines(text) if line]
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):  # the last line may be cut off
                self._read(json.loads(line))
        if lines:
            await self.clean_up()

    async def clean_up(self) -> None:
        """Delete all worlds of the run that are still there. Raises no error of a server."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.gather(*[self._find_first(label, start) for label, start in self._starts.values()])
        if self._kept:
            await self._find_strays()
            await asyncio.gather(*[self._delete(world) for world in self._kept])
        if not self._kept and not self._starts:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _find_first(self, label: str, start: FirstStart) -> None:
        """Record the world of a start whose answer an earlier process did not have. If the server did not get that
        request either, this one makes a world."""
        origin = self._places.get(label)
        if origin is None:
            return
        try:
            async with (
                asyncio.timeout(CLEAN_SECONDS),
                await origin.client.environment(origin.environment).start(
                    split=start.split, index=start.task, seed=start.seed, secrets=origin.secrets, world=WorldChoice(),
                    join=start.member,
                ) as episode,
            ):  # fmt: skip
                if episode.world is not None:
                    self._keep(label, episode.world.id, start)
        except (e.RequestError, e.EpisodeFailed):
            pass
        except (e.LudusError, TimeoutError):
            return  # the server is away: the start stays in the file
        if start.key in self._starts:  # nothing can be found, and nothing was made
            self._drop(start)

    async def _find_strays(self) -> None:
        """Record the branches of recorded worlds that the record does not have."""
        for label, origin in self._places.items():
            if label not in self._kept.values():
                continue
            with suppress(e.LudusError, TimeoutError):
                async with asyncio.timeout(CLEAN_SECONDS):
                    worlds = await origin.client.worlds(origin.environment)
                self._kept |= {row.world: label for row in worlds if row.origin and row.origin.world in self._kept}

    async def _delete(self, world: str) -> None:
        origin = self._places.get(self._kept.get(world, ""))
        if origin is None:
            return
        with suppress(e.LudusError, TimeoutError):
            async with asyncio.timeout(CLEAN_SECONDS):
                await origin.client.world(world).delete(end=True)
            self.forget(world)

    async def _abandon(self, making: asyncio.Task[str]) -> None:
        (world,) = await asyncio.gather(making, return_exceptions=True)
        if isinstance(world, str):
            await self._delete(world)

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

    def _keep(self, label: str, world: str, start: FirstStart | None) -> None:
        entry = {"environment": label, "world": world}
        if start is not None:
            self._starts.pop(start.key, None)
            entry["key"] = start.key
        self._kept[world] = label
        self._write(entry)

    def _drop(self, start: FirstStart) -> None:
        del self._starts[start.key]
        self._write({"refused": start.key})

    def _read(self, entry: dict[str, Any]) -> None:
        if "deleted" in entry:
            self._kept.pop(entry["deleted"], None)
        elif "refused" in entry:
            self._starts.pop(entry["refused"], None)
        elif "start" in entry:
            start = FirstStart(**entry["start"])
            self._starts[start.key] = entry["environment"], start
        else:
            self._kept[entry["world"]] = entry["environment"]
            self._starts.pop(entry.get("key", ""), None)

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise TrainerError(f"cannot write {self._path}: {error.strerror}; the run can be resumed") from None
