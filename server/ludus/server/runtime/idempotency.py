"""Runs work once per key: repeated requests wait for the first one and get its outcome."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from ludus.common.incidents import new_incident
from ludus.protocol.errors import EpisodeFailed, InternalError, KeyConflict, LudusError, ShuttingDown
from ludus.protocol.model import WireModel

log = logging.getLogger("ludus.server.hosting.host")
T = TypeVar("T")


class _Slot(Generic[T]):
    __slots__ = ("digest", "error", "expires", "task", "value")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.value: T | None = None
        self.error: LudusError | None = None
        self.expires = 0.0
        self.task: asyncio.Task[None] | None = None


class IdempotencyCache(Generic[T]):
    """A cache of outcomes by principal and key.

    A request that changed nothing (no room, bad params) frees its key, so that it can be repeated; an episode that
    failed keeps its key, because the author's code has run.

    Args:
        spawn: starts a task that the host owns.
        result_ttl_seconds: the least time for which an outcome is kept.
        in_use: whether a value is still needed, for outcomes that are kept as long as the episodes they hold.
    """

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        result_ttl_seconds: float,
        in_use: Callable[[T], bool] = lambda value: False,
    ) -> None:
        self._spawn = spawn
        self._result_ttl_seconds = result_ttl_seconds
        self._in_use = in_use
        self._loop = asyncio.get_running_loop()
        self._slots: dict[tuple[str, str], _Slot[T]] = {}

    @property
    def pending(self) -> int:
        """How many requests are in progress."""
        return sum(1 for slot in self._slots.values() if slot.task is not None)

    async def do(self, owner: str, key: str, params: WireModel, work: Callable[[bytes], Awaitable[T]]) -> T:
        """Run `work` if the key is new, and return its outcome either way. Canceling the wait does not stop the work.

        `work` gets the digest of the params, for journals: `restore` takes it.

        Raises:
            KeyConflict: the key was used with other params.
            LudusError: the work raised it.
        """
        digest = hashlib.blake2b(params.model_dump_json().encode(), digest_size=16).digest()
        slot = self._slots.get((owner, key))
        if slot is None:
            slot = self._slots[owner, key] = _Slot(digest)
            slot.task = self._spawn(self._fill(slot, (owner, key), partial(work, digest)))
        elif slot.digest != digest:
            raise KeyConflict(f"the key {key!r} was used for another request; use a new key", key=key)
        if slot.task is not None:
            await asyncio.wait([slot.task])
        if slot.error is not None:
            raise type(slot.error)(slot.error.message, **slot.error.data)
        assert slot.value is not None
        return slot.value

    def restore(self, owner: str, key: str, digest: bytes, value: T) -> None:
        """Set the outcome of a key that an earlier process has used."""
        slot = self._slots[owner, key] = _Slot(digest)
        slot.value = value
        slot.expires = self._loop.time() + self._result_ttl_seconds

    def __iter__(self) -> Iterator[tuple[str, str, T]]:
        """Iterate over the owner, the key and the outcome of each request that has succeeded."""
        return iter([(*name, slot.value) for name, slot in self._slots.items() if slot.value is not None])

    def evict(self, now: float, *, short_of_room: bool = False) -> None:
        """Drop outcomes that have expired and are not in use; if there is no room, those that have not, too.

        An error is kept until it expires: without it, what has failed would run again.
        """
        for name in [
            name
            for name, slot in self._slots.items()
            if slot.task is None
            and (slot.expires < now or (short_of_room and slot.value is not None))
            and not (slot.value is not None and self._in_use(slot.value))
        ]:
            del self._slots[name]

    async def _fill(self, slot: _Slot[T], name: tuple[str, str], work: Callable[[], Awaitable[T]]) -> None:
        try:
            slot.value = await work()
        except EpisodeFailed as error:
            slot.error = error
        except LudusError as error:
            slot.error = error
            self._slots.pop(name, None)
        except asyncio.CancelledError:
            slot.error = ShuttingDown("the server stopped before it was done; ask again elsewhere, or when it is back")
        except GeneratorExit:
            raise
        except BaseException as error:
            incident = new_incident()
            log.exception("a request failed inside the server (incident %s)", incident)
            slot.error = InternalError(f"the server itself failed ({type(error).__name__})", incident=incident)
            self._slots.pop(name, None)
        slot.expires = self._loop.time() + self._result_ttl_seconds
        slot.task = None
