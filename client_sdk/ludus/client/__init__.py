"""Find environments, run episodes, record trajectories."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ludus.client._connect import connect
    from ludus.client.client import Client
    from ludus.client.environment import RemoteEnvironment
    from ludus.client.episode import Episode, Group
    from ludus.client.transports.base import Wire, WireCapabilities
    from ludus.protocol.actions import Action, Answer, Call

__all__ = [
    "Action",
    "Answer",
    "Call",
    "Client",
    "Episode",
    "Group",
    "RemoteEnvironment",
    "Wire",
    "WireCapabilities",
    "connect",
]

# Names are imported at first use (PEP 562), so that `ludus --help` and programs that use one part start fast.
_HOMES: Final = {
    "Action": "ludus.protocol.actions",
    "Answer": "ludus.protocol.actions",
    "Call": "ludus.protocol.actions",
    "Client": "ludus.client.client",
    "Episode": "ludus.client.episode",
    "Group": "ludus.client.episode",
    "RemoteEnvironment": "ludus.client.environment",
    "Wire": "ludus.client.transports.base",
    "WireCapabilities": "ludus.client.transports.base",
    "connect": "ludus.client._connect",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
