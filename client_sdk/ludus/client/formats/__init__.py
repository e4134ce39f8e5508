"""Conversion of tools, conversations and calls to and from the formats of model providers.

There is one module per format, each with the same four functions:

    tools(specs)        tool definitions for a request
    messages(items)     the conversation for a request (a mapping of the request's fields)
    items(response)     the model's output: an assistant message, calls, or both
    reply(response)     the same output as entries of the next request, with the provider's own fields

None of them needs a provider's package: requests and responses are plain JSON. Schemas are passed on unchanged if the
provider accepts JSON Schema; Google has a dialect of its own, see `google`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from ludus.client.formats import anthropic, google, openai_chat, openai_responses
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import Item

__all__ = ["FORMATS", "Format", "FormatName", "anthropic", "google", "openai_chat", "openai_responses"]

FormatName = Literal["openai-chat", "openai-responses", "anthropic", "google"]
"""The names of the formats."""


class Format(Protocol):
    """The interface of each module of this package."""

    @property
    def CONVERSATION(self) -> str:
        """The field of a request that holds the conversation."""
        ...

    def tools(self, specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return the tool definitions for a request."""
        ...

    def messages(self, items: Sequence[Item]) -> dict[str, Any]:
        """Return the fields of a request that hold the conversation."""
        ...

    def items(self, response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
        """Return the model's output. With `specs`, tool names that were encoded for the provider are decoded."""
        ...

    def reply(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the model's output as entries of the next request."""
        ...


FORMATS: Final[Mapping[FormatName, Format]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "google": google,
}
"""The modules by the name of their format."""
