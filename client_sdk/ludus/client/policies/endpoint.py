"""Requests to a model endpoint over HTTP: connections, retries, and what its errors mean.

An error at the endpoint says nothing about the policy. The request is retried; if it keeps failing, the error is raised
and the harness records an infrastructure failure, never a reward of 0.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic_core import from_json, to_json

from ludus.client.policies.base import Turn
from ludus.common.backoff import RETRIED_STATUSES, Backoff, retry_after
from ludus.forms.endings import Ended, error_details
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
"""The longest pause between two attempts, in seconds. Only an endpoint that is too busy may ask for a longer one."""

_BUSY: Final = frozenset((429, 529))
"""The status codes of an endpoint that works and has no room now."""

CHECK_SECONDS: Final = 10.0
"""The time limit of `Endpoint.check`, in seconds."""

MOST_TOKENS: Final = 10**9
"""Higher counts of one request are not believed."""

PATIENCE: Final = 600.0
"""Seconds that the pauses of one request may take together while its endpoint is too busy, unless a caller sets it."""

_LEAST_PAUSE: Final = 1.0
"""The shortest pause after some attempts at a busy endpoint, in seconds, whatever it asks for: many say 0."""

_sleep = asyncio.sleep
"""Pauses between attempts. Tests replace it."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body as a JSON value.

        Raises:
            ValueError: it is not JSON.
        """
        try:
            return from_json(self.data)
        except ValueError:  # it refuses lone surrogates and bytes that are not UTF-8
            return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of a request that returned no turn, and whether to retry it."""

    error: LudusError
    retry: bool = True
    after: float | None = None
    """Seconds after which to retry, if the endpoint says so."""
    busy: bool = False
    """Whether the endpoint works and has no room now, such as for a limit of requests per minute. Such a request is
    repeated until the caller's patience ends, however many attempts that takes."""


Parse = Callable[[Any, HttpAnswer], Turn | Refusal]
"""Makes a turn of the JSON value of an answer with status 200."""


