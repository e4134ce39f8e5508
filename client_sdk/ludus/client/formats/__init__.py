"""Conversion of tools, conversations and calls to and from the formats of model providers.

There is one module per provider, each with the same five functions:

    tools(specs)        tool definitions for a request
    messages(items)     the conversation for a request (a mapping of the request's fields)
    items(response)     the model's output: an assistant message, calls, or both
    reply(response)     the same output as entries of the next request, with the provider's own fields
    from_text(text)     the response that a text without calls would be

The names of `ludus.protocol.tool_calls`, such as `hermes`, are for models that the caller prompts and samples itself;
see `text`.

None of them needs a provider's package: requests and responses are plain JSON. Schemas are passed on unchanged if the
provider accepts JSON Schema; Google has a dialect of its own, see `google`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

from ludus.client.formats import anthropic, google, openai_chat, openai_responses
from ludus.client.formats.text import TextMessages
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, OutputItem
from ludus.protocol.tool_calls import TEXT_FORMATS, TextFormatName

__all__ = [
    "FORMATS",
    "Format",
    "FormatName",
    "anthropic",
    "google",
    "observations",
    "openai_chat",
    "openai_responses",
]

FormatName = Literal["openai-chat", "openai-responses", "anthropic", "google"] | TextFormatName
"""The names of the formats."""


class Format(Protocol):
    """The interface of a format."""

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

    def from_text(self, text: str) -> dict[str, Any]:
        """Return the response that a text is."""
        ...


FORMATS: Final[Mapping[FormatName, Format]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "google": google,
    **{name: TextMessages(name) for name in TEXT_FORMATS},
}
"""The formats by name."""


def observations(form: Format, calls: Sequence[CallItem], recorded: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the outputs of a turn's calls as entries of the next request.

    Args:
        form: the format.
        calls: the calls with the ids that the provider gave them.
        recorded: what the conversation holds of the turn: the calls in the same order, with ids that were replaced if
            they repeat earlier ones, and their outputs.
    """
    new_ids = [item.call_id for item in recorded if isinstance(item, CallItem)]
    original_ids = {new: call.call_id for new, call in zip(new_ids, calls, strict=True)}
    outputs = [replace(item, call_id=original_ids[item.call_id]) for item in recorded if isinstance(item, OutputItem)]
    if not outputs:
        return []
    conversation: list[dict[str, Any]] = form.messages([*calls, *outputs])[form.CONVERSATION]
    return conversation[len(form.messages(calls)[form.CONVERSATION]) :]
