"""The content of messages, as text: the policy reads nothing else.

A picture, a sound or a file becomes a line such as `[image: not shown]`, and the header `x-ludus-overridden` names it.
It is not refused, because the policy itself can bring one into the conversation, by a tool that reads files: a refusal
would end the agent program with an error, and so remove an episode that the policy does not like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ludus.gateway.wires.requests import RequestContext, objects, text

_NAMES: Final[Mapping[str, str]] = {
    "image_url": "image", "input_image": "image", "input_file": "file", "document": "file", "input_audio": "audio",
    "video_url": "video", "audio_url": "audio",
}  # fmt: skip


def joined(content: object, param: str, separator: str, context: RequestContext) -> str:
    """Return content as one text.

    Args:
        content: a text, a list of parts, or None.
        param: its place, for messages.
        separator: what to write between the texts of two parts.
        context: gets the kinds of parts that the policy does not see.

    Raises:
        Refusal: it is not valid.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return text(content, param)
    parts = [part_text(part, where, context) for where, part in objects(content, param)]
    return separator.join(part for part in parts if part is not None)


def part_text(part: Mapping[str, Any], param: str, context: RequestContext) -> str | None:
    """Return one part of content as text; None for a part that has none and no meaning for a policy.

    Raises:
        Refusal: it is not valid.
    """
    kind = part.get("type", "text")
    if kind in ("thinking", "redacted_thinking", "reasoning"):  # the policy's own thoughts are in its own turns
        return None
    if "text" in part:
        return text(part["text"], f"{param}.text")
    if kind == "refusal":
        return text(part.get("refusal"), f"{param}.refusal")
    source: object = part.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return text(source.get("data"), f"{param}.source.data")
    blocks: object = part.get("content")
    if kind == "document" and isinstance(source, dict):
        blocks = source.get("content")
    if kind in ("document", "search_result") and blocks is not None:
        return joined(blocks, f"{param}.content", "\n", context)
    return not_shown(kind, context)


def not_shown(kind: object, context: RequestContext) -> str:
    """Return the line that stands for a part which the policy does not see, and note the part's kind."""
    name = _NAMES.get(str(kind), str(kind))
    context.leave_out("content", name)
    return f"[{name}: not shown]"
