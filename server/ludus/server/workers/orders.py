"""The orders of the supervisor to a worker process, and its answers; see `processes` and `child`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel

from ludus.server.serving.settings import ServerSettings

__all__ = ["KILLED", "Order", "SERVE"]


SERVE: Final = "serve"
"""The line that lets a loaded process open its journal and serve."""

HAND_OVER: Final = "hand over"
"""The line that lets a process free its journal as soon as it can, and end."""

LOAD_PATH: Final = "/workers/load"
"""The path at which the gateway asks for the load, which is also the health check."""


END_PATH: Final = "/workers/end"
"""The path at which the gateway lets a process end at once, if it can be ended in no other way."""

KILLED: Final = -9
"""The exit status of a process that was killed, or is lost."""


class Order(BaseModel):
    """What a worker process is to do: the first line it gets."""

    specs: list[str]
    noise: list[str]
    settings: ServerSettings
    secret: str
    """What the gateway proves itself with."""
    parent: int = 0
    """The process id of its parent, with which it dies."""
    host: str = "127.0.0.1"
    """The address on which it listens for the gateway."""
    lease_seconds: float | None = None
    """How long after a question for its load it ends by itself, if no other one comes; None for never."""
    signs_of_life: bool = False
    """Whether it gives its parent signs of life of its event loop while it serves."""
    takes_over: bool = False
    """Whether another process serves until this one may. This one then rebuilds its episodes before it is loaded."""
    mark: str | None = None
    """What the file `mark_of(journal)` holds, by which another machine knows that it shares the journal's folder."""


def mark_of(journal: Path) -> Path:
    """Return the file that marks the folder of a worker's journal."""
    return journal.with_name(f"{journal.name}.mark")


class Load(BaseModel):
    """How busy a worker is."""

    running: int
    starting: int
    queued: int
    kept: int
    """Episodes in memory, including those that have ended, and worlds: a worker that has any is still needed."""
