"""A policy behind an OpenAI-compatible endpoint (Chat Completions with tools): OpenAI, vLLM, SGLang, llama.cpp, …

Errors of the endpoint are handled as `ludus.client.policies.endpoint` says.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from ludus.client.formats import openai_chat
from ludus.client.policies.base import Conversation, Turn
from ludus.client.policies.dialogue import Dialogue
from ludus.client.policies.endpoint import (
    PATIENCE,
    Endpoint,
    HttpAnswer,
    Refusal,
    error_of,
    no_completion,
    refused_output,
    usage_of,
)
from ludus.forms.endings import read_ending
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import DeadlineExceeded, InfrastructureFailed
from ludus.protocol.items import text_message

PATH: Final = "/chat/completions"

Send = Callable[[dict[str, Any]], Awaitable[object]]
"""Makes one request for a completion with a client of the caller's own."""


class OpenAIPolicy:
    """A model behind `POST {base_url}/chat/completions`.

    Args:
        model: the model's name at the endpoint.
        base_url: the URL up to and including `/v1`.
        api_key: sent as a bearer token; the environment variable `OPENAI_API_KEY` when None, if it is set.
        options: further fields of each request, such as `temperature` or `max_completion_tokens`.
        headers: further headers.
        timeout: seconds for one request.
        attempts: how many times a request is made before its failure is raised.
        first_pause: seconds before the second attempt; doubled for each further one, with jitter.
        patience: seconds that the pauses of one request may take together while the endpoint is too busy (HTTP 429).
        send: makes the request instead of this policy, with a client of the caller's own. It gets the fields of the
            request and returns the completion as a mapping or as an object of `openai`, for instance
            `lambda body: client.chat.completions.create(**body)`. Then `base_url`, `api_key` and `headers` are unused.

    Raises:
        ValueError: `base_url` is not an http(s) address, or a header holds a line break.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        attempts: int = 5,
        first_pause: float = 0.5,
        patience: float = PATIENCE,
        send: Send | None = None,
    ) -> None:
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY")
        self.model = model
        self.name = model
        self._options = dict(options or {})
        all_headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        self._endpoint = Endpoint(
            base_url, all_headers, timeout=timeout, attempts=attempts, first_pause=first_pause, patience=patience
        )
        self._url = self._endpoint.base + PATH
        self._send = send
        self._tools: tuple[Sequence[ToolSpec], list[dict[str, Any]]] = ((), [])
        """The tools of the last request, and their form in it. Most episodes have those of the one before."""

    def begin(self, conversation: Conversation) -> Dialogue:
        """Return the callable for one episode, whose requests repeat the endpoint's replies as they came."""
        return Dialogue(openai_chat, conversation, self._continue)

    async def _continue(self, request: Mapping[str, Any], conversation: Conversation) -> Turn:
        return await self.complete(copy.deepcopy(request) if self._send is not None else request, conversation.tools)

    async def __call__(self, conversation: Conversation) -> Turn:
        """Request one completion and return it as a turn, without what earlier replies held besides text and calls.

        Raises:
            Unauthenticated, Forbidden, NotFound: the endpoint refuses the key, or has no such model or path.
            ConnectionFailed, DeadlineExceeded, ProtocolViolation, InfrastructureFailed: the request failed and was not
                retried, or all attempts failed.
        """
        request = openai_chat.messages(conversation.items)
        if conversation.tools:
            request["tools"] = self._form_of(conversation.tools)
        return await self.complete(request, conversation.tools)

    async def complete(self, request: Mapping[str, Any], tools: Sequence[ToolSpec] = ()) -> Turn:
        """Request one completion of a conversation that is in OpenAI's form already, such as `Driver.request`.

        Args:
            request: the fields `messages` and, if there are tools, `tools`.
            tools: the same tools, by whose names the calls are read.

        Returns:
            The turn, with the whole reply in `raw`; without items and with `stopped` if the model's context is full.

        Raises:
            LudusError: as for calling the policy.
        """
        body = {"model": self.model, **request, **self._options}
        if self._send is not None:
            return await self._endpoint.retrying(partial(self._request_by, self._send, body, tools))
        parse = partial(_parse_completion, tools=tools, url=self._url)
        return await self._endpoint.retrying(partial(self._endpoint.post, PATH, body, parse))

    async def check(self) -> None:
        """Check before the first episode that a server listens at the endpoint.

        Raises:
            ConnectionFailed: no server listens there.
        """
        if self._send is None:
            await self._endpoint.check(PATH)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _form_of(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return the tools as requests have them. A client of the caller's own gets new ones, which it may change."""
        if self._send is not None or self._tools[0] != tools:
            self._tools = (tools, openai_chat.tools(tools))
        return self._tools[1]

    async def _request_by(self, send: Send, body: dict[str, Any], tools: Sequence[ToolSpec]) -> Turn | Refusal:
        endpoint_name = "the given client of the model endpoint"
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                raw = await send(body)
        except TimeoutError:
            return Refusal(DeadlineExceeded(f"no answer from {endpoint_name} within {self._endpoint.timeout:g} s"))
        except Exception as error:
            # Clients have exceptions of their own; those for a status hold the response.
            response: Any = getattr(error, "response", None)
            if isinstance(getattr(response, "status_code", None), int):
                return error_of(
                    HttpAnswer(response.status_code, response.headers, response.text.encode("utf-8", "replace")),
                    endpoint_name,
                )
            return Refusal(InfrastructureFailed(f"{endpoint_name} failed: {type(error).__name__}: {error}"))
        value = raw if isinstance(raw, Mapping) else getattr(raw, "model_dump", lambda: raw)()
        turn = _parse_completion(
            value, HttpAnswer(200, {}, repr(value).encode("utf-8", "replace")), tools, endpoint_name
        )
        return replace(turn, raw=raw) if isinstance(turn, Turn) else turn


def _parse_completion(value: Any, answer: HttpAnswer, tools: Sequence[ToolSpec], url: str) -> Turn | Refusal:
    try:
        ended = read_ending(value)
        if (refusal := refused_output(ended, url)) is not None:
            return refusal
        usage = value.get("usage") or {}
        counted = usage_of(usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if ended.ending == "context":
            return Turn((), usage=counted, stopped="context_limit", raw=value)
        items = openai_chat.items(value, tools)
        if not ended.word and items == [text_message("assistant", "")]:
            return Refusal(InfrastructureFailed(f"{url} gave an output without content and without an ending"))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return no_completion(answer, url)
    return Turn(tuple(items), usage=counted, raw=value)
