"""The places of a server's episodes: those that the server has, and those that each principal may take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from ludus.protocol.errors import CapacityError
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Account, Quotas
from ludus.server.durability.journal import Journal
from ludus.server.runtime.episode import Episode, EpisodeStore
from ludus.server.runtime.limits import Capacity, ServerLimits

SURVEY_SECONDS: Final = 1.0
"""How often stored bytes are counted, and dead processes looked for."""

AT_ONCE: Final = 1000
"""How many episodes are counted in one turn of the event loop."""


class Places:
    """Counts the episodes that start or run, for the server and for each principal.

    Args:
        limits: the limits of the server.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.quotas = Quotas()
        """What principals may use; set before the first episode starts."""
        self._capacity = Capacity(limits.max_episodes, limits.max_queue, limits.queue_seconds)

    @property
    def queued(self) -> int:
        """The number of starts that wait for places."""
        return self._capacity.queued

    async def acquire(self, principal: Principal, count: int) -> Account:
        """Take places for a principal's episodes, waiting for those of the server in turn, and return its account.

        Raises:
            CapacityError: the principal may not have so many, or the server has no room in time.
        """
        account = self.quotas.account_of(principal.name)
        account.open(count)
        try:
            await self._capacity.acquire(count)
        except BaseException:
            account.close(count)
            raise
        return account

    def release(self, account: Account | None, count: int) -> None:
        """Give places back."""
        if account is not None:
            account.close(count)
        self._capacity.release(count)

    def restore(self, episodes: Iterable[Episode]) -> None:
        """Give places to the running episodes of an earlier process, whatever the limits are."""
        for episode in episodes:
            self._capacity.used += 1
            try:
                episode.account = self.quotas.account_of(episode.owner)
            except CapacityError:  # too many principals: the owner's next request is refused
                continue
            episode.account.restore(1)

    def refuse_waiting(self) -> None:
        """Refuse all starts that wait, because the server is stopping."""
        self._capacity.refuse_waiting()


async def survey(quotas: Quotas, store: EpisodeStore, journal: Journal | None) -> None:
    """Count the bytes that each principal stores, if there is a limit on that."""
    quotas.refresh()
    if not quotas.counts_bytes:
        return
    if journal is not None and journal.sizes is None:
        journal.sizes = Counter()
    written = journal.sizes if journal is not None and journal.sizes is not None else Counter[str]()
    sizes = Counter[str]()
    for number, episode in enumerate(store.everything(), 1):
        sizes[episode.owner] += episode.held + episode.pending_bytes + written[episode.id]
        if not number % AT_ONCE:
            await asyncio.sleep(0)
    for owner in sizes:
        if owner not in quotas.accounts:
            quotas.account_of(owner)
    for name, account in quotas.accounts.items():
        if account.limits.stored_bytes is not None:
            account.store(sizes[name])
            account.check_stored()


class Surveyed(Protocol):
    """A host, as far as a survey reads it."""

    places: Places
    store: EpisodeStore
    journal: Journal | None


@asynccontextmanager
async def surveying(host: Surveyed) -> AsyncIterator[None]:
    """Survey a host's episodes every `SURVEY_SECONDS`; at the end, give up its part of shared counts."""

    async def run() -> None:
        while True:
            await survey(host.places.quotas, host.store, host.journal)
            await asyncio.sleep(SURVEY_SECONDS)

    task = asyncio.get_running_loop().create_task(run(), name="ludus-survey")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        host.places.quotas.close()
