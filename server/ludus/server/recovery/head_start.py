"""Rebuilds the episodes of a process that still serves, so that little is left to do once this one takes over.

How this works:

* What the other process has written is read, and its episodes are rebuilt; then what it has written meanwhile, and so
  on, until a round is short. The first round leaves half of the time to others. When this process has taken the journal
  over, it reads the rest, and repeats only the calls of the rest.
* So for a while, there are two instances of an episode. Only the other process answers requests. Nothing that happens
  here is written, and an episode that ends here, or fails, is rebuilt again as in any recovery (`recovery.py`).
* Calls of `concurrent` tools may settle in another order than they were accepted. So an episode is repeated up to a
  call before which no accepted call was unsettled: the calls after it come after it in any order.
* Left out are episodes that no recovery can rebuild, and those of environments that act on the outside.

This is live migration with pre-copy (https://www.usenix.org/conference/nsdi-05/live-migration-virtual-machines), with
calls in place of pages of memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ludus.protocol.errors import LudusError
from ludus.server.durability.journal import Journal
from ludus.server.recovery.histories import Histories, History
from ludus.server.runtime.episode import Episode

log = logging.getLogger("ludus.server.recovery")

ROUNDS: Final = 10
"""The most rounds."""

SHORT_SECONDS: Final = 0.05
"""A round that is shorter is the last one."""

SHORTER: Final = 0.8
"""A round is also the last one if it was not shorter by this factor than the one before: more would not help."""

HEAD_SECONDS: Final = 30.0
"""The most time of all rounds; what is not rebuilt then is rebuilt when this process has taken over."""

AT_ONCE: Final = 8
"""How many episodes are rebuilt at the same time."""


@dataclass(slots=True)
class Begun:
    """An episode that is rebuilt up to some call."""

    episode: Episode
    calls: int
    """How many of its calls, in the order in which they were accepted, it has."""


class HeadStart:
    """The episodes that are rebuilt before this process takes over.

    Args:
        build: returns the episode of a history, without an environment; None if this server does not publish it.
        advance: sets an episode up if it has no environment yet, and repeats calls, up to so many.
        tear_down: tears an episode down.

    Attributes:
        histories: what was read so far.
    """

    def __init__(
        self,
        build: Callable[[History], Awaitable[Episode | None]],
        advance: Callable[[Episode, History, int, int], Awaitable[None]],
        tear_down: Callable[[Episode], Awaitable[None]],
    ) -> None:
        self.histories = Histories()
        self._build = build
        self._advance = advance
        self._tear_down = tear_down
        self._deadline = float("inf")
        self._begun: dict[str, Begun] = {}
        self._unfit: set[str] = set()
        """Episodes that cannot be rebuilt here, or have failed."""

    async def run(self, journal: Journal) -> None:
        """Rebuild the episodes of another process, as far as it has written them."""
        loop = asyncio.get_running_loop()
        previous_seconds = float("inf")
        self._deadline = loop.time() + HEAD_SECONDS
        for number in range(ROUNDS):
            began = loop.time()
            try:
                self.histories.add(await asyncio.to_thread(list, journal.peek()))
            except (LudusError, OSError) as error:
                log.info("no episode is rebuilt before the journal is free: %s", error)
                await self.forget()
                return
            turns = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(
                *(self._rebuild(episode, turns, spares=not number) for episode in self.histories.episodes.values())
            )
            seconds = loop.time() - began
            log.info("rebuilt %d episodes in %.0f ms before the journal is free", len(self._begun), 1e3 * seconds)
            if seconds < SHORT_SECONDS or seconds > SHORTER * previous_seconds or loop.time() > self._deadline:
                return
            previous_seconds = seconds

    def take(self, history: History) -> Begun | None:
        """Return an episode as far as it is rebuilt; None if its history has to be repeated from the beginning."""
        begun = self._begun.get(history.started.episode)
        if begun is None or (history.ended is None) is not (begun.episode.end_reason is None):
            return None
        if history.ended is None and history.settled_calls() < begun.calls:
            return None
        del self._begun[history.started.episode]
        if history.ended is None:
            begun.episode.retired = None
        return begun

    async def forget(self) -> None:
        """Forget all that was read, and tear down what was rebuilt of it."""
        self.histories = Histories()
        await self.discard()

    async def discard(self) -> None:
        """Tear down the episodes that were not taken."""
        begun, self._begun = self._begun, {}
        for entry in begun.values():
            if entry.episode.end_reason is None:
                await self._tear_down(entry.episode)

    async def _rebuild(self, history: History, turns: asyncio.Semaphore, *, spares: bool) -> None:
        """Bring an episode up to the last call that can be repeated now."""
        name = history.started.episode
        begun = self._begun.get(name)
        if history.started.match is not None or history.started.world is not None:  # the recovery knows what they share
            return
        if name in self._unfit or (begun is not None and begun.episode.end_reason is not None):
            return
        calls = history.settled_calls() if history.ended is None else 0
        if begun is not None and begun.calls == calls and history.ended is None:
            return
        async with turns:
            began = asyncio.get_running_loop().time()
            if began > self._deadline:
                return
            if begun is not None and history.ended is not None:
                await self._give_up(begun)
                begun = None
            if begun is None:
                episode = await self._build(history)
                if episode is None:
                    self._unfit.add(name)
                    return
                begun = self._begun[name] = Begun(episode, 0)
            if history.ended is None:
                await self._repeat(begun, history, calls)
            if spares:
                await asyncio.sleep(asyncio.get_running_loop().time() - began)

    async def _repeat(self, begun: Begun, history: History, calls: int) -> None:
        episode = begun.episode
        if episode.retired is None:  # so that nothing ends it
            episode.retired = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._advance(episode, history, begun.calls, calls)
            begun.calls = calls
        except Exception as error:  # whatever it is, the recovery meets it again, and says so
            log.debug("episode %s is not rebuilt yet: %s", episode.id, error)
            self._unfit.add(episode.id)
            await self._give_up(begun)

    async def _give_up(self, begun: Begun) -> None:
        del self._begun[begun.episode.id]
        await self._tear_down(begun.episode)
