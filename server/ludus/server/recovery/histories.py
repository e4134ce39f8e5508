"""What a journal holds, by episode."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ludus.protocol.episodes import StepResult
from ludus.server.durability.journal import (
    Asked,
    Ended,
    Entry,
    Evicted,
    Reported,
    Saved,
    Scored,
    Settled,
    Started,
    Stored,
    Tallied,
    WorldDeleted,
    WorldVersioned,
)
from ludus.server.runtime.episode import StepRecord


@dataclass(slots=True)
class History:
    """What the journal holds of one episode."""

    started: Started
    began: float
    """The Unix time of the start."""
    last: float
    """The Unix time of the last entry."""
    asked: list[Asked] = field(default_factory=list)
    settled: dict[str, Settled] = field(default_factory=dict)
    """By the call's key."""
    places: dict[str, int] = field(default_factory=dict)
    """The place of each outcome among those of all episodes in the journal, by the call's key."""
    saved: dict[int, Saved] = field(default_factory=dict)
    """The snapshots of its state, by the step after which they were taken."""
    scored: list[Scored] = field(default_factory=list)
    """The scores of its group, if it is the first of the scored episodes."""
    ended: Ended | None = None
    evicted: bool = False

    def calls(self) -> Sequence[StepRecord]:
        """Return the calls up to the last one that has an outcome, with their outcomes."""
        settled = [number for number, call in enumerate(self.asked, 1) if call.key in self.settled]
        order = {key: index for index, key in enumerate(self.settled)}
        return [
            record_of(call, self.settled.get(call.key), order.get(call.key, 0))
            for call in self.asked[: max(settled, default=0)]
        ]

    def settled_calls(self) -> int:
        """Return up to which call all have an outcome, and settled before all calls after it."""
        last_settled, open_keys = 0, set[str]()
        for number, (call, key) in enumerate(zip(self.asked, self.settled, strict=False), 1):
            open_keys ^= {call.key}
            open_keys ^= {key}
            if not open_keys:
                last_settled = number
        return last_settled

    def unsettled(self) -> Sequence[Asked]:
        """Return the calls that have no outcome."""
        return [call for call in self.asked if call.key not in self.settled]


def record_of(call: Asked, settled: Settled | None, order: int) -> StepRecord:
    """Return the record of a call in a journal.

    Args:
        call: the call.
        settled: its outcome, if it has one.
        order: its place among the calls that have an outcome.
    """
    record = StepRecord(call.step, call.key, call.tool, call.arguments, call.turn)
    record.digest, record.refused, record.order = call.digest, call.refused, order
    if settled is not None:
        record.logged, record.original_result = settled.entries, settled.original
        if isinstance(settled.outcome, StepResult):
            record.noise = settled.outcome.noise
        record.settle(settled.outcome)
    return record


class Histories:
    """The histories of episodes, in the order of their starts.

    Attributes:
        episodes: the histories, by id.
        reports: the entries that belong to no episode.
        worlds: the entries of worlds.
    """

    def __init__(self) -> None:
        self.episodes: dict[str, History] = {}
        self.reports: list[Reported | Tallied] = []
        self.worlds: list[WorldVersioned | WorldDeleted] = []
        self._settled = 0

    def add(self, stored: Iterable[Stored]) -> None:
        """Add entries, the oldest first."""
        for item in stored:
            entry = item.entry
            if isinstance(entry, Reported | Tallied):
                self.reports.append(entry)
            elif isinstance(entry, WorldVersioned | WorldDeleted):
                self.worlds.append(entry)
            elif isinstance(entry, Started):
                self.episodes[entry.episode] = History(entry, item.at, item.at)
            elif (history := self.episodes.get(entry.episode)) is not None:
                history.last = item.at
                if isinstance(entry, Settled) and history.started.match is not None:
                    self._settled += 1
                    history.places[entry.key] = self._settled
                _add(history, entry)

    def forget_old(self, kept_seconds: float) -> None:
        """Remove the groups all of whose episodes ended long ago, or were forgotten."""
        groups: dict[str, list[History]] = {}
        for history in self.episodes.values():
            groups.setdefault(history.started.group, []).append(history)
        oldest = time.time() - kept_seconds
        for members in groups.values():
            if all(member.evicted or (member.ended is not None and member.last < oldest) for member in members):
                for member in members:
                    del self.episodes[member.started.episode]


def _is_asked_again(history: History, previous: Asked, entry: Asked) -> bool:
    """Return whether a call without an outcome was given up when a later one was accepted: it takes its number."""
    again = (
        previous.step >= entry.step
        if entry.tool is not None and previous.tool is not None
        else previous.key == entry.key
    )
    return again and previous.key not in history.settled


def _add(history: History, entry: Entry) -> None:
    match entry:
        case Asked():
            while history.asked and _is_asked_again(history, history.asked[-1], entry):
                history.asked.pop()
            history.asked.append(entry)
        case Settled():
            history.settled[entry.key] = entry
        case Scored():
            history.scored.append(entry)
        case Saved():
            history.saved[entry.step] = entry
        case Ended():
            history.ended = entry
        case Evicted():
            history.evicted = True
