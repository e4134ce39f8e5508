"""Conversations as token ids: chat templates, tool calls in the text formats of models, and parsing of sampled ids.

Needs the packages of the `trainer` extra except torch: a tokenizer of `transformers` and `jinja2`.
"""

from __future__ import annotations

from ludus.protocol.text_forms import AnyCall
from ludus.protocol.tool_calls import TextFormatName
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.renderer import Called, ParsedTurn, Renderer
from ludus.rendering.round_trip import TurnStyle
from ludus.rendering.template import ChatMessage, Rendered

__all__ = [
    "AnyCall", "Called", "ChatMessage", "ParsedTurn", "Rendered", "Renderer", "RenderingError", "TemplateExceeded",
    "TextFormatName", "TurnStyle",
]  # fmt: skip
