"""Played runs: the hub draws the tasks, starts every episode, and reads the rewards; the player gets play URLs only.

How this works:

* A run is registered before it starts: version, environment, split, number of tasks and episodes, model and harness as
  declared. The hub draws tasks and seeds from a secret, publishes their digest, and writes a row for each episode.
* `next_episode` gives out the next row: the hub starts it on the version's endpoint as its own principal, and returns
  the URL of the agent endpoint. The player cannot choose, repeat, fork or reset an episode.
* `end_episode` reads the reward and the end reason through the control plane, and writes the row. The sweeper does the
  same for episodes whose player never says so, and closes those that take too long.
* An episode whose infrastructure broke goes back to the waiting ones, a bounded number of times. All other ends are
  final; those without a reward of their own count with the lowest one.
* When all rows have ended, or the deadline has passed, the run ends, and the board is computed again.

Live episodes are in the memory of one process. When it ends they are gone, with the endpoints: their rows wait again,
and rows that had ended stay. While it runs, other processes of the hub leave its episodes alone
(`ludus.hub.results.processes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.results.episodes import LiveEpisode, RunClient, StillRuns
from ludus.hub.results.processes import ProcessLease
from ludus.hub.results.store import Claim, Conclude, NewRun, Outcome, ResultStore
from ludus.hub.settings.results import ResultLimits
from ludus.protocol import errors as e
from ludus.protocol.lifecycle import EndReason
from ludus.registry.types.results import (
    NOT_BEGUN,
    BoardKey,
    EndEpisodeParams,
    EpisodeEnd,
    EpisodeTicket,
    NextEpisode,
    Opening,
    OpenTickets,
    RunEpisode,
    RunInfo,
    RunParams,
    lowest_value,
)
from ludus.registry.types.signing import digest_of
from ludus.server.auth.principal import Principal

T = TypeVar("T")

STARTS: Final = 4
"""How many rows one request for an episode tries, if they break at their start."""

_log = logging.getLogger("ludus.hub.results")


class PlayedRuns:
    """All played runs of this hub.

    Args:
        store: the database.
        limits: the limits.
        token: the hub's own credential at its endpoints.
        lease: this process among those of the hub.
        conclude: computes what a run leads to.
        clock: returns seconds that only increase.
        now: returns the time.
    """

    def __init__(
        self, store: ResultStore, limits: ResultLimits, token: str, lease: ProcessLease, conclude: Conclude,
        clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        self.clock = clock
        self.now = now
        self._store = store
        self._limits = limits
        self._token = token
        self._lease = lease
        self._conclude = conclude
        self._clients: dict[str, RunClient] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def process(self) -> str:
        """The id of this process."""
        return self._lease.id

    # ── the player's requests ──────────────────────────────────────────────────────────────────────────────────────

    async def register(
        self, principal: Principal, record: VersionRecord, params: RunParams, address: str, *, by_publisher: bool
    ) -> RunInfo:
        """Register a run.

        Args:
            principal: the account.
            record: the version.
            params: what is fixed before the first episode.
            address: where the version runs.
            by_publisher: whether the account may publish versions of the package.

        Raises:
            VersionBlocked: the version is blocked.
            Conflict: the version is yanked.
            CapacityError: the account or the hub has too many runs.
            InvalidParams: the run would have too many episodes, or the split has too few tasks.
            EnvironmentNotFound, SplitNotFound: there is no such environment or split.
            LudusError: the endpoint cannot be used.
        """
        record.check_offered()
        if params.tasks * params.samples > self._limits.run_episodes:
            raise e.InvalidParams(f"a run has at most {self._limits.run_episodes} episodes; ask for fewer")
        await _call(self._store.may_open, principal.name)
        client = RunClient(address, self._token, self._limits.start_seconds, self.clock)
        try:
            info, opening = await client.draw(params)
        finally:
            await client.close()
        created = self.now()
        new = NewRun(
            board=BoardKey(package=record.id, version=record.version, environment=params.environment,
                           split=params.split, level="played"),
            sha256=record.sha256, principal=principal.name, by_publisher=by_publisher, declared=params.declared,
            tasks=params.tasks, samples=params.samples,
            success_at=info.reward_range[1] if info.reward_range is not None else 1.0, reward_range=info.reward_range,
            created_at=created, deadline=created + timedelta(seconds=self._limits.run_seconds), opening=opening,
            commitment=digest_of(opening),
        )  # fmt: skip
        key = await _call(self._store.register, new, _rows(opening, params.samples))
        return await _call(self._store.run, key)

    async def next_episode(self, principal: Principal, key: str, address: str, public: str) -> NextEpisode:
        """Start the next episode of a run. There is no ticket when all have been given out, and when the run has ended.

        Args:
            principal: the account.
            key: the run.
            address: where the version runs, for the hub.
            public: where it runs, for the player.

        Raises:
            NotFound, Forbidden: there is no such run, or it is another account's.
            CapacityError: too many of its episodes are open, or the endpoint is full.
            RunElsewhere: another process of the hub plays it.
            InfrastructureFailed: episodes break at their start.
        """
        run = await self._own_run(principal, key)
        if not self._is_open(run):
            return NextEpisode(ticket=None, waiting=0, open=0)
        client = self._client(key, address)
        for _ in range(STARTS):
            if len(client.episodes) + client.starting >= self._limits.open_episodes:
                raise e.CapacityError(
                    f"{self._limits.open_episodes} episodes of this run are open: end one first",
                    limit="open_episodes", retryAfter=5.0,
                )  # fmt: skip
            client.starting += 1  # before anything is awaited, so that requests at one time do not exceed the limit
            # The episode is started even if the player has gone: it then waits among the open ones.
            claim, live = await asyncio.shield(asyncio.create_task(self._claim_and_start(client, run)))
            if claim is None:
                return await self._none_left(key)
            if live is not None:
                counts = await _call(self._store.counts, key)
                ticket = self._ticket(run, client, live, public)
                return NextEpisode(ticket=ticket, waiting=counts.get("waiting", 0), open=counts.get("open", 0))
        raise e.InfrastructureFailed("the endpoint breaks when it starts episodes; try again in a while", retryAfter=30)

    async def tickets(self, principal: Principal, key: str, public: str) -> OpenTickets:
        """Return the open episodes of a run, for a player who comes back."""
        run = await self._own_run(principal, key)
        await _call(self._store.check_here, key)
        client = self._clients.get(key) if self._is_open(run) else None
        if client is None:
            return OpenTickets(tickets=())
        live = [episode for episode in client.episodes.values() if not episode.is_done]
        return OpenTickets(tickets=tuple(self._ticket(run, client, one, public) for one in live))

    async def end_episode(self, principal: Principal, key: str, place: int, params: EndEpisodeParams) -> EpisodeEnd:
        """Read the end of an episode, which is closed if it still runs, and write its row.

        Raises:
            NotFound, Forbidden: there is no such run or episode, or it is another account's.
            Conflict: the episode has not been started.
            RunElsewhere: another process of the hub plays the run.
        """
        run = await self._own_run(principal, key)
        await _call(self._store.check_here, key)
        client = self._clients.get(key)
        live = client.episodes.get(place) if client is not None else None
        if client is not None and live is not None:
            await self._settle(run, client, live, close=True, declared=params)
        state, end = await _call(self._store.episode_state, key, place)
        if live is None and state != "ended":  # what has ended was perhaps settled by the sweeper
            raise e.Conflict(f"the episode {place} is not being played; ask for the next one")
        await self._finish_if_done(key)
        return EpisodeEnd(place=place, end=end if state == "ended" else None)

    async def end_run(self, principal: Principal, key: str) -> RunInfo:
        """End a run. What is missing counts with the lowest reward.

        Raises:
            NotFound, Forbidden: there is no such run, or it is another account's.
            RunElsewhere: another process of the hub plays it.
        """
        await self._own_run(principal, key)
        await _call(self._store.check_here, key)
        await self._finish(key, EndReason.CLOSED)
        return await _call(self._store.run, key)

    # ── ends and deadlines ─────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Put back what was open in processes that have ended, and look after deadlines from now on."""
        await self._begin_lease()
        await _call(self._lease.reclaim)
        seconds = {self.sweep: self._limits.sweep_seconds, self.renew: self._limits.lease_seconds / 3}
        self._tasks = [asyncio.create_task(self._repeat(one, often), name="results") for one, often in seconds.items()]

    async def renew(self) -> None:
        """Renew the lease of this process. If it was lost, drop the episodes, which another process may play now."""
        if await _call(self._lease.renew):
            return
        _log.warning("this process was away for too long; its open episodes are played again")
        clients, self._clients = list(self._clients.values()), {}
        await self._begin_lease()
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

    async def sweep(self) -> None:
        """Put back what was lost, write the ends of episodes, close those that take too long, and end overdue runs."""
        await _call(self._lease.reclaim)
        for key, client in list(self._clients.items()):
            try:
                await self._sweep_run(key, client)
            except e.NotFound:  # it was deleted, with its account or with its package
                self._clients.pop(key, None)
                await client.close()
        for key in await _call(self._store.overdue, self.now()):
            await self._finish(key, EndReason.EXPIRED)

    async def _sweep_run(self, key: str, client: RunClient) -> None:
        run = await _call(self._store.run, key)
        for live in list(client.episodes.values()):
            is_late = self.clock() - live.started > self._limits.episode_seconds
            with contextlib.suppress(StillRuns):
                await self._settle(run, client, live, close=is_late, end=EndReason.EXPIRED)
        await self._finish_if_done(key)
        await client.rest()

    async def close(self) -> None:
        """Stop, and leave all runs as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)
        with contextlib.suppress(e.LudusError):  # without it, the lease ends by itself
            await _call(self._lease.end)

    async def _begin_lease(self) -> None:
        await _call(self._lease.begin)
        self._store.process = self._lease.id

    async def _repeat(self, action: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await action()
            except e.LudusError as error:
                _log.warning("looking after played runs failed: %s", error.message)
            except Exception:
                _log.exception("looking after played runs failed")

    async def _claim_and_start(self, client: RunClient, run: RunInfo) -> tuple[Claim | None, LiveEpisode | None]:
        """Give out the next row and start its episode. There is no claim if no row waits."""
        try:
            claim = await _call(self._store.claim, run.key, self.now())
            return claim, await self._start(client, run, claim) if claim is not None else None
        finally:
            client.starting -= 1

    async def _start(self, client: RunClient, run: RunInfo, claim: Claim) -> LiveEpisode | None:
        """Start a claimed episode; None if it broke, so that its row waits again or has ended.

        Raises:
            CapacityError: the endpoint is full; the row waits again.
        """
        try:
            return await client.start(run.environment, run.split, claim)
        except e.CapacityError:
            await _call(self._store.release, run.key, claim.place, is_rerun=False)
            raise
        except e.EnvironmentFailed:
            await self._write(run, claim.place, _worst(run, EndReason.ENVIRONMENT_ERROR))
        except e.LudusError as error:
            _log.warning("episode %d of the run %s did not start: %s", claim.place, run.key, error.message)
            await self._rerun(run, claim.place)
        return None

    async def _settle(
        self, run: RunInfo, client: RunClient, live: LiveEpisode, *, close: bool, end: EndReason | None = None,
        declared: EndEpisodeParams | None = None,
    ) -> None:  # fmt: skip
        """Write the row of an episode, once; put it back if its infrastructure broke.

        Raises:
            StillRuns: it runs, and was not to be closed.
        """
        async with live.lock:
            if live.is_done:
                return
            outcome = await client.end_of(live, run.reward_range, close=close, end=end)
            if outcome is None:
                await self._rerun(run, live.place)
            else:
                if declared is not None:
                    given, taken = declared.input_tokens, declared.output_tokens
                    outcome = replace(outcome, input_tokens=given, output_tokens=taken)
                await self._write(run, live.place, outcome)
            live.is_done = True
            client.episodes.pop(live.place, None)

    async def _rerun(self, run: RunInfo, place: int) -> None:
        """Put an episode back whose infrastructure broke; end it if it broke too often."""
        if not await _call(self._store.release, run.key, place, is_rerun=True):
            await self._write(run, place, _worst(run, EndReason.INFRASTRUCTURE_ERROR))

    async def _write(self, run: RunInfo, place: int, outcome: Outcome) -> None:
        await _call(self._store.settle, run.key, place, outcome, self.now())

    async def _finish_if_done(self, key: str) -> None:
        counts = await _call(self._store.counts, key)
        if not counts.get("waiting") and not counts.get("open"):
            await self._finish(key, EndReason.CLOSED)

    async def _finish(self, key: str, missing_end: EndReason) -> None:
        """End a run: first the open episodes, with what they have earned so far if it is below the lowest reward."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            client = self._clients.pop(key, None)
            if client is not None:
                run = await _call(self._store.run, key)
                for live in list(client.episodes.values()):
                    await self._settle(run, client, live, close=True, end=missing_end)
                await client.close()
            await _call(self._store.finish, key, missing_end, self.now(), self._conclude)
        self._locks.pop(key, None)

    # ── small parts ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _own_run(self, principal: Principal, key: str) -> RunInfo:
        run = await _call(self._store.run, key)
        if run.level != "played":
            raise e.Conflict(f"the run {key} is a {run.level} one, which no player plays on this hub")
        if run.by != principal.name:
            raise e.Forbidden(f"the run {key} is of {run.by!r}, not of {principal.name!r}")
        return run

    def _is_open(self, run: RunInfo) -> bool:
        return run.state == "open" and (run.deadline is None or run.deadline > self.now())

    def _client(self, key: str, address: str) -> RunClient:
        if key not in self._clients:
            self._clients[key] = RunClient(address, self._token, self._limits.start_seconds, self.clock)
        return self._clients[key]

    async def _none_left(self, key: str) -> NextEpisode:
        counts = await _call(self._store.counts, key)
        if not counts.get("open"):
            await self._finish(key, EndReason.CLOSED)
        return NextEpisode(ticket=None, waiting=counts.get("waiting", 0), open=counts.get("open", 0))

    def _ticket(self, run: RunInfo, client: RunClient, live: LiveEpisode, public: str) -> EpisodeTicket:
        url = client.play_url(live.episode, public)
        left = self._limits.episode_seconds - (self.clock() - live.started)
        if run.deadline is not None:
            left = min(left, (run.deadline - self.now()).total_seconds())
        return EpisodeTicket(run=run.key, place=live.place, play_url=url, seconds_left=max(0.0, left))


def _worst(run: RunInfo, end: EndReason) -> Outcome:
    return Outcome(str(end), None, lowest_value(run.reward_range))


def _rows(opening: Opening, samples: int) -> Sequence[RunEpisode]:
    """Return the rows of a run: the first episode of all tasks, then the second one, and so on."""
    planned = [(task, sample) for sample in range(samples) for task in opening.tasks]
    return [
        RunEpisode(
            place=index, task=one.task, index=one.index, sample=sample, seed=one.seeds[sample], reward=None, value=0.0,
            end=NOT_BEGUN, steps=None, attempts=0,
        )
        for index, (one, sample) in enumerate(planned)
    ]  # fmt: skip


async def _call(function: Callable[..., T], *arguments: object, **options: object) -> T:
    """Run a function that blocks in a thread."""
    return await asyncio.to_thread(function, *arguments, **options)
