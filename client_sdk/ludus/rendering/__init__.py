"""Conversations as token ids: chat templates, tool calls in the text formats of models, and parsing of sampled ids.

Needs the packages of the `trainer` extra except torch: a tokenizer of `transformers` and `jinja2`.
"""

from __future__ import annotations

from ludus.protocol.tool_calls import AnyCall, TextFormatName
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.renderer import ParsedTurn, Renderer
from ludus.rendering.template import ChatMessage, Rendered

__all__ = [
    "AnyCall", "ChatMessage", "ParsedTurn", "Rendered", "Renderer", "RenderingError", "TemplateExceeded",
    "TextFormatName",
]  # fmt: skip
