"""A policy behind an OpenAI-compatible endpoint (Chat Completions with tools): OpenAI, vLLM, SGLang, llama.cpp, …

An error at the endpoint says nothing about the policy. The request is retried; if it keeps failing, the error is raised
and the harness records an infrastructure failure, never a reward of 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from ludus.client.formats import openai_chat
from ludus.client.policies.base import Conversation, Turn
from ludus.protocol.backoff import RETRIED_STATUSES, Backoff, retry_after
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    Forbidden,
    InfrastructureFailed,
    LudusError,
    NotFound,
    ProtocolViolation,
    Unauthenticated,
)
from ludus.protocol.trajectory import Usage

LONGEST_PAUSE: Final = 60.0
"""The longest pause between two attempts, in seconds, even if the endpoint asks for a longer one."""

CHECK_SECONDS: Final = 10.0
"""The time limit of `OpenAIPolicy.check`, in seconds."""

Send = Callable[[dict[str, Any]], Awaitable[object]]
"""Makes one request for a completion with a client of the caller's own."""

_CONTEXT_FULL: Final = re.compile(r"context[ _](length|window|size)|maximum context|too many tokens", re.IGNORECASE)


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
        send: Send | None = None,
    ) -> None:
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY")
        self.model = model
        self.name = model
        self._base = _address(base_url)
        self._url = f"{self._base}/chat/completions"
        self._options = dict(options or {})
        self._headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        for name, value in self._headers.items():
            if not (name + value).isprintable():
                raise ValueError(
                    f"the header {name} of the model endpoint holds a line break or another control character"
                )
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._first_pause = first_pause
        self._send = send
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, conversation: Conversation) -> Turn:
        """Request one completion and return it as a turn.

        Raises:
            Unauthenticated, Forbidden, NotFound: the endpoint refuses the key, or has no such model or path.
            ConnectionFailed, DeadlineExceeded, ProtocolViolation, InfrastructureFailed: the request failed and was not
                retried, or all attempts failed.
        """
        request = openai_chat.messages(conversation.items)
        if conversation.tools:
            request["tools"] = openai_chat.tools(conversation.tools)
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
        requests = 0
        backoff = Backoff(self._first_pause, LONGEST_PAUSE)
        while True:
            requests += 1
            outcome = await self._request(body, tools)
            if isinstance(outcome, Turn):
                return outcome
            if not outcome.retry or requests >= self._attempts:
                raise outcome.error
            wait = backoff.next() if outcome.after is None else min(outcome.after, LONGEST_PAUSE)
            await asyncio.sleep(wait)

    async def check(self) -> None:
        """Check before the first episode that a server listens at the endpoint.

        Raises:
            ConnectionFailed: no server listens there.
        """
        if self._send is not None:
            return
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                async with self._connections().get(f"{self._base}/models", allow_redirects=False):
                    return
        except aiohttp.ClientConnectorError as error:
            raise _no_connection(self._url, error) from None
        except (aiohttp.ClientError, TimeoutError):
            return  # a server listens, and it need not have a list of models

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _request(self, body: dict[str, Any], tools: Sequence[ToolSpec]) -> Turn | _Refusal:
        if self._send is not None:
            return await self._request_by(self._send, body, tools)
        data = json.dumps(body, ensure_ascii=False).encode()
        try:
            async with asyncio.timeout(self._timeout):
                async with self._connections().post(
                    self._url, data=data, headers={"Content-Type": "application/json"}, allow_redirects=False
                ) as response:
                    answer = _Answer(response.status, response.headers, await response.text(errors="replace"))
        except TimeoutError:
            message = f"no answer from {self._url} within {self._timeout:g} s"
            return _Refusal(DeadlineExceeded(message, endpoint=self._url))
        except aiohttp.ClientError as error:
            return _Refusal(_no_connection(self._url, error))
        if answer.status != 200:
            return _error_of(answer, self._url)
        try:
            value = answer.json()
        except ValueError:
            return _Refusal(ProtocolViolation(_no_completion(answer, self._url), endpoint=self._url))
        return _parse_completion(value, answer, tools, self._url)

    async def _request_by(self, send: Send, body: dict[str, Any], tools: Sequence[ToolSpec]) -> Turn | _Refusal:
        where = "the given client of the model endpoint"
        try:
            async with asyncio.timeout(self._timeout):
                raw = await send(body)
        except TimeoutError:
            return _Refusal(DeadlineExceeded(f"no answer from {where} within {self._timeout:g} s"))
        except Exception as error:
            # Clients have exceptions of their own; those for a status hold the response.
            response: Any = getattr(error, "response", None)
            if isinstance(getattr(response, "status_code", None), int):
                return _error_of(_Answer(response.status_code, response.headers, response.text), where)
            return _Refusal(InfrastructureFailed(f"{where} failed: {type(error).__name__}: {error}"))
        value = raw if isinstance(raw, Mapping) else getattr(raw, "model_dump", lambda: raw)()
        turn = _parse_completion(value, _Answer(200, {}, repr(value)), tools, where)
        return replace(turn, raw=raw) if isinstance(turn, Turn) else turn

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The harness limits how many requests run at the same time, and `asyncio.timeout` how long one takes.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                proxy=_proxy_of(self._url),
            )
        return self._session


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


