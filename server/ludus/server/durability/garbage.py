"""Which entries of a journal are no longer needed, and dropping them while the server runs.

A group's entries are dropped when all its episodes are forgotten, because the key of its start is needed until then. A
pass goes over all rows once, a part at a time, so that rows which wait to be written never wait long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from ludus.server.durability.codec import split
from ludus.server.durability.journal import Entry, Evicted, Started, WorldDeleted

PART_BYTES: Final = 1024 * 1024
"""The bytes of rows that one part of a pass reads."""


class Rows(Protocol):
    """The rows of a journal."""

    def last(self) -> int:
        """Return the number of the last row."""
        ...

    def some(self, after: int, upto: int, size: int) -> list[tuple[int, bytes]]:
        """Return rows after one and up to one, in order, until they have about so many bytes; empty if none is left."""
        ...

    def replace(self, rows: Mapping[int, bytes]) -> None:
        """Replace rows, and delete those that are empty now, all at once."""
        ...


class Pass:
    """One pass over the rows that a journal has now.

    Args:
        episodes: those whose entries are dropped.
    """

    def __init__(self, episodes: frozenset[str]) -> None:
        self.episodes = episodes
        self._at = 0
        self._upto: int | None = None
        self.remaining_bytes = 0
        """The bytes of the entries that stay."""

    def do_part(self, rows: Rows) -> bool:
        """Go over some further rows, and return whether there may be more."""
        if self._upto is None:
            self._upto = rows.last()
        page = rows.some(self._at, self._upto, PART_BYTES)
        changed: dict[int, bytes] = {}
        size = 0
        for seq, entries in page:
            remaining = without(entries, self.episodes)
            size += len(remaining)
            if len(remaining) < len(entries):
                changed[seq] = remaining
        if changed:
            rows.replace(changed)
        self.remaining_bytes += size
        if page:
            self._at = page[-1][0]
        return bool(page) and self._at < self._upto


def without(entries: bytes, episodes: frozenset[str]) -> bytes:
    """Return the entries of a row without those of some episodes."""
    return b"".join(raw for _, episode, _, _, raw in split(entries) if episode not in episodes)


class Garbage:
    """The episodes of a journal, by group, and those whose entries can be dropped."""

    def __init__(self) -> None:
        self._members: dict[str, list[str]] = {}
        self._group_of: dict[str, str] = {}
        """The groups of the episodes that are not forgotten."""
        self._left: dict[str, int] = {}
        """By group, how many of its episodes are not forgotten."""
        self._droppable: set[str] = set()

    def note(self, entry: Entry) -> None:
        """Note what an entry means for its episode."""
        if isinstance(entry, Started):
            self._members.setdefault(entry.group, []).append(entry.episode)
            self._group_of[entry.episode] = entry.group
            self._left.setdefault(entry.group, entry.size)
        elif isinstance(entry, WorldDeleted):
            self._droppable.add(entry.episode)
        elif isinstance(entry, Evicted) and (group := self._group_of.pop(entry.episode, None)) is not None:
            self._left[group] -= 1
            if not self._left[group]:
                del self._left[group]
                self._droppable.update(self._members.pop(group))

    def forget_others(self, needed: frozenset[str], *, later: bool) -> None:
        """Forget the episodes that are not kept.

        Args:
            needed: the episodes that are needed.
            later: whether the entries of the others are still there, so that a pass is to drop them.
        """
        for group, members in list(self._members.items()):
            if not needed.intersection(members):
                del self._members[group], self._left[group]
                for episode in members:
                    self._group_of.pop(episode, None)
                if later:
                    self._droppable.update(members)
        if not later:
            self._droppable.clear()

    def put_back(self, failed: Pass) -> None:
        """Let a later pass drop what one could not."""
        self._droppable.update(failed.episodes)

    def begin(self) -> Pass | None:
        """Return a pass that drops what can be dropped; None if there is nothing."""
        if not self._droppable:
            return None
        droppable, self._droppable = frozenset(self._droppable), set()
        return Pass(droppable)
