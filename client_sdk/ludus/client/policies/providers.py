"""Policies behind the other wire forms of model providers: OpenAI's responses, Anthropic's messages, Google's Gemini.

Errors of the endpoint are handled as `ludus.client.policies.endpoint` says. No provider's package is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote

from ludus.client.formats import FORMATS, Format
from ludus.client.policies.base import Conversation, Turn
from ludus.client.policies.dialogue import Dialogue
from ludus.client.policies.endpoint import (
    PATIENCE,
    Endpoint,
    HttpAnswer,
    Refusal,
    no_completion,
    refused_output,
    usage_of,
)
from ludus.forms.endings import read_ending
from ludus.protocol.errors import InfrastructureFailed, ParseError
from ludus.protocol.trajectory import Usage

ANTHROPIC_VERSION: Final = "2023-06-01"
ANTHROPIC_MAX_TOKENS: Final = 4096
"""`max_tokens` of a request to Anthropic, which requires one, unless the options set it."""

ProviderWire = Literal["openai-responses", "anthropic", "google"]


@dataclass(frozen=True, slots=True)
class _Wire:
    """What differs between the providers."""

    form: Format
    url: str
    """The provider's own address."""
    key_variables: tuple[str, ...]
    headers: Callable[[str], dict[str, str]]
    """The headers that hold the key."""
    path: Callable[[str], str]
    """The path of a request, by the model's name."""
    fixed: Callable[[str], dict[str, Any]]
    """The fields of each request, by the model's name; options override them."""
    problem: Callable[[Mapping[str, Any]], str | None]
    """What the provider says is wrong in an answer with status 200; None if nothing is."""
    usage: Callable[[Mapping[str, Any]], Usage | None]


class ProviderPolicy:
    """A model behind an endpoint that speaks a provider's wire form.

    Args:
        wire: `openai-responses` (`POST {base_url}/responses`), `anthropic` (`POST {base_url}/messages`) or `google`
            (`POST {base_url}/models/{model}:generateContent`).
        model: the model's name at the endpoint.
        base_url: the address up to and with the version, such as `/v1`; the provider's own when None.
        api_key: the key; the provider's usual environment variable when None, if it is set.
        options: further fields of each request. Anthropic's `max_tokens` is 4096 unless they set it.
        headers: further headers.
        timeout: seconds for one request.
        attempts: how many times a request is made before its failure is raised.
        first_pause: seconds before the second attempt; doubled for each further one, with jitter.
        patience: seconds that the pauses of one request may take together while the endpoint is too busy (HTTP 429).

    Raises:
        ValueError: `base_url` is not an http(s) address, or a header holds a line break.
    """

    def __init__(
        self,
        wire: ProviderWire,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        attempts: int = 5,
        first_pause: float = 0.5,
        patience: float = PATIENCE,
    ) -> None:
        self.model = model
        self.name = model
        self._wire = _WIRES[wire]
        keys = (os.environ.get(name) for name in self._wire.key_variables)
        key = api_key if api_key is not None else next((value for value in keys if value), "")
        all_headers = {**(self._wire.headers(key) if key else {}), **_versions(wire), **(headers or {})}
        self._endpoint = Endpoint(
            base_url or self._wire.url, all_headers, timeout=timeout, attempts=attempts, first_pause=first_pause,
            patience=patience,
        )  # fmt: skip
        self._path = self._wire.path(model)
        self._fields = self._wire.fixed(model) | dict(options or {})

    def begin(self, conversation: Conversation) -> Dialogue:
        """Return the callable for one episode, which keeps the conversation in the provider's form."""
        form = self._wire.form
        return Dialogue(form, conversation, self._complete, _without_unknown_ids if form is FORMATS["google"] else None)

    async def check(self) -> None:
        """Check before the first episode that a server listens at the endpoint.

        Raises:
            ConnectionFailed: no server listens there.
        """
        await self._endpoint.check(self._path)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _complete(self, body: Mapping[str, Any], conversation: Conversation) -> Turn:
        parse = partial(self._parse, conversation=conversation)
        return await self._endpoint.retrying(partial(self._endpoint.post, self._path, {**body, **self._fields}, parse))

    def _parse(self, value: Any, answer: HttpAnswer, conversation: Conversation) -> Turn | Refusal:
        url = self._endpoint.base + self._path
        try:
            if (problem := self._wire.problem(value)) is not None:
                return Refusal(InfrastructureFailed(f"{url} gave no output: {problem}", endpoint=url), retry=False)
            ended = read_ending(value)
            if (refusal := refused_output(ended, url)) is not None:
                return refusal
            usage = self._wire.usage(value)
            if ended.ending == "context":
                return Turn((), usage=usage, stopped="context_limit", raw=value)
            items = self._wire.form.items(value, conversation.tools)
            self._wire.form.reply(value)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, ParseError):
            return no_completion(answer, url)
        return Turn(tuple(items), usage=usage, raw=value)


