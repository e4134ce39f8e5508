"""What a policy may do in its turn: call a tool, or say its final answer."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ludus.protocol._model import WireModel


class Call(WireModel):
    """Call a tool."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, tool: str, arguments: dict[str, Any] | None = None) -> None:
        super().__init__(tool=tool, arguments=arguments or {})


class Answer(WireModel):
    """End the episode with a final message."""

    text: str

    def __init__(self, text: str) -> None:
        super().__init__(text=text)


Action = Call | Answer
"""One action of a policy."""
