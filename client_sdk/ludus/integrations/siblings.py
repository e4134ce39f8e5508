"""Values for unscored episodes, for systems that need a number from every episode and never see the group.

How this works:

* Episodes of one group that run in one event loop at the same time `join` under the same key.
* A scored episode gets its own value. An unscored one waits until the others have ended and gets the mean of those that
  are scored. A baseline over the group is then the same as without it.
* If none of them is scored, it gets the mean of all scored episodes of this process so far.
* If there is none either, the episode's failure is raised: there is no number that would not be made up.
* After `LIMIT` unscored episodes in a row, the failure is raised too: the server is probably gone, and the trainer
  would learn nothing from the rest of its run.

The caller masks the tokens of an unscored episode, so the number itself is never learned from.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ludus.client import EpisodeOutcome
from ludus.protocol.errors import EpisodeFailed

LIMIT: Final = 256
"""How many episodes of a process may be unscored in a row before the run is stopped."""


@dataclass(slots=True)
class _Group:
    values: list[asyncio.Future[float | None]] = field(default_factory=list)
    members: int = 0


@dataclass(slots=True)
class Siblings:
    """The episodes of all groups that an adapter plays in this process."""

    total: float = 0.0
    """The sum of the values of all scored episodes so far."""
    scored: int = 0
    """How many episodes were scored so far."""
    unscored_in_a_row: int = 0
    """How many episodes were unscored since the last scored one."""
    _groups: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Group]] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    @contextmanager
    def join(self, key: Hashable) -> Iterator[Sibling]:
        """Join the group of a key; the block is left when the episode has its value."""
        groups = self._groups.setdefault(asyncio.get_running_loop(), {})
        group = groups.setdefault(key, _Group())
        own: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        group.values.append(own)
        group.members += 1
        try:
            yield Sibling(self, group, own)
        finally:
            if not own.done():
                own.set_result(None)
            group.members -= 1
            if group.members == 0:
                groups.pop(key, None)


@dataclass(slots=True)
class Sibling:
    """One episode of a group."""

    _all: Siblings
    _group: _Group
    _own: asyncio.Future[float | None]

    async def value(self, outcome: EpisodeOutcome, patience: float | None = None) -> float:
        """Return the episode's value, or the mean of the others if it is unscored.

        Args:
            outcome: how the episode ended.
            patience: for how many seconds it waits for the others; then only those count that have ended. None for a
                trainer that waits for every episode of the group anyway.

        Raises:
            LudusError: it is unscored, and no episode of this process was scored yet, or `LIMIT` episodes in a row
                were unscored.
        """
        self._own.set_result(outcome.value)
        if outcome.value is not None:
            self._all.total += outcome.value
            self._all.scored += 1
            self._all.unscored_in_a_row = 0
            return outcome.value
        self._all.unscored_in_a_row += 1
        if self._all.unscored_in_a_row >= LIMIT:
            raise EpisodeFailed(
                f"{self._all.unscored_in_a_row} episodes in a row were unscored: check the server, and resume from the "
                f"last checkpoint. The last one: {outcome.reason}"
            )
        ended, _ = await asyncio.wait(self._group.values, timeout=patience)
        others = [value for one in ended if (value := one.result()) is not None]
        if others:
            return sum(others) / len(others)
        if self._all.scored:
            return self._all.total / self._all.scored
        outcome.raise_for_failure()
        raise EpisodeFailed(f"no episode has a value yet: {outcome.reason}")


SIBLINGS: Final = Siblings()
"""The episodes of this process."""
