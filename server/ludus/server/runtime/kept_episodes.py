"""The memory of episodes that have ended, and which of them to forget when it is too much.

An episode that has ended keeps the outcomes of its calls for repeated requests, its reward log and what a trainer may
ask for. The bytes of all of them together are bounded. Beyond that, the owner that holds the most loses its oldest:
first an episode that was closed, whose owner has said that it needs it no longer. So the many episodes of one owner do
not push out those of another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ludus.protocol.rewards import Reward

COMPONENT_BYTES: Final = 512
"""The memory of a reward's component without its texts."""


class _Owner:
    """The ended episodes of one owner, with their bytes, the oldest first."""

    __slots__ = ("bytes", "closed", "open")

    def __init__(self) -> None:
        self.bytes = 0
        self.open: OrderedDict[str, int] = OrderedDict()
        self.closed: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.open) + len(self.closed)


class KeptEpisodes:
    """Counts the bytes of ended episodes.

    Args:
        most: the most bytes of all of them. The last one stays, however large it is.
    """

    def __init__(self, most: int) -> None:
        self.bytes = 0
        """The bytes of all of them."""
        self._most = most
        self._owners: dict[str, _Owner] = {}
        self._owner_of: dict[str, str] = {}
        self._last = ""

    def __len__(self) -> int:
        return len(self._owner_of)

    def add(self, episode: str, owner: str, size: int) -> None:
        """Count an episode that has ended."""
        holder = self._owners.setdefault(owner, _Owner())
        holder.open[episode] = size
        self._owner_of[episode] = owner
        self._last = episode
        holder.bytes += size
        self.bytes += size

    def close(self, episode: str) -> None:
        """Note that an episode was closed; one that is not counted is no error."""
        holder = self._owners.get(self._owner_of.get(episode, ""))
        if holder is not None and episode in holder.open:
            holder.closed[episode] = holder.open.pop(episode)

    def remove(self, episode: str) -> None:
        """Count an episode no more; one that is not counted is no error."""
        owner = self._owner_of.pop(episode, None)
        if owner is None:
            return
        holder = self._owners[owner]
        size = holder.open.pop(episode, None)
        if size is None:
            size = holder.closed.pop(episode)
        holder.bytes -= size
        self.bytes -= size
        if not len(holder):
            del self._owners[owner]

    def surplus(self, may_go: Callable[[str], bool]) -> str | None:
        """Return an episode to forget because there are too many bytes; None if there are not.

        Args:
            may_go: whether an episode can be forgotten now.
        """
        if self.bytes <= self._most:
            return None
        holder = max(self._owners.values(), key=lambda candidate: candidate.bytes)
        oldest = (name for episodes in (holder.closed, holder.open) for name in episodes)
        return next((name for name in oldest if name != self._last and may_go(name)), None)


def bytes_of_reward(reward: Reward) -> int:
    """Return about how many bytes a reward holds in its texts and components."""
    size = len(reward.reason or "") + sum(len(name) + len(cause) for name, cause in reward.missing.items())
    for name, part in reward.components.items():
        size += COMPONENT_BYTES + len(name) + len(part.evidence or "")
    return size