class Endpoint:
    """The connections to one model endpoint.

    Args:
        base_url: the address, without the path of a request.
        headers: the headers of each request.
        timeout: seconds for one request.
        attempts: how many times a request is made before its failure is raised.
        first_pause: seconds before the second attempt; doubled for each further one, with jitter.
        patience: seconds that all pauses of one request may take together while the endpoint says that it is busy.

    Raises:
        ValueError: `base_url` is not an http(s) address, or a header holds a line break.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        timeout: float,
        attempts: int,
        first_pause: float,
        patience: float,
    ) -> None:
        self.base: Final[str] = _address(base_url)
        """The address without a slash at its end."""
        self.timeout: Final[float] = timeout
        """Seconds for one request."""
        self._headers = dict(headers)
        for name, value in self._headers.items():
            if not (name + value).isprintable():
                raise ValueError(
                    f"the header {name} of the model endpoint holds a line break or another control character"
                )
        self._attempts = max(1, attempts)
        self._first_pause = first_pause
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def retrying(self, request: Callable[[], Awaitable[Turn | Refusal]]) -> Turn:
        """Make a request until it returns a turn.

        Raises:
            LudusError: of the last refusal, if it is not to be retried, or all attempts failed.
        """
        failures, waited = 0, 0.0
        backoff = Backoff(self._first_pause, LONGEST_PAUSE)
        while True:
            outcome = await request()
            if isinstance(outcome, Turn):
                return outcome
            failures += not outcome.busy
            if not outcome.retry or failures >= self._attempts:
                raise outcome.error
            pause = backoff.next()
            wait = pause if outcome.after is None else outcome.after
            if outcome.busy:
                wait = max(wait, min(pause, _LEAST_PAUSE))  # with pauses of 0, patience would never end
                waited += wait
                if waited > self._patience:
                    text = f"{outcome.error.message}; gave up, since the pauses would exceed {self._patience:g} s"
                    raise type(outcome.error)(text, **outcome.error.data)
            else:
                wait = min(wait, LONGEST_PAUSE)
            await _sleep(wait)

    async def post(self, path: str, body: Mapping[str, Any], parse: Parse) -> Turn | Refusal:
        """Make one request, and return what `parse` makes of its answer."""
        url = self.base + path
        data = to_json(body)
        try:
            async with asyncio.timeout(self.timeout):
                async with self._connections().post(
                    url, data=data, headers={"Content-Type": "application/json"}, allow_redirects=False
                ) as response:
                    answer = HttpAnswer(response.status, response.headers, await response.read())
        except TimeoutError:
            return Refusal(DeadlineExceeded(f"no answer from {url} within {self.timeout:g} s", endpoint=url))
        except aiohttp.ClientError as error:
            return Refusal(_no_connection(url, error))
        if answer.status != 200:
            return error_of(answer, url)
        try:
            value = answer.json()
        except ValueError:
            return no_completion(answer, url)
        return parse(value, answer)

    async def check(self, path: str) -> None:
        """Check that a server listens at the endpoint; `path` is that of its list of models.

        Raises:
            ConnectionFailed: no server listens there.
        """
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                async with self._connections().get(f"{self.base}/models", allow_redirects=False):
                    return
        except aiohttp.ClientConnectorError as error:
            raise _no_connection(self.base + path, error) from None
        except (aiohttp.ClientError, TimeoutError):
            return  # a server listens, and it need not have a list of models

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The harness limits how many requests run at the same time, and `asyncio.timeout` how long one takes.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                proxy=_proxy_of(self.base),
            )
        return self._session


def no_completion(answer: HttpAnswer, url: str) -> Refusal:
    """Return the refusal for an answer that is not a completion."""
    page = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", answer.text, re.IGNORECASE | re.DOTALL)
    if page is not None or answer.text.lstrip().startswith("<"):
        title = f" titled {page[1][:80]!r}" if page is not None else ""
        text = f"{url} answered with a web page{title} instead of JSON; is the base URL right? It usually ends in /v1"
    else:
        text = f"{url} answered with something that is not a chat completion: {answer.text[:200]!r}"
    return Refusal(ProtocolViolation(text, endpoint=url))


def error_of(answer: HttpAnswer, url: str) -> Turn | Refusal:
    """Return what an answer with an error status means: a full context ends the episode, other errors are refusals."""
    try:
        value = answer.json()
    except ValueError:
        value = None
    status = answer.status
    details = error_details(answer.text if value is None else value)
    text = f"{url} answered {status}: {message_of(value, answer)}"
    classes = {401: Unauthenticated, 403: Forbidden, 404: NotFound}
    if status in classes:
        return Refusal(classes[status](text, endpoint=url), retry=False)
    if status not in _BUSY and (details.says_context_full or (status == 413 and not details.says_too_many_requests)):
        return Turn((), usage=Usage(requests=1), stopped="context_limit")
    after = retry_after(answer.headers, answer.text)
    return Refusal(
        InfrastructureFailed(text, endpoint=url),
        retry=status in RETRIED_STATUSES and not details.says_quota_used_up,
        after=after,
        busy=status in _BUSY or (status == 503 and after is not None),
    )


def refused_output(ended: Ended, url: str) -> Refusal | None:
    """Return the refusal for an output that says nothing about the model; None if it does."""
    if ended.problem is None:
        return None
    error = InfrastructureFailed(f"{url} answered, but {ended.problem}"[:800], endpoint=url)
    return Refusal(error, retry=ended.ending == "failed")


def message_of(value: Any, answer: HttpAnswer) -> str:
    """Return the message of an error in any of the usual forms."""
    if value is not None and (message := error_details(value).message):
        return message[:500]
    text = " ".join(answer.text[:200].split())
    return "a web page" if text.startswith("<") else text or "(an empty answer)"


def usage_of(input_tokens: Any, output_tokens: Any) -> Usage | None:
    """Return the usage of one request; None if the provider did not report both counts, or impossible ones."""
    counts = (input_tokens, output_tokens)
    if not all(
        isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_TOKENS for count in counts
    ):
        return None
    return Usage(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)


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
