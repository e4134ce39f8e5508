"""Policies choose actions. Any async callable can be one; this package has the types and three ready policies.

A policy gets the `Conversation` and returns its action for the turn: a `Call`, several of them (they run concurrently
if the environment allows it), an `Answer`, or a `Turn`, which may also hold text next to the calls, and token usage.

    async def policy(conversation: Conversation) -> Call:
        return Call("guess", {"number": 50})

A policy that keeps state through an episode has `begin(conversation)`, which returns the callable for that episode.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ludus.client.policies.base import Conversation, EpisodePolicy, Policy, PolicyResult, Turn

if TYPE_CHECKING:
    from ludus.client.policies.openai import OpenAIPolicy
    from ludus.client.policies.providers import ProviderPolicy
    from ludus.client.policies.random_policy import RandomPolicy

__all__ = [
    "Conversation",
    "EpisodePolicy",
    "OpenAIPolicy",
    "Policy",
    "PolicyResult",
    "ProviderPolicy",
    "RandomPolicy",
    "Turn",
]

_LAZY = {
    "OpenAIPolicy": "ludus.client.policies.openai",
    "ProviderPolicy": "ludus.client.policies.providers",
    "RandomPolicy": "ludus.client.policies.random_policy",
}
"""Names that are imported at first use, because aiohttp takes longer to import than the rest of the client."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
