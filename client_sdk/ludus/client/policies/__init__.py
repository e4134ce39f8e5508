"""Policies: what chooses actions. Any async callable is one; here are its type and two ready ones.

A policy gets the `Conversation` and returns what it does in its turn: a `Call`, several of them (they run at once where
the environment allows it), an `Answer`, or a `Turn`, which may also hold text beside the calls and token usage.

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
    from ludus.client.policies.random_policy import RandomPolicy

__all__ = [
    "Conversation",
    "EpisodePolicy",
    "OpenAIPolicy",
    "Policy",
    "PolicyResult",
    "RandomPolicy",
    "Turn",
]

_LAZY = {
    "OpenAIPolicy": "ludus.client.policies.openai",
    "RandomPolicy": "ludus.client.policies.random_policy",
}
"""Imported at first use: httpx alone takes longer to import than the rest of the client."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
