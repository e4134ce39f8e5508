"""Runs matches: the episodes of several seats that share one `Match`.

How this works:

* A `RunningMatch` holds the author's `Match` and the episodes of the seats that agents have taken.
* Calls of a match run one at a time: `seats.in_match` wraps each call and takes the match's lock in the order of
  arrival. A call that waits in `SeatedEnvironment.wait_for_others` gives the lock up and takes it again when another
  call has finished. So what a call shows depends only on the calls that finished before it, and repeating the calls in
  the order in which they finished gives the same match again (`recovery/matches.py`).
* When a call ends the match, its own result holds its seat's reward. The call of another seat that waits then wakes up
  and ends its episode likewise. The other episodes end at once, with their reward in an entry of source `match`.
* A seat that ends for another reason has left: `Match.left` decides the match. If its environment or what is below it
  broke, all seats end for the same reason, unscored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import EpisodeFailed
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward, RewardEntry, total
from ludus.server.authoring.seats import Match, SeatedEnvironment
from ludus.server.execution import user_code
from ludus.server.execution.clock import current_clock
from ludus.server.execution.threads import Home, Share

if TYPE_CHECKING:
    from ludus.server.tasks.catalog import Published

UNSCORED_ENDS = frozenset({EndReason.SERVER_STOPPED, EndReason.ENVIRONMENT_ERROR, EndReason.INFRASTRUCTURE_ERROR})
"""The ends of one seat that end all seats for the same reason: they say nothing about any policy."""


class SeatEpisode(Protocol):
    """What a match reads of the episode of a seat."""

    id: str
    published: Published
    task: Any
    seed: int
    seat: str | None
    last_step: int
    end_reason: EndReason | None

    @property
    def busy(self) -> bool:
        """Whether a call of the episode runs."""
        ...


EpisodeT = TypeVar("EpisodeT", bound=SeatEpisode)


class RunningMatch(Generic[EpisodeT]):
    """One match.

    Args:
        id: its id.
        opponent: the strength of the scripted opponents; None for the task's own.
    """

    __slots__ = (
        "_changed",
        "_failure",
        "_lock",
        "_paid",
        "_parked",
        "episodes",
        "home",
        "id",
        "match",
        "moves",
        "opponent",
        "repeating",
    )

    def __init__(self, id: str, opponent: str | None) -> None:
        self.id = id
        self.opponent = opponent
        self.home = Home()
        """The thread of the author's match and of its episodes."""
        self.match: Match[Any] | None = None
        """The author's match; None before its setup."""
        self.episodes: dict[str, EpisodeT] = {}
        """The episodes by seat, in the order of the seats."""
        self.moves: Counter[str] = Counter()
        """How many moves each seat has made."""
        self.repeating = False
        """Whether earlier calls are being repeated, so that none of them waits."""
        self._failure: EpisodeFailed | None = None
        """Why nothing decided the match when a seat left."""
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._parked: set[str] = set()
        """Seats whose call has given the lock up."""
        self._paid: set[str] = set()
        """Seats that have got their reward of the match."""

    @property
    def lone(self) -> bool:
        """Whether one agent plays against scripted opponents only."""
        return len(self.episodes) == 1

    async def open(self, share: Share, episode: EpisodeT) -> Match[Any]:
        """Return the author's match, set up by the first episode that asks.

        Raises:
            UserCodeError: the author's code raised, or returned something invalid.
        """
        if self.match is not None:
            return self.match
        cls = episode.published.cls
        assert issubclass(cls, SeatedEnvironment)
        match = user_code.call(cls.match_class)
        match.id, match.task, match.seed = self.id, episode.task, episode.seed
        match.played = frozenset(self.episodes)
        match._table = self
        match.opponent = ""
        if set(match.seats) - match.played:
            match.opponent = self.opponent or user_code.call(match.default_opponent)
        await user_code.run(share.at(self.home), cls.blocking, match.setup)
        self.match = match
        opened: Match[Any] = match
        return opened

    @property
    def finished(self) -> bool:
        """Whether the match has ended."""
        return self.match is not None and self.match.finished

    def on_move(self, seat: str) -> bool | None:
        """Return whether a seat may move now; None before and after the match."""
        if self.match is None or self.match.finished:
            return None
        return self.match.to_move in (None, seat)

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def turn(self, seat: str) -> AsyncIterator[None]:
        """Hold the match for a call of a seat."""
        await self._acquire()
        try:
            yield
        finally:
            if seat in self._parked:  # canceled while it waited
                self._parked.discard(seat)
            else:
                self._lock.release()
            self._wake()

    async def wait(self, environment: SeatedEnvironment[Any, Any], deadline: float) -> None:
        """Wait until a seat may act, the match has ended, or the deadline has passed; see `Table`."""
        loop = asyncio.get_running_loop()
        while not (self.finished or environment.ready() or self.repeating or loop.time() >= deadline):
            changed = self._changed
            self._parked.add(environment.seat)
            self._lock.release()
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                pass
            await self._acquire()
            self._parked.discard(environment.seat)

    async def _acquire(self) -> None:
        """Take the lock. The time of waiting for the calls of other seats is not time of the call."""
        clock = current_clock() if self._lock.locked() else None
        if clock is not None:
            clock.wait()
        try:
            await self._lock.acquire()
        finally:
            if clock is not None:
                clock.go_on()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def conclude(self, episode: EpisodeT, result: StepResult) -> StepResult:
        """Return the result of a call with the reward of the match, if it has ended or ends with the call."""
        if result.end_reason is not None:
            self._leave(episode)
        assert episode.seat is not None
        match = self.match
        if match is None or match.rewards is None or episode.seat in self._paid:
            return result
        self._paid.add(episode.seat)
        reward = match.rewards[episode.seat]
        if result.reward is not None:
            reward = total([result.reward, reward])
        reason = result.end_reason or EndReason.COMPLETED
        return result.model_copy(update={"reward": reward, "end_reason": reason})

    def ended(self, episode: EpisodeT, reason: EndReason) -> tuple[RewardEntry, ...]:
        """Note the end of an episode, and return what its match adds to its reward log outside of its calls."""
        if reason in UNSCORED_ENDS:
            return ()
        assert episode.seat is not None
        try:
            self._leave(episode)
        except user_code.UserCodeError as error:
            self._failure = user_code.failure("left", episode.id, episode.published.name, error)
            reward = Reward.unscored(f"the environment failed (incident {self._failure.incident})")
            return (RewardEntry(step=episode.last_step, source="match", reward=reward),)
        if self.match is None or self.match.rewards is None or episode.seat in self._paid:
            return ()
        self._paid.add(episode.seat)
        reward = self.match.rewards[episode.seat]
        return (RewardEntry(step=episode.last_step, source="match", reward=reward),)

    def ending(
        self, episode: EpisodeT, reason: EndReason, failure: EpisodeFailed | None
    ) -> Iterator[tuple[EpisodeT, EndReason, EpisodeFailed | None]]:
        """Yield the other episodes that must end now because one has, with their reasons and failures."""
        if self._failure is not None:
            reason, failure = EndReason.ENVIRONMENT_ERROR, self._failure
        for opponent in self.episodes.values():
            if opponent is episode or opponent.end_reason is not None:
                continue
            if reason in UNSCORED_ENDS:
                yield opponent, reason, failure
            elif not opponent.busy:
                yield opponent, EndReason.COMPLETED, None
        self._wake()

    def owed(self) -> Iterator[tuple[EpisodeT, tuple[RewardEntry, ...]]]:
        """Yield the episodes that a running call will end, with what they get if the server dies before it does.

        A journal holds this with the end of the match. The end of the call, which is written later, takes its place.
        """
        if self.match is None or self.match.rewards is None:
            return
        for seat, episode in self.episodes.items():
            if episode.end_reason is None and seat not in self._paid:
                yield episode, (RewardEntry(step=episode.last_step, source="match", reward=self.match.rewards[seat]),)

    def release(self) -> None:
        """Drop the author's match when no episode needs it any more."""
        if all(episode.end_reason is not None for episode in self.episodes.values()):
            self.match = None

    def _leave(self, episode: EpisodeT) -> None:
        """Decide the match because a seat has left it, unless it is decided."""
        if self.match is not None and not self.match.finished:
            assert episode.seat is not None
            user_code.call(self.match.finish, user_code.call(self.match.left, episode.seat))
