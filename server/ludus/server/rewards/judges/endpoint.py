"""An OpenAI-compatible endpoint for judges, with retries, a budget, usage counts, a cache and a pinned model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import weakref
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ludus.common.backoff import RETRIED_STATUSES, Backoff, retry_after
from ludus.forms.endings import error_details, read_ending
from ludus.server.rewards.judges.caches import MemoryCache
from ludus.telemetry.tracing import active

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Endpoint", "JudgeFailed", "LONGEST_PAUSE", "NoVerdict", "Retriable"]


REPLY_BYTES: Final = 1_000_000
"""The limit for one reply; a longer one is a failure."""
LONGEST_PAUSE: Final = 20.0
"""The longest pause between two attempts, in seconds, even if the endpoint asks for a longer one."""
_FILTERED: Final = re.compile(
    r"content.?(filter|management|policy|exists risk)|data_inspection|moderation|flagged", re.I
)


class JudgeFailed(Exception):
    """There is no verdict; the message says why. The item that was to be judged is unscored."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of tokens, in US dollars per million."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on an endpoint's use over its lifetime. None is no limit; once one is reached, judges give no verdict."""

    requests: int | None = None
    tokens: int | None = None
    """Input and output together."""
    usd: float | None = None


@dataclass(slots=True)
class Ledger:
    """An endpoint's use so far."""

    requests: int = 0
    """All requests, including failed attempts."""
    failures: int = 0
    cached: int = 0
    """Verdicts that needed no request."""
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """The model's reply."""

    text: str
    model: str
    """The model's name as the endpoint reports it."""


