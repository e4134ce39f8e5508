"""Rubrics that change while a policy learns: versions, and a hook that proposes the next one from scored attempts."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Reward
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.rubric import Rubric

log = logging.getLogger("ludus.server.rewards")

_GROUPS_KEPT: Final = 10_000
"""The number of groups whose version is remembered; the most recently scored ones are kept."""


@dataclass(frozen=True, slots=True)
class ScoredAttempt:
    """An attempt and the reward that it earned under the current version."""

    attempt: Attempt
    """The attempt without its environment, which no longer exists by then."""
    reward: Reward


Propose = Callable[[Rubric, Sequence[ScoredAttempt]], Rubric | None | Awaitable[Rubric | None]]
"""A hook that makes the next version from the current one and the attempts that it scored; None changes nothing."""


class Evolving:
    """A rubric with versions: set it as an environment's `rubric`.

    All episodes of one group are scored by one version, that of the group's first reward, since rewards of different
    versions cannot be compared. Each reward records its version.

    Args:
        rubric: the first version.
        propose: the hook.
        every: call the hook automatically after this many rewards of the current version, concurrently with the
            episodes; None leaves it to calls of `evolve`.
        keep: the most attempts that the hook is shown, the latest ones.
    """

    def __init__(self, rubric: Rubric, propose: Propose, *, every: int | None = None, keep: int = 1000) -> None:
        if every is not None and every < 1:
            raise AuthoringError(f"every must be 1 or more, not {every}")
        self.versions = [rubric]
        """All versions so far, the current one last."""
        self._propose = propose
        self._every = every
        self._seen: deque[ScoredAttempt] = deque(maxlen=keep)
        self._given = 0
        self._groups: OrderedDict[str, Rubric] = OrderedDict()
        self._task: asyncio.Task[Rubric] | None = None

    @property
    def current(self) -> Rubric:
        """The current version."""
        return self.versions[-1]

    def version(self, version: str) -> Rubric:
        """Return the rubric of a version, for example to score old trajectories again.

        Raises:
            KeyError: no rubric has that version.
        """
        for rubric in self.versions:
            if rubric.version == version:
                return rubric
        raise KeyError(version)

    def of_group(self, group: str) -> Rubric:
        """Return the version that scores a group."""
        rubric = self._groups.setdefault(group, self.current)
        self._groups.move_to_end(group)
        if len(self._groups) > _GROUPS_KEPT:
            self._groups.popitem(last=False)
        return rubric

    def record(self, attempt: Attempt, reward: Reward) -> None:
        """Record an attempt that the current version scored, and start `evolve` when it is due."""
        if reward.rubric != self.current.label:
            return
        self._seen.append(ScoredAttempt(attempt, reward))
        self._given += 1
        due = self._every is not None and self._given >= self._every
        if due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._evolve_quietly())

    async def evolve(self) -> Rubric:
        """Ask the hook for the next version, and return the version that is then current.

        Raises:
            AuthoringError: the proposal reuses a version, or has another name.
        """
        seen = list(self._seen)
        proposed = self._propose(self.current, seen)
        if inspect.isawaitable(proposed):
            proposed = await proposed
        self._given = 0
        if proposed is None or proposed is self.current:
            return self.current
        if proposed.name != self.current.name or any(proposed.version == old.version for old in self.versions):
            raise AuthoringError(
                f"the rubric {self.current.label} was to become {proposed.label}; a new version keeps the name and "
                "has a version of its own"
            )
        log.info("the rubric %s becomes %s", self.current.label, proposed.label)
        self.versions.append(proposed)
        self._seen.clear()
        return proposed

    async def settled(self) -> Rubric:
        """Wait until no proposal is pending, and return the version that is then current."""
        if self._task is not None:
            await self._task
        return self.current

    async def _evolve_quietly(self) -> Rubric:
        try:
            return await self.evolve()
        except Exception:
            log.exception("proposing the next version of the rubric %s failed; it stays", self.current.label)
            self._given = 0
            return self.current
