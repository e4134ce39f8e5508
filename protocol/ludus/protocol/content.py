"""The content that an agent sees: blocks of text and images, and messages of such blocks. The forms are MCP's own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ludus.protocol.model import WireModel

__all__ = ["Content", "ImageBlock", "Message", "TextBlock", "text_of"]


class TextBlock(WireModel):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


class ImageBlock(WireModel):
    """An image, base64-encoded."""

    type: Literal["image"] = "image"
    data: str
    """Base64 of the image's bytes."""
    mime_type: str
    """An image media type such as `image/png`."""

    @field_validator("data")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"image data is not base64: {error}") from None
        return value

    @classmethod
    def of(cls, data: bytes, mime_type: str = "image/png") -> ImageBlock:
        """Encode raw image bytes."""
        return cls(data=base64.b64encode(data).decode("ascii"), mime_type=mime_type)


Content = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]
"""One content block of an observation or a prompt."""


class Message(WireModel):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"] = "user"
    content: tuple[Content, ...]


def text_of(content: Sequence[Content]) -> str:
    """Return the text of blocks, joined by newlines; an image appears as `[image: image/png]`."""
    return "\n".join(block.text if isinstance(block, TextBlock) else f"[image: {block.mime_type}]" for block in content)
