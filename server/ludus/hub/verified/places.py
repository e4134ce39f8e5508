"""Where a harness finds things in its sandbox."""

from __future__ import annotations

from typing import Final

DOOR: Final = "/door"
"""The folder of the hub's socket."""

SOCKET: Final = "socket"
"""The name of the socket in that folder."""
