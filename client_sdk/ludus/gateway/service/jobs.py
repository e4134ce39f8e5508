"""The state of a job: which of its episodes are to be played, which are played, and the lines written so far."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from ludus.gateway.service.places import Place
from ludus.gateway.service.schema import RolloutRequest, State
from ludus.gateway.service.spool import Spool


class Job:
    """A request for rollouts that was accepted.

    Args:
        name: its id, which cannot be guessed.
        owner: the name of the token that asked for it.
        request: the request.
        raw: the request as JSON, for the workers, with its secrets.
        seed: the seed from which those of episodes and sampling are derived.
        folder: for its lines.
    """

    def __init__(
        self, name: str, owner: str, request: RolloutRequest, raw: dict[str, Any], seed: int, folder: Path
    ) -> None:
        self.name: Final[str] = name
        """The id."""
        self.owner: Final[str] = owner
        """The name of the token that asked for it."""
        self.request: Final[RolloutRequest] = request
        """The request."""
        self.raw: Final[dict[str, Any]] = raw
        """The request as JSON."""
        self.seed: Final[int] = seed
        """The seed of the job."""
        self.spool: Final[Spool] = Spool(folder)
        """The lines."""
        self.checked: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Done when the request was checked; it raises what is wrong with it."""
        self.ended: Final[asyncio.Event] = asyncio.Event()
        """Set when the last line was written."""
        self.state: State = "running"
        self.ending: State | None = None
        """The state to come, of a job that is being canceled."""
        self.running: Final[dict[int, Place]] = {}
        """The attempts that are played, or whose episodes are released, by index."""
        self.delayed: Final[dict[int, asyncio.TimerHandle]] = {}
        """The attempts that wait for their turn after a failure, by index."""
        self.again: Final[deque[Place]] = deque()
        """The attempts that follow a failure and can begin."""
        self.sent = 0
        """How many lines a reader has been sent."""
        self.scored = self.unscored = self.attempts = 0
        self.read_at = time.monotonic()
        """When a reader was last there."""
        self.readers = 0
        """How many streams are open."""
        self.stream = 0
        """The number of the newest stream, which ends the ones before it."""
        self._next = 0
        self._news = asyncio.Event()

    # ── episodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def startable(self) -> bool:
        """Whether another attempt may begin: there is one, and the reader has not fallen behind."""
        if self.ending is not None or not self.checked.done():
            return False
        if not self.again and self._next >= self.request.episodes:
            return False
        waiting = self.spool.count - self.sent
        return len(self.running) < self.request.concurrency and len(self.running) + waiting < self.request.ahead

    def start(self) -> Place:
        """Return the attempt that begins now; retries come first."""
        if self.again:
            place = self.again.popleft()
        else:
            place = Place(self.name, self._next, 1, self.seed)
            self._next += 1
        self.running[place.index] = place
        self.attempts += 1
        return place

    def abandon(self, ending: State) -> None:
        """Start no further attempts. The job ends when those that run have ended."""
        self.ending = self.ending or ending
        self.again.clear()
        for timer in self.delayed.values():
            timer.cancel()
        self.delayed.clear()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do except to write the last line."""
        left = self.scored + self.unscored < self.request.episodes
        return not self.ended.is_set() and not self.running and (not left or self.ending is not None)

    # ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, body: bytes, *, scored: bool) -> None:
        """Write the line of an episode.

        Args:
            body: the line as a JSON object without its number.
            scored: whether the episode has a reward.
        """
        self.spool.add(b'{"line":%d,' % self.spool.count + body[1:] + b"\n")
        self.scored += scored
        self.unscored += not scored
        self.wake()

    def end(self) -> None:
        """Write the last line."""
        self.state = self.ending or "completed"
        fields = {"line": self.spool.count, "type": "end", "job": self.name, "state": self.state}
        self.spool.add(json.dumps({**fields, "counts": self.counts()}).encode() + b"\n")
        self.ended.set()
        self.wake()

    def counts(self) -> dict[str, int]:
        """Return the fields of `Counts`."""
        canceled = self.request.episodes - self.scored - self.unscored if self.state != "running" else 0
        return {
            "episodes": self.request.episodes,
            "scored": self.scored,
            "unscored": self.unscored,
            "canceled": canceled,
            "attempts": self.attempts,
        }

    def status(self) -> dict[str, Any]:
        """Return the fields of `JobStatus`."""
        return {
            "job": self.name,
            "state": self.state,
            "counts": self.counts(),
            "running": len(self.running),
            "lines": self.spool.count,
            "first_line": self.spool.first,
        }

    def wake(self) -> None:
        """Wake the readers."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, seconds: float) -> None:
        """Wait until there is something new for readers, at most `seconds`."""
        news = self._news
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return
