"""Messages of models whose text the caller samples itself: the tool calls are in the text of the reply.

Prompts are chat messages with tools, as chat templates take them. A reply is the sampled text; it stays in the
conversation as it is. Everything up to the last `</think>` is a thought, in which nothing is a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ludus.client.formats import _names, openai_chat
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, text_message
from ludus.protocol.tool_calls import TEXT_FORMATS, TextFormatName


@dataclass(frozen=True, slots=True)
class TextMessages:
    """A format of text; see `ludus.client.formats.Format`."""

    name: TextFormatName

    @property
    def CONVERSATION(self) -> str:
        """See `Format`."""
        return openai_chat.CONVERSATION

    def tools(self, specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return the tools for a chat template."""
        return openai_chat.tools(specs)

    def messages(self, items: Sequence[Item]) -> dict[str, Any]:
        """Return `{"messages": [...]}`."""
        return openai_chat.messages(items)

    def items(self, response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
        """Return the message and the calls in the text of a reply.

        Raises:
            KeyError, TypeError: `response` has no text as its `content`.
        """
        (message,) = self.reply(response)
        schemas = {_names.encode(spec.name): spec.input_schema for spec in specs}
        _, spoken, calls = TEXT_FORMATS[self.name].parse(message["content"], schemas)
        items: list[Item] = [text_message("assistant", spoken)] if spoken or not calls else []
        for number, call in enumerate(calls, start=1):
            items.append(CallItem(f"call_{number}", replace(call, tool=_names.decode(call.tool, specs))))
        return items

    def reply(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the reply as the entry of the next prompt.

        Raises:
            KeyError, TypeError: see `items`.
        """
        if not isinstance(response["content"], str):
            raise TypeError("the content is not a text")
        return [{"role": "assistant", "content": response["content"]}]

    def from_text(self, text: str) -> dict[str, Any]:
        """Return the reply that a sampled text is."""
        return openai_chat.from_text(text)
