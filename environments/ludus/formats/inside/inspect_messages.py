"""Converts messages and tools of Inspect AI to those of an episode."""

from __future__ import annotations

import re
from typing import Any

from .values import image

_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,(.+)", re.DOTALL)
_KINDS = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def prompt_of(messages: list[Any]) -> list[dict[str, Any]]:
    """Return messages as a prompt; results of tools appear as the user's."""
    return [
        {
            "role": message.role if message.role in ("system", "user", "assistant") else "user",
            "content": content_of(message),
        }
        for message in messages
    ]


def content_of(message: Any) -> list[Any]:
    """Return the content of a message as texts and images; an error of a tool is its text."""
    error = getattr(message, "error", None)
    if error is not None:
        return [str(error.message)]
    if isinstance(message.content, str):
        return [message.content]
    return [_block(one) for one in message.content]


def tool_of(info: Any) -> dict[str, Any]:
    """Return a tool in the form of `adapter.tool`."""
    schema = info.parameters.model_dump(exclude_none=True, by_alias=True)
    return {"name": info.name, "description": info.description, "schema": schema}


def _block(block: Any) -> Any:
    if block.type == "text":
        return str(block.text)
    if block.type == "image":
        found = _DATA_URL.fullmatch(block.image)
        if found:
            return {"type": "image", "data": found[2], "mimeType": found[1]}
        kind = _KINDS.get(block.image.rpartition(".")[2].lower())
        if kind and "://" not in block.image:
            with open(block.image, "rb") as file:
                return image(file.read(), kind)
        return str(block.image)
    return str(getattr(block, "text", None) or getattr(block, "reasoning", None) or f"[{block.type}]")
