"""The seam through which episodes will become durable: what was asked, and what came of it, in order.

The host appends before it acts (`Asked`) and after (`Settled`), so that a journal on disk can answer repeated requests
and rebuild an episode by replay after a crash.
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
    """What it came to: a result, or the error that ended the episode."""

    episode: str
    key: str
    outcome: object


@dataclass(frozen=True, slots=True)
class Ended:
    """The episode is over."""

    episode: str
    reason: EndReason


Entry = Started | Asked | Settled | Ended


class Journal(Protocol):
    """Where the host writes what happens. Calls come in order, from the event loop, and must not block it."""

    def append(self, entry: Entry) -> None:
        """Remember an entry."""
        ...

    def read(self, episode: str) -> Sequence[Entry]:
        """All entries of an episode, oldest first; empty when it is unknown."""
        ...

    def evict(self, episode: str) -> None:
        """The episode is closed and its outcomes need not be kept any longer."""
        ...


class MemoryJournal:
    """Keeps entries as long as the process and the episode live."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}

    def append(self, entry: Entry) -> None:
        """Remember an entry."""
        self._entries.setdefault(entry.episode, []).append(entry)

    def read(self, episode: str) -> Sequence[Entry]:
        """All entries of an episode, oldest first."""
        return tuple(self._entries.get(episode, ()))

    def evict(self, episode: str) -> None:
        """Drop the episode's entries."""
        self._entries.pop(episode, None)
