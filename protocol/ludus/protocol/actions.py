"""The actions of a policy: call a tool, or give the final answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """Call a tool."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """End the episode with a final message."""

    text: str


Action = Call | Answer
"""One action of a policy."""
