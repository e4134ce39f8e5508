"""Where hubs are found, and how owners on them are named: what commands know of hubs without the hub's client."""

from __future__ import annotations

from typing import Final

__all__ = ["OWNER_PATTERN"]


HUB_VARIABLE: Final = "LUDUS_HUB"
"""The environment variable with the address of the hub."""

DEFAULT_HUB: Final = "http://127.0.0.1:8400"
"""The address of a hub that `ludus hub` has started on this machine."""

OWNER_PATTERN: Final = r"[a-z][a-z0-9]{1,38}"
"""The form of an owner's name. It holds no separator, so that the first part of a distribution's name is the owner."""
