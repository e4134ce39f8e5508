"""Reads what a journal holds, without changing it, also while a server writes it.

How this works:

* A journal in a file is copied first (`sqlite_copies.py`).
* A journal in a database is read in one transaction, which sees one state of it (`postgres_recorded.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus.protocol.rewards import Reward, total
from ludus.server.durability.codec import stored_in
from ludus.server.durability.database_urls import is_database
from ludus.server.durability.journal import Stored
from ludus.server.durability.journals import open_database
from ludus.server.durability.sqlite_copies import copied_rows, unreadable
from ludus.server.recovery.histories import Histories, History


@dataclass(frozen=True, slots=True)
class Recorded:
    """One episode of a journal."""

    history: History
    size: int
    """The bytes of its entries."""

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.history.started.episode

    @property
    def end(self) -> str:
        """How it ended; `running` if it had not."""
        return "running" if self.history.ended is None else str(self.history.ended.reason)

    @property
    def steps(self) -> int:
        """The number of calls with an outcome, without the final message."""
        return sum(1 for call in self.history.asked if call.tool is not None and call.key in self.history.settled)

    @property
    def reward(self) -> Reward:
        """The sum of its rewards so far."""
        return total(entry.reward for settled in self.history.settled.values() for entry in settled.entries)


def read_recorded(journal: Path | str) -> list[Recorded]:
    """Return the episodes of a journal in the order of their starts.

    Args:
        journal: its file, or the URL of its database, where those of all workers are read.

    Raises:
        JournalUnusable: there is no such journal, or it is not of this version, or a part of it cannot be read.
        OSError: it cannot be copied.
    """
    sizes = Counter[str]()
    stored: Iterator[Stored]
    if isinstance(journal, str) and is_database(journal):
        database = open_database(journal)
        from ludus.server.durability.postgres_recorded import read_database

        stored = read_database(database, sizes)
    else:
        stored = read_stored(Path(journal), sizes)
    histories = Histories()
    histories.add(stored)
    return [Recorded(history, sizes[name]) for name, history in histories.episodes.items()]


def read_stored(path: Path, sizes: Counter[str] | None = None) -> Iterator[Stored]:
    """Yield all entries of a journal, oldest first.

    Args:
        path: the journal.
        sizes: gets the bytes of each episode's entries.

    Raises:
        JournalUnusable: there is no such file, or it is no journal of this version, or a part of it cannot be read.
        OSError: it cannot be copied.
    """
    counts = Counter[str]() if sizes is None else sizes
    for seq, at, batch in copied_rows(path):
        try:
            yield from stored_in(batch, at, counts)
        except ValueError as error:
            raise unreadable(path, seq, error) from None


def find_recorded(episodes: Sequence[Recorded], prefix: str) -> Recorded:
    """Return the episode with an id, or the only one whose id begins so; the `e_` may be left out.

    Raises:
        ValueError: there is none, or there are several.
    """
    matching = [episode for episode in episodes if episode.id == prefix] or [
        episode for episode in episodes if episode.id.startswith((prefix, f"e_{prefix}"))
    ]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ValueError(f"the journal has no episode {prefix!r}; without an episode, its {len(episodes)} are listed")
    some = ", ".join(episode.id for episode in matching[:3]) + (", …" if len(matching) > 3 else "")
    raise ValueError(f"{len(matching)} episodes begin with {prefix!r} ({some}); give more characters")