def _address(base_url: str) -> str:
    try:
        parts = urlsplit(base_url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        guess = "" if "://" in base_url else f"; did you mean http://{base_url}?"
        raise ValueError(
            f"{base_url!r} is not the address of a model endpoint, such as http://localhost:8000/v1{guess}"
        )
    return base_url.strip().rstrip("/")


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment variables name for an address, such as `HTTPS_PROXY`; None for none.

    With `trust_env`, aiohttp would look for it and read `.netrc` in a thread for every request, which doubles the cost.
    """
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _no_connection(url: str, error: aiohttp.ClientError) -> ConnectionFailed:
    return ConnectionFailed(
        f"no connection to the model endpoint {url}: {error or type(error).__name__}; is it running there?",
        endpoint=url,
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The error of a request that returned no turn, and whether to retry it."""

    error: LudusError
    retry: bool = True
    after: float | None = None
    """Seconds after which to retry, if the endpoint says so."""


def _parse_completion(value: Any, response: _Answer, tools: Sequence[ToolSpec], url: str) -> Turn | _Refusal:
    try:
        if value.get("error"):  # some gateways answer HTTP 200 with an error in the body
            return _Refusal(InfrastructureFailed(f"{url} answered with an error: {_message(value, response)}"))
        items = openai_chat.items(value, tools)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return _Refusal(ProtocolViolation(_no_completion(response, url), endpoint=url))
    usage = value.get("usage") or {}
    counted = Usage(
        requests=1,
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
    )
    return Turn(tuple(items), usage=counted, raw=value)


def _no_completion(response: _Answer, url: str) -> str:
    page = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", response.text, re.IGNORECASE | re.DOTALL)
    if page is not None or response.text.lstrip().startswith("<"):
        title = f" titled {page[1][:80]!r}" if page is not None else ""
        return f"{url} answered with a web page{title} instead of JSON; is the base URL right? It usually ends in /v1"
    return f"{url} answered with something that is not a chat completion: {response.text[:200]!r}"


def _error_of(response: _Answer, url: str) -> Turn | _Refusal:
    try:
        value = response.json()
    except ValueError:
        value = None
    status, message = response.status, _message(value, response)
    text = f"{url} answered {status}: {message}"
    if status in {400, 413, 422} and _CONTEXT_FULL.search(message):
        return Turn((), usage=Usage(requests=1), stopped="context_limit")
    kinds = {401: Unauthenticated, 403: Forbidden, 404: NotFound}
    if status in kinds:
        return _Refusal(kinds[status](text, endpoint=url), retry=False)
    return _Refusal(
        InfrastructureFailed(text, endpoint=url), retry=status in RETRIED_STATUSES, after=retry_after(response.headers)
    )


def _message(value: Any, response: _Answer) -> str:
    try:
        error = value["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:500]
    except (KeyError, TypeError):
        shown = " ".join(response.text[:200].split())
        return "a web page" if shown.startswith("<") else shown or "(an empty answer)"