def _versions(wire: ProviderWire) -> dict[str, str]:
    return {"anthropic-version": ANTHROPIC_VERSION} if wire == "anthropic" else {}


def _responses_usage(value: Mapping[str, Any]) -> Usage | None:
    usage = value.get("usage") or {}
    return usage_of(usage.get("input_tokens"), usage.get("output_tokens"))


def _anthropic_usage(value: Mapping[str, Any]) -> Usage | None:
    """Count the tokens of the cache as input, because `input_tokens` leaves them out."""
    usage = value.get("usage") or {}
    cached = [usage.get(name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    uncached = usage.get("input_tokens")
    return usage_of(uncached + sum(cached) if isinstance(uncached, int) else None, usage.get("output_tokens"))


def _google_problem(value: Mapping[str, Any]) -> str | None:
    """Return why there is no candidate. A candidate without content is the model's own failure: an empty message."""
    if value.get("candidates"):
        candidate = value["candidates"][0]
        if "content" not in candidate and "finishReason" in candidate:
            candidate["content"] = {"role": "model", "parts": []}
        return None
    reason = (value.get("promptFeedback") or {}).get("blockReason")
    return f"the prompt was blocked: {reason}" if reason else None


def _google_usage(value: Mapping[str, Any]) -> Usage | None:
    """Count thoughts as output, because `candidatesTokenCount` leaves them out; it is missing for an empty output."""
    usage = value.get("usageMetadata") or {}
    written = [usage.get(name) or 0 for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    return usage_of(usage.get("promptTokenCount"), sum(written))


def _without_unknown_ids(entries: list[dict[str, Any]], reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Leave out ids that the model did not give: Gemini's calls may have none, and then the order connects them."""
    parts = (reply["candidates"][0] if "candidates" in reply else reply).get("content", {}).get("parts") or []
    call_ids = {part["functionCall"].get("id") for part in parts if "functionCall" in part}
    for part in (part for entry in entries for part in entry["parts"] if "functionResponse" in part):
        if part["functionResponse"].get("id") not in call_ids:
            part["functionResponse"].pop("id", None)
    return entries


_WIRES: Final[Mapping[ProviderWire, _Wire]] = {
    "openai-responses": _Wire(
        form=FORMATS["openai-responses"],
        url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        headers=lambda key: {"Authorization": f"Bearer {key}"},
        path=lambda model: "/responses",
        fixed=lambda model: {"model": model},
        problem=lambda value: None,
        usage=_responses_usage,
    ),
    "anthropic": _Wire(
        form=FORMATS["anthropic"],
        url="https://api.anthropic.com/v1",
        key_variables=("ANTHROPIC_API_KEY",),
        headers=lambda key: {"x-api-key": key},
        path=lambda model: "/messages",
        fixed=lambda model: {"model": model, "max_tokens": ANTHROPIC_MAX_TOKENS},
        problem=lambda value: None,
        usage=_anthropic_usage,
    ),
    "google": _Wire(
        form=FORMATS["google"],
        url="https://generativelanguage.googleapis.com/v1beta",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        headers=lambda key: {"x-goog-api-key": key},
        path=lambda model: f"/models/{quote(model.removeprefix('models/'), safe='')}:generateContent",
        fixed=lambda model: {},
        problem=_google_problem,
        usage=_google_usage,
    ),
}
