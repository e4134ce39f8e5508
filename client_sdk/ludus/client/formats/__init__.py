"""Tools, conversations and calls in the forms of model providers, and back.

One module per form, each with the same three functions:

    tools(specs)        tool definitions for a request
    messages(items)     the conversation for a request (a mapping of the request's fields)
    items(response)     what the model did: an assistant message, calls, or both

Nothing here needs a provider's package: requests and responses are plain JSON. Schemas go through unchanged wherever a
provider takes JSON Schema; `google` has its own dialect, see there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from ludus.client.formats import anthropic, google, openai_chat, openai_responses
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import Item

__all__ = ["FORMATS", "Format", "FormatName", "anthropic", "google", "openai_chat", "openai_responses"]

FormatName = Literal["openai-chat", "openai-responses", "anthropic", "google"]
"""The forms there are."""


class Format(Protocol):
    """What each module of this package is."""

    def tools(self, specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Tool definitions for a request."""
        ...

    def messages(self, items: Sequence[Item]) -> dict[str, Any]:
        """The request's fields that hold the conversation."""
        ...

    def items(self, response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
        """What the model did. With `specs`, names that were adapted for the provider become the tools' own again."""
        ...


FORMATS: Final[Mapping[FormatName, Format]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "google": google,
}
"""The modules by the name of their form."""
