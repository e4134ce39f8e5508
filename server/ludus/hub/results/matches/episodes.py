"""The hub as the client of the endpoint of a board: it draws matches, starts them, and reads how seats have ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from ludus.client.environment import find_split
from ludus.client.episode import Episode
from ludus.hub.results.endpoints import EndpointClient
from ludus.hub.results.episodes import TASK_ID
from ludus.hub.results.matches.outcomes import Decision
from ludus.hub.results.matches.store import Standing
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo, EpisodeInfo
from ludus.protocol.evaluation import Interval
from ludus.registry.types.drawing import draw_seats, draw_seed, draw_tasks
from ludus.registry.types.matches import MatchBoardKey, MatchOpening

SEATS: Final = 2
"""The number of seats of the environments whose matches have boards."""


@dataclass
class LiveSeat:
    """One seat of a match that is being played.

    Attributes:
        entrant: the entrant at it.
        name: its name.
        episode: the hub's side of its episode; None if a script has the seat.
        steps: the number of its calls when it was last looked at.
        called: when that number last changed, in seconds of the clock.
        moves: the number of its moves when it was last looked at.
        on_move: since when it owes a move, in seconds of the clock; None if it owes none, as far as is known.
        calls: the number of its calls before that.
        used: the seconds that it has used for its moves in all.
        looked: when it was last looked at.
    """

    entrant: str
    name: str
    episode: Episode | None
    called: float
    steps: int = 0
    moves: int = 0
    on_move: float | None = None
    calls: int = 0
    used: float = 0.0
    looked: float = 0.0

    def note(self, info: EpisodeInfo, now: float, *, is_ahead: bool) -> None:
        """Note the calls and the moves of its episode.

        A seat owes a move while it may move, and has not made more moves than the other one that may move, too: where
        both move at the same time, the one that has moved waits for the other. Time counts as used for a move if the
        seat has owed it at two looks in a row, so quick players use none.

        Args:
            info: the state of the episode.
            now: the time, in seconds of the clock.
            is_ahead: whether the other seat may move, and has made fewer moves.
        """
        if info.steps != self.steps:
            self.steps, self.called = info.steps, now
        moved, self.moves = (info.moves or 0) != self.moves, info.moves or 0
        if not info.on_move or is_ahead:
            self.on_move = None
        elif self.on_move is None or moved:
            self.on_move, self.calls = now, info.steps
        else:
            self.used += now - self.looked
        self.looked = now

    def is_stalling(self, now: float, seconds: float, calls: int) -> bool:
        """Return whether it takes more time, or more calls, for a move than it may."""
        return self.on_move is not None and (now - self.on_move > seconds or self.steps - self.calls > calls)


@dataclass
class LiveMatch:
    """A match that is being played.

    Attributes:
        key: the match.
        seats: both seats, in the order of the environment.
        commitment: the digest of its opening.
        client: the connection on which it runs.
        started: when it started, in seconds of the clock.
        reward_range: the rewards that the environment declares.
        lock: held while its end is read and written.
        end: how it ended; None if it goes on, as far as is known.
        is_done: whether its end is written.
    """

    key: str
    seats: tuple[LiveSeat, LiveSeat]
    commitment: str
    client: BoardClient
    started: float
    reward_range: Interval | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    end: Decision | Literal["void"] | None = None
    is_done: bool = False

    def place_of(self, entrant: str) -> int:
        """Return the number of an entrant's seat, 0 or 1."""
        return 0 if self.seats[0].entrant == entrant else 1


