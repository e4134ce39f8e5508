"""Notes of which worker got which start, and the interface of what keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

KEPT_SECONDS: Final = 24 * 3600.0
"""How long a note is kept."""

MOST_NOTES: Final = 200_000
"""The most notes; the oldest are dropped first."""


class Note(NamedTuple):
    """Which worker got a start."""

    at: float
    """The Unix time."""
    digest: bytes
    """The digest of the start's owner and key."""
    worker: str


class Notes(Protocol):
    """Notes that outlive the gateway."""

    def read(self) -> Iterable[Note]:
        """Return the notes that are not too old, oldest first; called once, before anything is written.

        Raises:
            AuthoringError: they cannot be read.
        """
        ...

    def write(self, note: Note) -> asyncio.Future[None] | None:
        """Write a note; return what to wait for, or None if it is written.

        What is returned raises a LudusError if the note cannot be written.
        """
        ...

    @property
    def trouble(self) -> str | None:
        """Why no note can be written at present; None if one can, or if the journals of the workers say so."""
        ...

    def close(self) -> None:
        """Free what is held. Closing twice is no error."""
        ...
