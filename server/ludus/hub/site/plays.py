"""Episodes that people play by hand.

How this works: each play is one task. As a trainer it starts the episode; then it runs the client's agent loop
(`run_episode`) at the episode's agent endpoint, with a person as its policy. So a person sees and does exactly what an
agent can, and what the pages show while the episode runs cannot hold a reward. The loop asks the person for a turn; the
pages show the conversation so far and hand the action over.
After the play, the trainer's side closes the episode and adds the rewards to the trajectory. The credentials of
the episode stay in this process. A play ends with its episode, when its person waits for too long, gives up, or when
the hub stops; its trajectory is then kept for a while.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ludus.client import connect
from ludus.client.agent_endpoint import open_agent_endpoint, with_rewards
from ludus.client.agent_loop import Harness, run_episode
from ludus.client.policies.base import Conversation, PolicyResult, Turn
from ludus.protocol.actions import Answer, Call
from ludus.protocol.errors import CapacityError, InternalError, LudusError, NotFound
from ludus.protocol.trajectory import Trajectory

_log = logging.getLogger("ludus.hub.site")

NAME: Final = "person"
"""The name of the policy in trajectories."""


@dataclass(frozen=True)
class PlayLimits:
    """The limits on plays. Times are in seconds."""

    plays: int = 64
    """The most plays at one time."""
    plays_per_visitor: int = 4
    """The most plays of one browser at one time."""
    start_seconds: float = 120.0
    """How long a server may take to start an episode."""
    idle_seconds: float = 900.0
    """How long a person may take for one turn."""
    play_seconds: float = 7200.0
    """How long one play may take."""
    answer_seconds: float = 60.0
    """How long a page waits for the outcome of an action before it is shown without it."""
    kept_seconds: float = 3600.0
    """How long an ended play is kept."""


@dataclass(frozen=True, slots=True)
class PlayTarget:
    """What is played."""

    url: str
    """The base URL of the server."""
    token: str | None
    package: str
    version: str
    environment: str
    split: str
    index: int | None


class Play:
    """One episode that a person plays.

    Attributes:
        id: its name in addresses.
        visitor: the key of the browser that plays it.
        target: what is played.
        conversation: what the person sees now; None before the first turn.
        trajectory: the record of the episode; None until it has ended.
        problem: why there is no trajectory; None if there is one, or the episode runs.
        created: when it was started, in seconds of the clock.
        ended: when it ended; None while it runs.
    """

    def __init__(
        self, visitor: str, target: PlayTarget, limits: PlayLimits, clock: Callable[[], float], process: str = ""
    ) -> None:
        self.id = process + secrets.token_urlsafe(18)
        self.visitor = visitor
        self.target = target
        self.conversation: Conversation | None = None
        self.trajectory: Trajectory | None = None
        self.problem: LudusError | None = None
        self.created = clock()
        self.ended: float | None = None
        self._limits = limits
        self._clock = clock
        self._action: asyncio.Future[PolicyResult] | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"play-{self.id}")

    @property
    def is_waiting(self) -> bool:
        """Whether the episode waits for the person."""
        return self._action is not None

    async def act(self, action: Call | Answer | None) -> None:
        """Take an action, or give up, and wait a bounded time for the next turn or the end.

        An action that arrives while the episode does not wait for one is dropped: a form that was sent twice.
        """
        waiting, self._action = self._action, None
        if waiting is None or waiting.done():
            return
        self._changed.clear()
        waiting.set_result(action if action is not None else Turn((), stopped="final_message"))
        await self.settled(self._limits.answer_seconds)

    async def settled(self, seconds: float) -> None:
        """Wait until the episode waits for the person or has ended, for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stop the play, and wait until its episode is closed."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            self.trajectory = await self._play()
        except LudusError as error:
            self.problem = error
        except Exception:
            _log.exception("a play of %s failed", self.target.package)
            self.problem = InternalError("the hub failed; its log has the cause")
        finally:
            self.ended = self._clock()
            self._action = None
            self._changed.set()

    async def _play(self) -> Trajectory:
        target, limits = self.target, self._limits
        harness = Harness(max_turns=500, episode_seconds=limits.play_seconds)
        async with connect(target.url, token=target.token, patience_seconds=10.0) as client:
            environment = client.environment(target.environment)
            try:
                async with asyncio.timeout(limits.start_seconds):
                    version = (await environment.info()).version
                    episode = await environment.start(split=target.split, index=target.index)
            except TimeoutError:
                raise InternalError(f"the environment did not start within {limits.start_seconds:g} s") from None
            async with episode:
                async with open_agent_endpoint(episode.require_play_url(), task=episode.task) as agent:
                    played = await run_episode(agent, _Person(self._ask), harness=harness, version=version)
                info = await episode.close()
                return with_rewards(played, info, (await episode.rewards()).entries)

    async def _ask(self, conversation: Conversation) -> PolicyResult:
        """Wait for the person's action."""
        self.conversation = conversation
        self._action = action = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                chosen: PolicyResult = await action
                return chosen
        except TimeoutError:
            self._action = None
            return Turn((), stopped="time_limit")


@dataclass(frozen=True, slots=True)
class _Person:
    """The policy of a person."""

    ask: Callable[[Conversation], Awaitable[PolicyResult]]
    name: str = NAME

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        return await self.ask(conversation)


@dataclass
class Plays:
    """All plays of this process.

    Args:
        limits: the limits.
        clock: returns seconds that only increase.
        process: the name of this process of the hub, with which the ids of its plays begin.
    """

    limits: PlayLimits = PlayLimits()
    clock: Callable[[], float] = time.monotonic
    process: str = ""
    _plays: dict[str, Play] = field(default_factory=dict)

    async def start(self, visitor: str, target: PlayTarget) -> Play:
        """Start a play, and wait until its person can act.

        Raises:
            CapacityError: there are too many plays.
            LudusError: the episode could not be started.
        """
        self._forget()
        running = [one for one in self._plays.values() if one.ended is None]
        if len(running) >= self.limits.plays:
            raise CapacityError(
                f"{self.limits.plays} people play here already; try again in a while", limit="plays", retryAfter=30.0
            )
        if sum(one.visitor == visitor for one in running) >= self.limits.plays_per_visitor:
            raise CapacityError(
                f"you have {self.limits.plays_per_visitor} episodes open: end one of them first",
                limit="plays_per_visitor", retryAfter=30.0,
            )  # fmt: skip
        play = Play(visitor, target, self.limits, self.clock, self.process)
        self._plays[play.id] = play
        await play.settled(self.limits.start_seconds + 5.0)
        if play.problem is not None:
            del self._plays[play.id]
            raise play.problem
        return play

    def get(self, visitor: str, play_id: str) -> Play:
        """Return a play of a browser.

        Raises:
            NotFound: this browser has no such play.
        """
        self._forget()
        found = self._plays.get(play_id)
        if found is None or found.visitor != visitor:
            raise NotFound("this browser plays no such episode; it may have expired")
        return found

    async def close(self) -> None:
        """Stop all plays."""
        plays, self._plays = list(self._plays.values()), {}
        await asyncio.gather(*(play.close() for play in plays))

    def _forget(self) -> None:
        """Remove plays that ended long ago, and the oldest ended ones if there are many."""
        now = self.clock()
        ended = sorted((play.ended, play.id) for play in self._plays.values() if play.ended is not None)
        for index, (moment, play_id) in enumerate(ended):
            if now - moment > self.limits.kept_seconds or len(ended) - index > self.limits.plays:
                del self._plays[play_id]
