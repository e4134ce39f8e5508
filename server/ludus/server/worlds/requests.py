"""Answers the requests about worlds, once per key where they change something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ludus.protocol import worlds as w
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import Journal, WorldDeleted, WorldVersioned, check_writable, committed
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.worlds.worlds import Worlds


class WorldRequests:
    """The methods of the module `worlds`.

    Args:
        worlds: the worlds of the server.
        journal: gets what changes them.
        spawn: starts a task that the host owns.
        result_ttl_seconds: how long the results of requests are kept.
    """

    def __init__(
        self, worlds: Worlds, journal: Journal | None,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], result_ttl_seconds: float,
    ) -> None:  # fmt: skip
        self._worlds = worlds
        self._journal = journal
        self._branches = IdempotencyCache[w.BranchWorldResult](spawn, result_ttl_seconds)
        self._resets = IdempotencyCache[w.ResetWorldResult](spawn, result_ttl_seconds)

    async def list(self, params: w.ListWorldsParams, principal: Principal) -> w.ListWorldsResult:
        """Return one page of the principal's worlds."""
        return await committed(self._journal, self._worlds.list(params, principal))

    async def get(self, params: w.GetWorldParams, principal: Principal) -> w.GetWorldResult:
        """Return one world."""
        return await committed(self._journal, self._worlds.get(params, principal))

    async def branch(self, params: w.BranchWorldParams, principal: Principal) -> w.BranchWorldResult:
        """Make branches of a world."""

        async def work(digest: bytes) -> w.BranchWorldResult:
            check_writable(self._journal)
            return await self._worlds.branch(params, principal, digest)

        return await committed(self._journal, await self._branches.do(principal.name, params.key, params, work))

    async def reset(self, params: w.ResetWorldParams, principal: Principal) -> w.ResetWorldResult:
        """Bring a world back to an earlier version."""

        async def work(digest: bytes) -> w.ResetWorldResult:
            check_writable(self._journal)
            return self._worlds.reset(params, principal, digest)

        return await committed(self._journal, await self._resets.do(principal.name, params.key, params, work))

    async def delete(self, params: w.DeleteWorldParams, principal: Principal) -> w.DeleteWorldResult:
        """Delete a world."""
        check_writable(self._journal)
        return await committed(self._journal, self._worlds.delete(params, principal))

    def restore(self, entries: Iterable[WorldVersioned | WorldDeleted]) -> None:
        """Restore the keys of requests of earlier processes."""
        for owner, key, digest, result in self._worlds.results(entries):
            if isinstance(result, w.BranchWorldResult):
                self._branches.restore(owner, key, digest, result)
            else:
                self._resets.restore(owner, key, digest, result)

    def evict(self, now: float) -> None:
        """Delete worlds that were not used for long, and drop results that have expired."""
        self._worlds.evict()
        self._branches.evict(now)
        self._resets.evict(now)