class BoardClient(EndpointClient):
    """A connection to the endpoint of one board, which is open while it has matches; see `EndpointClient`."""

    def __init__(self, address: str, token: str, seconds: float, clock: Callable[[], float]) -> None:
        super().__init__(address, token, seconds, clock)
        self.matches: dict[str, LiveMatch] = {}

    async def seats(self, environment: str, split: str) -> tuple[tuple[str, str], tuple[str, ...]]:
        """Return the names of the two seats of an environment, and of its scripted opponents.

        Scripts count only if rewards have a range, whose middle is a draw.

        Raises:
            EnvironmentNotFound, SplitNotFound: there is no such environment or split.
            Unsupported: the environment does not have two seats.
            LudusError: the endpoint cannot be used.
        """
        async with self.bounded("did not describe its environments"):
            info = await self.client.environment(environment).info()
        find_split(info, split, 1)
        names = tuple(seat.name for seat in info.seats)
        if len(names) != SEATS:
            many = f"{len(names)} seats" if names else "no seats"
            raise e.Unsupported(f"environment {environment!r} has {many}; head-to-head boards are for two", seats=names)
        return (names[0], names[1]), info.opponents if info.reward_range is not None else ()

    async def draw(self, board: MatchBoardKey, one: Standing, other: Standing) -> MatchOpening:
        """Draw the task, the seed and the seats of a match from a new secret.

        Raises:
            InvalidParams: the task's id is too long.
            LudusError: the endpoint cannot be used.
        """
        secret = secrets.token_hex(32)
        async with self.bounded("did not show the task"):
            environment = self.client.environment(board.environment)
            info: EnvironmentInfo = await environment.info()
            count = find_split(info, board.split, 1).count
            index = draw_tasks(secret, count, 1)[0]
            task = (await environment.task(board.split, index=index)).id
        if len(task) > TASK_ID:
            raise e.InvalidParams(f"the split {board.split!r} has a task id of more than {TASK_ID} characters")
        balances = {one.key: one.balance, other.key: other.balance}
        first, second = draw_seats(secret, (one.key, one.balance), (other.key, other.balance))
        return MatchOpening(
            secret=secret, environment=board.environment, split=board.split, count=count, index=index, task=task,
            seed=draw_seed(secret, index, 0) if info.seedable else None, entrants=(first, second),
            balances=(balances[first], balances[second]),
        )  # fmt: skip

    async def start(self, key: str, commitment: str, opening: MatchOpening, script: Standing | None) -> LiveMatch:
        """Start a match.

        Args:
            key: the match.
            commitment: the digest of its opening.
            opening: the task, the seed and the seats.
            script: the scripted opponent that has the seat of its key; None if both seats have players.

        Raises:
            CapacityError: the endpoint is full.
            LudusError: the match cannot be started.
        """
        async with self.bounded("did not start the match"):
            environment = self.client.environment(opening.environment)
            info = await environment.info()
            names = [seat.name for seat in info.seats]
            played = [
                name for name, one in zip(names, opening.entrants, strict=True) if not script or one != script.key
            ]
            match = await environment.start_match(
                split=opening.split, index=opening.index, seed=opening.seed,
                seats=played, opponent=script.model if script is not None else None,
            )  # fmt: skip
        now = self._clock()
        first, second = (
            LiveSeat(entrant, name, match.seats.get(name), now)
            for entrant, name in zip(opening.entrants, names, strict=True)
        )
        live = LiveMatch(key, (first, second), commitment, self, now, info.reward_range)
        self.matches[key] = live
        return live

    async def look(self, live: LiveMatch) -> dict[int, EpisodeInfo]:
        """Return how the episodes are by the numbers of their seats, and note their calls and moves.

        Raises:
            LudusError: the endpoint cannot be used, or the episodes are gone.
        """
        async with self.bounded("did not answer"):
            infos = {
                place: await seat.episode.info() for place, seat in enumerate(live.seats) if seat.episode is not None
            }
        now = self._clock()
        for place, info in infos.items():
            others = [one for number, one in infos.items() if number != place]
            is_ahead = any(one.on_move and (one.moves or 0) < (info.moves or 0) for one in others)
            live.seats[place].note(info, now, is_ahead=is_ahead)
        return infos

    async def leave(self, live: LiveMatch, place: int) -> None:
        """Close the episode of a seat that leaves, so that its match ends.

        Raises:
            LudusError: the endpoint cannot be used, or the episode is gone.
        """
        episode = live.seats[place].episode
        if episode is not None:
            async with self.bounded("did not close the episode"):
                await episode.close()

    async def close_match(self, live: LiveMatch) -> None:
        """Free what the episodes of a match hold. Errors do not matter: its end is written."""
        self.matches.pop(live.key, None)
        for place in range(SEATS):
            with contextlib.suppress(e.LudusError):
                await self.leave(live, place)

    async def rest(self) -> None:
        """Close the connection if no match is open, so that the endpoint can stop when it is idle."""
        if not self.matches and not self.starting:
            await self.close()

    async def close(self) -> None:
        """Close the connection, and forget all matches."""
        self.matches.clear()
        await super().close()
