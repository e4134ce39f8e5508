"""The snapshots of the policy that play as frozen opponents: their folders, and the engines that sample from them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ludus.gateway.engine import PolicyEngine
from ludus.trainer.core.checkpoints import MANIFEST
from ludus.trainer.core.errors import EngineError, TrainerError

FOLDER: Final = "opponents"
"""The folder of the snapshots in the run's folder."""
LOADED: Final = 4
"""The most engines of snapshots that are open at once: each holds its own weights and cache."""


class FrozenEngine(PolicyEngine, Protocol):
    """An engine that samples from one snapshot."""

    async def aclose(self) -> None:
        """Stop it, and free what it holds."""
        ...


Open = Callable[[Path], Awaitable[FrozenEngine]]
"""Opens the engine of the snapshot in a folder."""


@dataclass(slots=True, eq=False)
class _Entry:
    engine: asyncio.Task[FrozenEngine]
    leases: int = 0
    used: int = 0
    """When it was last used, as a count of leases."""


class FrozenPolicies:
    """The snapshots of a run. At most `loaded` engines are open at once; one that is not used makes room for another.

    Args:
        folder: holds a folder for each snapshot, by its name.
        open_engine: opens the engine of a snapshot.
        loaded: the most engines that are open at once.
    """

    def __init__(self, folder: Path, open_engine: Open, loaded: int = LOADED) -> None:
        self.folder = folder
        """The folder of the snapshots."""
        self._open_engine = open_engine
        self._loaded = loaded
        self._entries: dict[str, _Entry] = {}
        self._changed = asyncio.Condition()
        self._count = 0
        self.opened = 0
        """How many engines were opened in all."""

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[FrozenEngine]:
        """Yield the engine of a snapshot, which stays open during the body.

        Raises:
            TrainerError: the snapshot cannot be loaded.
        """
        entry = await self._entry(name)
        try:
            yield await asyncio.shield(entry.engine)
        finally:
            entry.leases -= 1
            if entry.engine.done() and (entry.engine.cancelled() or entry.engine.exception() is not None):
                self._entries.pop(name, None)
            await asyncio.shield(self._notify())

    async def _entry(self, name: str) -> _Entry:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: name in self._entries or self._has_room())
                if name in self._entries or len(self._entries) < self._loaded:
                    if name not in self._entries:
                        opening = asyncio.get_running_loop().create_task(self._open(name))
                        self._entries[name] = _Entry(opening)
                    entry = self._entries[name]
                    self._count += 1
                    entry.leases, entry.used = entry.leases + 1, self._count
                    return entry
                idle = min(
                    (item for item in self._entries.items() if not item[1].leases), key=lambda item: item[1].used
                )
                del self._entries[idle[0]]
            await _close(idle[1])

    def _has_room(self) -> bool:
        return len(self._entries) < self._loaded or any(not entry.leases for entry in self._entries.values())

    async def _open(self, name: str) -> FrozenEngine:
        self.opened += 1
        folder = self.folder / name
        try:
            return await self._open_engine(folder)
        except EngineError:
            raise
        except (TrainerError, OSError) as error:
            raise TrainerError(
                f"the frozen opponent {name} cannot be loaded: {error}. Restore {folder}, or begin a new run"
            ) from error

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def prune(self, members: Container[str], checkpoints: Path) -> None:
        """Close the engines and remove the folders of snapshots that neither are in the pool nor play. A folder that a
        checkpoint names stays, too."""
        unused = [name for name, entry in self._entries.items() if name not in members and not entry.leases]
        await asyncio.gather(*[_close(self._entries.pop(name)) for name in unused])
        await self._notify()
        await asyncio.to_thread(self._remove, members, checkpoints)

    def _remove(self, members: Container[str], checkpoints: Path) -> None:
        manifests = [path.read_text(encoding="utf-8") for path in checkpoints.glob(f"*/{MANIFEST}")]
        for path in self.folder.glob("*"):
            name = path.name
            if name in members or name in self._entries or any(f'"{name}"' in text for text in manifests):
                continue
            shutil.rmtree(path, ignore_errors=True)

    async def aclose(self) -> None:
        """Close all engines."""
        entries, self._entries = list(self._entries.values()), {}
        await asyncio.gather(*map(_close, entries))


async def _close(entry: _Entry) -> None:
    (opened,) = await asyncio.gather(entry.engine, return_exceptions=True)
    if not isinstance(opened, BaseException):
        await opened.aclose()
