"""Matches as they are played: waiting entrants, pairing, starts, ends and deadlines.

How this works:

* A request for a match waits in the lobby of its board until it is paired or its time has passed. Each arrival pairs
  who can be paired; see `pairing.py`. What was paired is started even if a player has gone: it then is among its open
  matches.
* The hub draws task, seed and seats from a secret, writes the match with the digest of all that, starts one episode for
  each seat as its own principal, and gives each player the URL of its seat's agent endpoint, and nothing about the
  other one.
* A match ends when both episodes have ended by themselves, or one player leaves: it says that it is done while its
  episode runs, makes no call for too long, takes too many calls or too long for a move, or is withdrawn. The hub reads
  both rewards through the control plane, and writes the result. The sweeper does it for matches whose players never say
  so.
* A match whose infrastructure broke is void, and both entrants have one more to play, a bounded number of times.
* After each end the board is rated again, in a thread, one board at a time; ends meanwhile are rated together.

Waiting entrants and live matches of a board are in the memory of one process, the first that was asked for a match.
Others pass requests on to it (`ludus.hub.peers`) as long as it lives. When it has ended, its open matches are void.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.results.matches.episodes import BoardClient, LiveMatch
from ludus.hub.results.matches.limits import MatchLimits
from ludus.hub.results.matches.outcomes import Decision, decide_match
from ludus.hub.results.matches.pairing import choose_pair
from ludus.hub.results.matches.rating import rate_board, stale_boards
from ludus.hub.results.matches.reading import read_entrant, read_match
from ludus.hub.results.matches.store import MatchStore, NewEntrant, Standing, no_match
from ludus.protocol import errors as e
from ludus.registry.types.matches import (
    EntrantInfo,
    EntrantParams,
    MatchBoardKey,
    MatchEnd,
    MatchTicket,
    NextMatch,
    OpenMatches,
    Result,
    board_key,
)
from ludus.registry.types.signing import digest_of
from ludus.server.auth.principal import Principal

T = TypeVar("T")

_log = logging.getLogger("ludus.hub.results")


@dataclass(eq=False)
class Waiting:
    """A request for a match.

    Attributes:
        entrant: the entrant.
        found: the match, when it has started; None if its start failed.
        is_taken: whether an opponent was found, so that the match is being started.
    """

    entrant: str
    found: asyncio.Future[LiveMatch | None]
    is_taken: bool = False


@dataclass
class Lobby:
    """The waiting requests of one board, the oldest first, and its connection."""

    board: MatchBoardKey
    client: BoardClient
    waiting: list[Waiting] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Matches:
    """All matches of this hub.

    Args:
        store: the entrants and matches in the database.
        limits: the limits.
        token: the hub's own credential at its endpoints.
        clock: returns seconds that only increase.
        now: returns the time.
    """

    def __init__(
        self, store: MatchStore, limits: MatchLimits, token: str, clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        self.clock = clock
        self.now = now
        self._store = store
        self._limits = limits
        self._token = token
        self._luck: Final = random.SystemRandom()
        self._lobbies: dict[MatchBoardKey, Lobby] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._rating = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    # ── the player's requests ──────────────────────────────────────────────────────────────────────────────────────

    async def register(
        self, principal: Principal, record: VersionRecord, params: EntrantParams, address: str, *, by_publisher: bool
    ) -> EntrantInfo:
        """Register an entrant, or more matches of one.

        Args:
            principal: the account.
            record: the version.
            params: what is fixed before the first match.
            address: where the version runs.
            by_publisher: whether the account may publish versions of the package.

        Raises:
            VersionBlocked: the version is blocked.
            Conflict: the version is yanked, or the entrant was removed or has other options.
            CapacityError: the account or the board has too many entrants.
            EnvironmentNotFound, SplitNotFound: there is no such environment or split.
            Unsupported: the environment does not have two seats.
            LudusError: the endpoint cannot be used.
        """
        record.check_offered()
        board = MatchBoardKey(
            package=record.id, version=record.version, environment=params.environment, split=params.split
        )
        client = BoardClient(address, self._token, self._limits.start_seconds, self.clock)
        try:
            seats, opponents = await client.seats(params.environment, params.split)
        finally:
            await client.close()
        created = self.now()
        new = NewEntrant(
            board=board, sha256=record.sha256, seats=seats, opponents=opponents, principal=principal.name,
            by_publisher=by_publisher, declared=params.declared, matches=params.matches, created_at=created,
            deadline=created + timedelta(seconds=self._limits.entrant_seconds),
        )  # fmt: skip
        return await self._entrant(await _call(self._store.register, new))

    async def next_match(
        self, principal: Principal, key: str, wait_seconds: float, address: str, public: str
    ) -> NextMatch:
        """Find an opponent for an entrant, and start their match.

        Args:
            principal: the account.
            key: the entrant.
            wait_seconds: how long to wait for an opponent.
            address: where the version runs, for the hub.
            public: where it runs, for the player.

        Raises:
            NotFound, Forbidden: there is no such entrant, or it is another account's.
            CapacityError: the entrant plays or waits for too many matches, or the endpoint is full.
        """
        entrant = await self._own_entrant(principal, key)
        lobby = self._lobby(entrant, address)
        # From here to the append nothing else runs after the standing is known, so requests at one time do not exceed
        # the limits.
        async with lobby.lock:
            standing = await _call(self._store.standing, key, self.now())
            waits = sum(one.entrant == key for one in lobby.waiting)
            if not standing.is_open or standing.left <= waits:
                return NextMatch(ticket=None, left=0 if not standing.is_open else standing.left, open=standing.open)
            if standing.open + waits >= self._limits.open_matches:
                raise e.CapacityError(
                    f"{self._limits.open_matches} matches of this entrant are open or waited for: end one first",
                    limit="open_matches", retryAfter=5.0,
                )  # fmt: skip
            waiting = Waiting(key, asyncio.get_running_loop().create_future())
            lobby.waiting.append(waiting)
        self._spawn(self._pair(lobby))
        live = await self._wait(lobby, waiting, wait_seconds)
        if live is None and not waiting.is_taken and wait_seconds >= self._limits.script_seconds:
            live = await self._against_script(lobby, key)
        standing = await _call(self._store.standing, key, self.now())
        ticket = self._ticket(live, key, public) if live is not None and not live.is_done else None
        return NextMatch(ticket=ticket, left=standing.left if standing.is_open else 0, open=standing.open)

    async def tickets(self, principal: Principal, key: str, public: str) -> OpenMatches:
        """Return the open matches of an entrant, for a player who comes back."""
        entrant = await self._own_entrant(principal, key)
        lobby = self._lobbies.get(board_key(entrant))
        live = [one for one in lobby.client.matches.values() if not one.is_done] if lobby is not None else []
        mine = [one for one in live if any(seat.entrant == key for seat in one.seats)]
        return OpenMatches(tickets=tuple(self._ticket(one, key, public) for one in mine))

    async def end_match(self, principal: Principal, key: str, match: str) -> MatchEnd:
        """Read the end of a match. An entrant whose episode still runs leaves the match, and loses.

        Raises:
            NotFound: there is no such entrant or match, or the match is not the entrant's.
            Forbidden: the entrant is another account's.
        """
        entrant = await self._own_entrant(principal, key)
        lobby = self._lobbies.get(board_key(entrant))
        live = lobby.client.matches.get(match) if lobby is not None else None
        if live is not None and any(seat.entrant == key for seat in live.seats):
            await self._settle(live, leaver=key)
        found = await _call(read_match, self._store.database, match)
        mine = await _call(self._store.is_side, match, key)
        if not mine:
            raise no_match(match)
        result: Result | None = next((side.result for side in found.sides if side.entrant == key), None)
        return MatchEnd(match=match, state=found.state, result=result)

    async def remove(self, principal: Principal, key: str, reason: str, *, is_moderator: bool) -> None:
        """Take an entrant off its board; see `MatchStore.remove`."""
        await _call(self._store.remove, key, principal.name, reason, self.now(), is_moderator=is_moderator)
        self._spawn(self.rate())

    async def withdraw(self, principal: Principal, key: str) -> EntrantInfo:
        """End an entrant, which loses its open matches."""
        entrant = await self._own_entrant(principal, key)
        await _call(self._store.withdraw, key, self.now())
        lobby = self._lobbies.get(board_key(entrant))
        if lobby is not None:
            for live in list(lobby.client.matches.values()):
                if any(seat.entrant == key for seat in live.seats):
                    await self._settle(live, leaver=key)
        return await self._entrant(key)

    # ── pairing ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _wait(self, lobby: Lobby, waiting: Waiting, seconds: float) -> LiveMatch | None:
        """Return the match of a request; None if no opponent came in time, or the start failed."""
        try:
            await asyncio.wait([waiting.found], timeout=seconds)
            return await waiting.found if waiting.is_taken else None  # a start is bounded
        finally:
            if waiting in lobby.waiting:
                lobby.waiting.remove(waiting)

    async def _pair(self, lobby: Lobby) -> None:
        """Pair who can be paired, and start their matches."""
        async with lobby.lock:
            while pair := await self._choose(lobby):
                for one in pair:
                    one[0].is_taken = True
                    lobby.waiting.remove(one[0])
                (first, standing), (second, other) = pair
                live = None
                try:
                    live = await self._start(lobby, standing, other)
                except e.Conflict as error:  # one of them has ended meanwhile; neither learns who the other one was
                    _log.info("a match of %s did not start: %s", lobby.board.package, error.message)
                except e.LudusError as error:
                    _log.warning("a match of %s did not start: %s", lobby.board.package, error.message)
                    for waiting in (first, second):
                        _fail(waiting, error)
                except BaseException:
                    for waiting in (first, second):
                        _fail(waiting, e.InternalError("the hub failed when it started the match"))
                    raise
                for waiting in (first, second):
                    if not waiting.found.done():
                        waiting.found.set_result(live)

    async def _against_script(self, lobby: Lobby, key: str) -> LiveMatch | None:
        """Start a match against a scripted opponent; None if there is none, or the entrant may not play now."""
        async with lobby.lock:
            standing = await _call(self._store.standing, key, self.now())
            waits = sum(one.entrant == key for one in lobby.waiting)
            script = await _call(self._store.script_for, key, self.now())
            if script is None or not standing.is_open or standing.left <= waits:
                return None
            if standing.open + waits >= self._limits.open_matches:
                return None
            return await self._start(lobby, standing, script, script)

    async def _choose(self, lobby: Lobby) -> tuple[tuple[Waiting, Standing], tuple[Waiting, Standing]] | None:
        """Return two requests to pair, with the standings of their entrants; None if no two of them may meet."""
        by_key: dict[str, Waiting] = {}
        for waiting in lobby.waiting:
            by_key.setdefault(waiting.entrant, waiting)
        if len(by_key) < 2:
            return None
        keys = list(by_key)
        standings = {one.key: one for one in await _call(self._store.standings, keys, self.now())}
        meetings = await _call(self._store.meetings, keys)
        still = [standings[key] for key in keys if key in standings and by_key[key] in lobby.waiting]
        pair = choose_pair(still, meetings, self._limits.matches_of_pair, self._luck)
        return ((by_key[pair[0].key], pair[0]), (by_key[pair[1].key], pair[1])) if pair is not None else None

    async def _start(
        self, lobby: Lobby, one: Standing, other: Standing, script: Standing | None = None
    ) -> LiveMatch | None:
        """Write a match and start it; None if it broke, so that it is void.

        Args:
            lobby: the board.
            one, other: the entrants.
            script: which of them is a scripted opponent; None if neither.

        Raises:
            CapacityError: the endpoint or the hub is full.
            Conflict: an entrant has ended meanwhile.
            LudusError: the endpoint cannot be used.
        """
        client = lobby.client
        client.starting += 1
        try:
            opening = await client.draw(lobby.board, one, other)
            key = await _call(self._store.open_match, opening, self.now())
            try:
                return await client.start(key, digest_of(opening), opening, script)
            except e.CapacityError:
                await _call(self._store.void, key, self.now(), is_charged=False)
                raise
            except e.LudusError as error:
                _log.warning("the match %s did not start: %s", key, error.message)
                await _call(self._store.void, key, self.now(), is_charged=True)
                return None
        finally:
            client.starting -= 1

    # ── ends and deadlines ─────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Void what was open in processes that have ended, and look after deadlines from now on."""
        await _call(self._store.void_lost, self.now())
        self._sweeper = asyncio.create_task(_repeat(self.sweep, self._limits.sweep_seconds), name="matches-sweeper")

    async def sweep(self) -> None:
        """Write ends of matches, end those that take too long, void lost ones, and end overdue entrants."""
        await _call(self._store.void_lost, self.now())
        for lobby in list(self._lobbies.values()):
            for live in list(lobby.client.matches.values()):
                await self._settle(live)
            await lobby.client.rest()
        for key in await _call(self._store.overdue, self.now()):
            await _call(self._store.end_if_done, key, self.now())
        await self.rate()

    async def rate(self) -> None:
        """Rate all boards again whose matches have changed."""
        async with self._rating:
            for board in await _call(stale_boards, self._store.database):
                await _call(rate_board, self._store.database, board)

    async def close(self) -> None:
        """Stop. Open matches become void when the next process looks."""
        tasks = [*self._tasks, *([self._sweeper] if self._sweeper is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lobbies, self._lobbies = list(self._lobbies.values()), {}
        for lobby in lobbies:
            for waiting in lobby.waiting:
                waiting.found.cancel()
        await asyncio.gather(*(one.client.close() for one in lobbies), return_exceptions=True)

    async def _settle(self, live: LiveMatch, leaver: str | None = None) -> None:
        """Write the end of a match, once, if it has ended or has to end.

        Args:
            live: the match.
            leaver: an entrant that leaves it if it still runs.
        """
        async with live.lock:
            if live.is_done:
                return
            if live.end is None:
                try:
                    live.end = await self._end_of(live, leaver)
                except e.LudusError as error:
                    _log.warning("the match %s broke: %s", live.key, error.message)
                    live.end = "void"
            if live.end is None:
                return
            # If the database cannot be used now, the end is kept, and written later.
            with contextlib.suppress(e.NotFound):  # its board was deleted with its owner's account
                if live.end == "void":
                    await _call(self._store.void, live.key, self.now(), is_charged=True)
                else:
                    await _call(self._store.settle, live.key, *live.end, self.now())
            live.is_done = True
            await live.client.close_match(live)
        self._spawn(self.rate())

    async def _end_of(self, live: LiveMatch, leaver: str | None) -> Decision | Literal["void"] | None:
        """Return how a match has ended, and end it if it has to; None if it goes on.

        Raises:
            LudusError: the endpoint cannot be used, or the episodes are gone.
        """
        infos = await live.client.look(live)
        running = [place for place, info in infos.items() if info.end_reason is None]
        left: int | None = None
        if running:
            if leaver is not None and live.place_of(leaver) in running:
                left = live.place_of(leaver)
            else:
                left = _idle(live, running, self.clock(), self._limits)
            is_late = self.clock() - live.started > self._limits.match_seconds
            if left is None and is_late:
                left = _slow(live, running, self._limits)
            if left is None and not (is_late or _stalled(live, running, self.clock(), self._limits) == running):
                return None
            for place in infos if left is None else (left, 1 - left):
                await live.client.leave(live, place)
            if left is None:
                return "void"
            infos = await live.client.look(live)
        return decide_match(infos, live.reward_range, left) or "void"

    # ── small parts ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _entrant(self, key: str) -> EntrantInfo:
        return await _call(read_entrant, self._store.database, key)

    async def _own_entrant(self, principal: Principal, key: str) -> EntrantInfo:
        entrant = await self._entrant(key)
        if entrant.by != principal.name:
            raise e.Forbidden(f"the entrant {key} is of {entrant.by!r}, not of {principal.name!r}")
        return entrant

    def _lobby(self, entrant: EntrantInfo, address: str) -> Lobby:
        board = board_key(entrant)
        if board not in self._lobbies:
            client = BoardClient(address, self._token, self._limits.start_seconds, self.clock)
            self._lobbies[board] = Lobby(board, client)
        return self._lobbies[board]

    def _ticket(self, live: LiveMatch, entrant: str, public: str) -> MatchTicket:
        seat = live.seats[live.place_of(entrant)]
        assert seat.episode is not None
        url = live.client.play_url(seat.episode, public)
        left = self._limits.match_seconds - (self.clock() - live.started)
        return MatchTicket(
            match=live.key, seat=seat.name, play_url=url, seconds_left=max(0.0, left), commitment=live.commitment
        )

    def _spawn(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.create_task(self._logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self, work: Coroutine[object, object, object]) -> None:
        try:
            await work
        except e.LudusError as error:
            _log.warning("a match failed: %s", error.message)
        except Exception:
            _log.exception("a match failed")


def _slow(live: LiveMatch, running: list[int], limits: MatchLimits) -> int | None:
    """Return the running seat that has used more than half of the time of a match for its moves; None if none.

    If both have, because both move at the same time, it is the one that has used more; None if that is neither.
    """
    used = {place: live.seats[place].used for place in running}
    most = max(used.values())
    slowest = [place for place, seconds in used.items() if seconds == most > limits.match_seconds / 2]
    return slowest[0] if len(slowest) == 1 else None


def _idle(live: LiveMatch, running: list[int], now: float, limits: MatchLimits) -> int | None:
    """Return the running seat that stalls; None if none does.

    That is one that takes too long, or too many calls, for its move; or else the one whose last call is the longest
    ago, if that is too long. If both have owed a move since the same time, it is neither.
    """
    stalling = _stalled(live, running, now, limits)
    if stalling:
        since = {place: live.seats[place].on_move or 0.0 for place in stalling}
        first = [place for place in stalling if since[place] == min(since.values())]
        return first[0] if len(first) == 1 else None
    called = [(live.seats[place].called, place) for place in running]
    oldest, place = min(called)
    return place if now - oldest > limits.idle_seconds else None


def _stalled(live: LiveMatch, running: list[int], now: float, limits: MatchLimits) -> list[int]:
    """Return the running seats that take too long, or too many calls, for their moves."""
    seconds, calls = limits.move_seconds, limits.move_calls
    return [place for place in running if live.seats[place].is_stalling(now, seconds, calls)]


def _fail(waiting: Waiting, error: e.LudusError) -> None:
    if not waiting.found.done():
        waiting.found.set_exception(error)


async def _repeat(sweep: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Look after matches again and again, also after a failure."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await sweep()
        except e.LudusError as error:
            _log.warning("looking after matches failed: %s", error.message)
        except Exception:
            _log.exception("looking after matches failed")


async def _call(function: Callable[..., T], *arguments: object, **options: object) -> T:
    """Run a function that blocks in a thread."""
    return await asyncio.to_thread(function, *arguments, **options)
