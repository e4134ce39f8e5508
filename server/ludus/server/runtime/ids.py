"""The ids that a server process makes; with a worker id, they name it (see `ludus.protocol.workers`)."""

from __future__ import annotations

import secrets
import uuid

_BYTES = 12
"""Random bytes of an id: two servers never make the same one."""


class Ids:
    """Makes unguessable ids.

    Args:
        worker: the worker id of this process; None for a server that is alone.
    """

    def __init__(self, worker: str | None = None) -> None:
        self.worker = worker
        self._mark = f"{worker}." if worker is not None else ""

    def episode(self) -> str:
        """Return the id of a new episode."""
        return f"e_{self._mark}{secrets.token_urlsafe(_BYTES)}"

    def group(self) -> str:
        """Return the id of a new group."""
        return f"g_{self._mark}{secrets.token_urlsafe(_BYTES)}"

    def match(self) -> str:
        """Return the id of a new match."""
        return f"m_{self._mark}{secrets.token_urlsafe(_BYTES)}"

    def world(self) -> str:
        """Return the id of a new world."""
        return f"w_{self._mark}{secrets.token_urlsafe(_BYTES)}"

    def session(self) -> str:
        """Return the id of a new ORS session."""
        return f"{self._mark}{uuid.uuid4()}"
