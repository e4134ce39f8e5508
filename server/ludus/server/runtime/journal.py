"""The interface for making episodes durable: a log of calls and their outcomes, in order.

The host appends an entry before it runs a call (`Asked`) and another one after it (`Settled`), so that a journal on
disk can answer repeated requests and rebuild an episode by replay after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ludus.protocol.episodes import TurnMark
from ludus.protocol.lifecycle import EndReason


@dataclass(frozen=True, slots=True)
class Started:
    """An episode was started; with the class's code, this is enough to start it again."""

    episode: str
    environment: str
    split: str
    index: int
    seed: int
    owner: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A step, or a grade (`tool` is None), was accepted and will run once."""

    episode: str
    step: int
    key: str
    tool: str | None
    arguments: dict[str, Any]
    turn: TurnMark | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A call has an outcome: a result or an error."""

    episode: str
    key: str
    outcome: object


@dataclass(frozen=True, slots=True)
class Ended:
    """The episode has ended."""

    episode: str
    reason: EndReason


Entry = Started | Asked | Settled | Ended


class Journal(Protocol):
    """A log that the host writes. Its methods are called in order, from the event loop, and must not block."""

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        ...

    def read(self, episode: str) -> Sequence[Entry]:
        """Return all entries of an episode, oldest first; empty if it is unknown."""
        ...

    def evict(self, episode: str) -> None:
        """Drop the episode's entries, which are no longer needed: the episode is closed."""
        ...


class MemoryJournal:
    """A journal in memory, which keeps entries until the episode is evicted or the process ends."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        self._entries.setdefault(entry.episode, []).append(entry)

    def read(self, episode: str) -> Sequence[Entry]:
        """Return all entries of an episode, oldest first."""
        return tuple(self._entries.get(episode, ()))

    def evict(self, episode: str) -> None:
        """Drop the episode's entries."""
        self._entries.pop(episode, None)
