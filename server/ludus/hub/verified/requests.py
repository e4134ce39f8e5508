"""Requests of a harness to its model, checked: one model, no tools of the provider, no address that it would open.

A field that is not known here could make the endpoint choose another model, search the web or open an address of the
harness's choice, so only known ones pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ludus.protocol.bounds import check_json
from ludus.protocol.errors import InvalidParams

PARAMETERS: Final = frozenset({
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n",
    "tool_choice", "parallel_tool_calls", "response_format", "logprobs", "top_logprobs", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "reasoning_effort", "verbosity", "user",
    "chat_template_kwargs",
})  # fmt: skip
"""The fields that only shape an answer. An account may fix them for a run."""

_OTHERS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options"})
_MOST_ANSWERS: Final = 16


class Prepared(NamedTuple):
    """A request as the endpoint gets it."""

    body: bytes
    streams: bool
    hides_usage: bool
    """Whether the harness has not asked for the numbers of tokens in the stream, so that it does not get them."""


def prepare(body: bytes, model: str, options: Mapping[str, Any]) -> Prepared:
    """Return a request for chat completions as the endpoint gets it.

    Args:
        body: what the harness has sent.
        model: the model of the run.
        options: the fields that the account has fixed for the run.

    Raises:
        InvalidParams: it asks for another model, or has a field that does not pass.
    """
    check_json(body)
    asked = json.loads(body)
    if not isinstance(asked, dict):
        raise InvalidParams("the request is not a JSON object")
    if asked.get("model") != model:
        raise InvalidParams(f"this run has the model {model!r} and no other")
    unknown = sorted(asked.keys() - PARAMETERS - _OTHERS)
    if unknown:
        raise InvalidParams(f"the field {str(unknown[0])[:60]!r} does not pass in a verified run")
    for tool in _list(asked.get("tools") or [], "tools"):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise InvalidParams("only tools of the type 'function' pass in a verified run")
    for message in _list(asked.get("messages"), "messages"):
        _check_message(message)
    count = asked.get("n")
    if count is not None and not (isinstance(count, int) and 1 <= count <= _MOST_ANSWERS):
        raise InvalidParams(f"n must be a number from 1 to {_MOST_ANSWERS}")
    streams = asked.get("stream") is True
    wanted = asked.get("stream_options") or {}
    hides = streams and not (isinstance(wanted, dict) and wanted.get("include_usage"))
    if streams:
        asked["stream_options"] = {"include_usage": True}
    else:
        asked.pop("stream_options", None)
    return Prepared(json.dumps({**asked, **options}, ensure_ascii=False).encode(), streams, hides)


def check_options(options: Mapping[str, Any]) -> None:
    """Check the fields that an account fixes for a run.

    Raises:
        InvalidParams: one does not pass in a verified run.
    """
    unknown = sorted(options.keys() - PARAMETERS)
    if unknown:
        raise InvalidParams(f"the option {unknown[0][:60]!r} does not pass in a verified run")


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidParams(f"{name} is not a list")
    return value


def _check_message(message: Any) -> None:
    content = message.get("content") if isinstance(message, dict) else message
    if not isinstance(message, dict) or not (content is None or isinstance(content, (str, list))):
        raise InvalidParams("a message is not an object with a content")
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "refusal", "input_audio"):
            continue
        image = part.get("image_url") if kind == "image_url" else None
        if isinstance(image, dict) and str(image.get("url", "")).startswith("data:"):
            continue
        raise InvalidParams("a message has a part that does not pass in a verified run; images must be data: URLs")