@dataclass(eq=False)
class Endpoint:
    """A model behind `POST {base_url}/chat/completions`.

    The model is pinned: a reply that reports another model than `reports` (by default, the one that the first reply
    reported) is a failure, since verdicts of different models cannot be compared.
    """

    model: str
    """The model's name at the endpoint. Use a dated name if there is one."""
    base_url: str = "https://api.openai.com/v1"
    """The URL up to and including `/v1`."""
    api_key: str | None = field(default=None, repr=False)
    """The bearer token; the variable `LUDUS_JUDGE_API_KEY` if None. The policy's `OPENAI_API_KEY` is not used."""
    options: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    """Further fields of each request."""
    seconds: float = 30.0
    """The time limit for one request."""
    attempts: int = 3
    """The most requests for one verdict, including those whose replies cannot be read."""
    first_pause: float = 0.5
    """Seconds before the second attempt; doubled for each further one, with jitter."""
    concurrency: int = 16
    """The most concurrent requests."""
    structured: bool = True
    """Whether to request replies by JSON Schema; turned off if the endpoint refuses it and answers without it."""
    reports: str | None = None
    """The model name that replies must report."""
    price: Price | None = None
    budget: Budget = Budget()
    cache: MutableMapping[str, str] | None = field(default_factory=MemoryCache, repr=False)
    """Verdicts by a hash of the question, such as a `FileCache`; None for no cache."""
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.concurrency < 1:
            raise ValueError("attempts and concurrency must be 1 or more")
        self._connections: weakref.WeakKeyDictionary[Any, _Connections] = weakref.WeakKeyDictionary()
        self._locks: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock] = weakref.WeakValueDictionary()

    def key(self, *parts: object) -> str:
        """Return the cache key of a question to this model with these options."""
        parameters = [self.base_url, self.model, sorted(self.options.items()), *parts]
        return hashlib.sha256(json.dumps(parameters, default=str).encode("utf-8", "replace")).hexdigest()

    def asking(self, key: str) -> asyncio.Lock:
        """Return the lock to hold while asking, so that others with the same question find the verdict in the cache."""
        return self._locks.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> Completion:
        """Return one completion, from one request, or from two if structured replies turn out to be unsupported.

        Raises:
            JudgeFailed: there was none. It is `Retriable` if another attempt may succeed: `TooLong` or `CutOff` with
                shorter texts, `Refused` without the refused text.
        """
        tracing = active()
        if tracing is None:
            return await self._complete(messages, schema)
        with tracing.span("judge", {"gen_ai.request.model": self.model}, kind="CLIENT"):
            return await self._complete(messages, schema)

    async def _complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> Completion:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), **self.options}
        if not self.structured:
            return await self._counted(body)
        form = {"name": "verdict", "strict": True, "schema": schema}
        try:
            return await self._counted({**body, "response_format": {"type": "json_schema", "json_schema": form}})
        except _Unstructured:
            # The error may merely quote the request. Only a success without the schema shows that it was the cause.
            completion = await self._counted(body)
            self.structured = False
            return completion

    def backoff(self) -> Backoff:
        """Return the pauses between the attempts at one question."""
        return Backoff(self.first_pause, LONGEST_PAUSE)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.until_loop_ends.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _counted(self, body: dict[str, Any]) -> Completion:
        connections = await self._open()
        async with connections.semaphore:
            self._check_budget()
            self.ledger.requests += 1
            try:
                return await self._request(connections.session, body)
            except JudgeFailed:
                self.ledger.failures += 1
                raise

    async def _request(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Completion:
        import aiohttp

        try:
            async with asyncio.timeout(self.seconds):
                async with session.post(
                    f"{self.base_url.rstrip('/')}/chat/completions",
                    data=json.dumps(body).encode(),
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                ) as response:
                    status, headers, content = response.status, response.headers, await response.read()
        except TimeoutError:
            raise Retriable(f"the judge {self.model} did not answer within {self.seconds:g} s") from None
        except aiohttp.ClientError as error:
            raise Retriable(f"the judge {self.model} cannot be reached: {type(error).__name__}") from None
        if status != 200:
            raise self._failure(status, headers, content.decode(errors="replace"), body)
        return self._read(content)

    def _failure(self, status: int, headers: Mapping[str, str], text: str, body: Mapping[str, Any]) -> JudgeFailed:
        message = f"the judge {self.model} answered with status {status}"
        details = error_details(text)
        if details.says_context_full or (status == 413 and not details.says_too_many_requests):
            return TooLong(f"the question is too long for the judge {self.model}")
        if status in RETRIED_STATUSES and not details.says_quota_used_up:
            return Retriable(message, after=retry_after(headers, text))
        if status not in (400, 403, 422):
            return JudgeFailed(message)
        if "response_format" in body and "response_format" in text:
            return _Unstructured(message)
        if _FILTERED.search(" ".join((details.message, *details.codes))):
            return Refused(f"the content filter of the judge {self.model} refuses the question")
        return JudgeFailed(message)

    def _read(self, content: bytes) -> Completion:
        if len(content) > REPLY_BYTES:
            raise CutOff(f"the judge {self.model} sent {len(content)} bytes", "")
        try:
            reply = json.loads(content)
            ended = read_ending(reply)
            if ended.problem is not None:
                raise Retriable(f"the judge {self.model} answered, but {ended.problem}"[:800])
            choice = reply["choices"][0]
            text, refusal = choice["message"].get("content"), choice["message"].get("refusal")
            reported = reply.get("model") or self.model
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise Retriable(f"the judge {self.model} sent what is no chat completion", after=0.0) from None
        self._count(reply.get("usage"))
        if ended.ending == "refused":
            raise Refused(f"the content filter of the judge {self.model} refuses the question")
        if isinstance(refusal, str) and refusal:
            raise Refused(f"the judge {self.model} refuses the question")
        if ended.ending in ("limit", "context"):
            partial = text if isinstance(text, str) else ""
            raise CutOff(f"the judge {self.model} was cut off by its limit of tokens", partial)
        if not isinstance(text, str) or not isinstance(reported, str):
            raise NoVerdict(f"the judge {self.model} said nothing")
        if self.reports is None:
            self.reports = reported
        elif reported != self.reports:
            raise JudgeFailed(f"the judge was pinned to {self.reports}, but {reported} answered")
        return Completion(text, reported)

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        prompt_tokens, answer_tokens = (
            n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 0 for n in counts
        )
        self.ledger.input_tokens += prompt_tokens
        self.ledger.output_tokens += answer_tokens
        if self.price is not None:
            self.ledger.usd += (prompt_tokens * self.price.input + answer_tokens * self.price.output) / 1e6

    def _check_budget(self) -> None:
        ledger, budget = self.ledger, self.budget
        used = (
            ("requests", ledger.requests, budget.requests),
            ("tokens", ledger.input_tokens + ledger.output_tokens, budget.tokens),
            ("US dollars", ledger.usd, budget.usd),
        )
        for quantity, spent, limit in used:
            if limit is not None and spent >= limit:
                raise JudgeFailed(f"the budget of the judge {self.model} is used up: {limit:g} {quantity}")

    async def _open(self) -> _Connections:
        """Return the connections of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            import aiohttp

            key = self.api_key if self.api_key is not None else os.environ.get("LUDUS_JUDGE_API_KEY")
            parts = urlsplit(self.base_url)
            # With `trust_env`, aiohttp would look for the proxy and read `.netrc` in a thread for every request.
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=aiohttp.ClientTimeout(total=None),
                proxy=None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme),
            )
            connections = self._connections[loop] = _Connections(
                session, asyncio.Semaphore(self.concurrency), _until_loop_ends(session)
            )
            await anext(connections.until_loop_ends)
        return self._connections[loop]


@dataclass(frozen=True, slots=True)
class _Connections:
    """An endpoint's connections in one event loop."""

    session: aiohttp.ClientSession
    semaphore: asyncio.Semaphore
    until_loop_ends: AsyncGenerator[None]


async def _until_loop_ends(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    """Close the session when this generator is closed, which an event loop does with all that are left at its end.

    Authors of environments make endpoints as class attributes and never close them.
    """
    try:
        yield
    finally:
        await session.close()


class Retriable(JudgeFailed):
    """A failure after which another attempt may succeed."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after
        """Seconds to wait, if known."""


class NoVerdict(Retriable):
    """The endpoint works and answered, but without a verdict: the content of the question may be the cause."""

    def __init__(self, message: str) -> None:
        super().__init__(message, after=0.0)


class TooLong(NoVerdict):
    """The question does not fit into the model's context."""


class CutOff(NoVerdict):
    """The reply exceeded a limit: the model's limit of tokens, its context, or `REPLY_BYTES`."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class Refused(NoVerdict):
    """A content filter, or the model itself, refused the question because of its content."""


class _Unstructured(JudgeFailed):
    """The endpoint may not support structured replies."""
