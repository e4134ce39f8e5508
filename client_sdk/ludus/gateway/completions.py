"""An engine over HTTP: an OpenAI-compatible completions endpoint that takes and returns token ids, as vLLM's does.

    async with CompletionsEngine("my-model", "http://127.0.0.1:8000/v1", context=8192) as engine:
        generation = await engine.generate(ids, Sampling(max_tokens=64, stop=(2,)), seed=7, session="episode-1")

How this works:

* The prompt is a list of ids, `return_token_ids` asks for the sampled ids, and `logprobs: 0` for their
  log-probabilities. An endpoint that ignores these fields is refused with an error that says so, because text that is
  encoded again is not what the model sampled.
* Every parameter that a model's own generation config could change is set explicitly.
* The version of the weights is the server's `weight_versions` if it reports them, or else the header
  `x-ludus-policy-version`, or else the number that the caller gave.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import aiohttp

from ludus.common.backoff import RETRIED_STATUSES, Backoff, retry_after
from ludus.protocol.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    Forbidden,
    InfrastructureFailed,
    InvalidParams,
    LudusError,
    NotFound,
    ProtocolViolation,
    Unauthenticated,
    Unsupported,
)
from ludus.rendering.samples import Finish, Generation, Sampling

FIRST_PAUSE: Final = 0.25
"""Seconds before the second attempt at a request; doubled for each further one, with jitter."""
LONGEST_PAUSE: Final = 10.0
_SHOWN: Final = 300


class CompletionsEngine:
    """An engine behind `POST {base_url}/completions`.

    Args:
        model: the model's name at the endpoint.
        base_url: the address up to and including `/v1`.
        context: the most tokens of prompt and generation together; what the endpoint's list of models says if None,
            which `open` reads.
        api_key: sent as a bearer token.
        version: the version of the weights, for endpoints that do not report it; -1 for unknown.
        parameters: further sampling parameters, such as `top_p`. They change the distribution that is sampled from.
        seconds: the most seconds of one request.
        attempts: how many times a request is made before its failure is raised.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        context: int | None = None,
        api_key: str | None = None,
        version: int = -1,
        parameters: Mapping[str, Any] | None = None,
        seconds: float = 300.0,
        attempts: int = 3,
    ) -> None:
        self.model: Final[str] = model
        """The model's name at the endpoint."""
        self._base = base_url.rstrip("/")
        self._context = context
        self._version = version
        self._parameters = dict(parameters or {})
        self._seconds = seconds
        self._attempts = max(1, attempts)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http: aiohttp.ClientSession | None = None

    @property
    def context(self) -> int:
        """The most tokens of prompt and generation together.

        Raises:
            RuntimeError: it was not given, and `open` was not called.
        """
        if self._context is None:
            raise RuntimeError("the context is not known before `open`")
        return self._context

    async def open(self) -> None:
        """Find out how long the context is, if the caller did not say.

        Raises:
            InvalidParams: the endpoint does not say it either, or has no such model.
            LudusError: see `generate`.
        """
        if self._context is not None:
            return
        _, value = await self._request("GET", f"{self._base}/models", None)
        rows = value.get("data") if isinstance(value, dict) else None
        known = {row["id"]: row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)}
        if self.model not in known:
            names = ", ".join(sorted(known)[:10]) or "none"
            raise InvalidParams(f"{self._base} has no model {self.model!r}; it lists: {names}")
        length = known[self.model].get("max_model_len")
        if not isinstance(length, int) or isinstance(length, bool) or length < 2:
            raise InvalidParams(f"{self._base} does not say how long the context of {self.model!r} is; give `context`")
        self._context = length

    async def check(self, ids: Sequence[int], stop: tuple[int, ...]) -> None:
        """Sample one token, to see that the endpoint returns token ids and log-probabilities.

        Raises:
            Unsupported: it does not.
            LudusError: see `generate`.
        """
        await self.generate(ids, Sampling(max_tokens=1, stop=stop), seed=0, session="check")

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """Sample a continuation of `ids`; see `PolicyEngine.generate`.

        Raises:
            Unsupported: the endpoint does not return token ids or log-probabilities.
            Unauthenticated, Forbidden, NotFound, InvalidParams: it refused the request.
            ConnectionFailed, DeadlineExceeded, InfrastructureFailed: all attempts failed.
            ProtocolViolation: it answered with something else than a completion.
        """
        body = {
            "model": self.model,
            "prompt": list(ids),
            **_NEUTRAL,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "stop_token_ids": list(sampling.stop),
            "seed": seed % 2**63,
            **self._parameters,
        }
        headers, value = await self._request("POST", f"{self._base}/completions", body)
        return self._parsed(headers, value, list(ids), sampling)

    async def forget(self, session: str) -> None:
        """Do nothing: such servers drop the least recently used cache by themselves."""

    async def aclose(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ── the answer ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _parsed(self, headers: Mapping[str, str], value: Any, ids: list[int], sampling: Sampling) -> Generation:
        try:
            (choice,) = value["choices"]
            finish, sampled = choice["finish_reason"], choice.get("token_ids")
            logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
            seen = choice.get("prompt_token_ids", value.get("prompt_token_ids"))
        except (KeyError, TypeError, ValueError, AttributeError):
            self._violation(value)
        if sampled is None:
            raise Unsupported(
                f"{self._base} returns no token ids (`return_token_ids`), so its trajectories cannot be token-exact: "
                "serve the model with vLLM 0.20 or later, or ask for text only with `tokens: false`"
            )
        if logprobs is None or len(logprobs) != len(sampled) or not all(map(_is_finite, logprobs)):
            raise Unsupported(
                f"{self._base} returns {len(sampled)} token ids without a finite log-probability for each: its "
                "completions must support `logprobs: 0`, or ask for text only with `tokens: false`"
            )
        if seen is not None and seen != ids:
            raise Unsupported(f"{self._base} changed the token ids of the prompt, so it cannot be used for training")
        if not sampled or not all(isinstance(token, int) for token in sampled):
            self._violation(value)
        if finish not in ("stop", "length"):
            raise InfrastructureFailed(f"{self._base} ended a generation with {finish!r}")
        if finish == "stop" and sampled[-1] not in sampling.stop:
            raise ProtocolViolation(
                f"{self._base} ended a turn with the token {sampled[-1]}, which is none of those that end a turn "
                f"({', '.join(map(str, sampling.stop))}): are the tokenizer and the chat template those of the model?"
            )
        ended: Finish = "stop" if sampled[-1] in sampling.stop else "length"
        versions = weight_versions(choice.get("weight_versions"), len(sampled), self._version_of(headers))
        return Generation(tuple(sampled), tuple(map(float, logprobs)), versions, ended)

    def _version_of(self, headers: Mapping[str, str]) -> int:
        text = headers.get("x-ludus-policy-version", "")
        return int(text) if text.isdecimal() else self._version

    def _violation(self, value: Any) -> NoReturn:
        raise ProtocolViolation(f"{self._base} answered with something that is no completion: {value!r:.{_SHOWN}}")

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _request(self, method: str, url: str, body: Any) -> tuple[Mapping[str, str], Any]:
        """Return headers and JSON of an answer; repeat the request if another attempt may succeed."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        for attempt in range(1, self._attempts + 1):
            pause = None
            try:
                status, headers, text = await self._send(method, url, body)
            except (ConnectionFailed, DeadlineExceeded):
                if attempt == self._attempts:
                    raise
            else:
                if status == 200:
                    return headers, self._json(url, text)
                if attempt == self._attempts or status not in RETRIED_STATUSES:
                    raise _error_of(status, text, url)
                pause = retry_after(headers)
            await asyncio.sleep(backoff.next() if pause is None else min(pause, LONGEST_PAUSE))
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, method: str, url: str, body: Any) -> tuple[int, Mapping[str, str], str]:
        try:
            async with asyncio.timeout(self._seconds):
                async with self._connections().request(method, url, json=body, allow_redirects=False) as response:
                    return response.status, response.headers, await response.text(errors="replace")
        except TimeoutError:
            raise DeadlineExceeded(f"no answer from {url} within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(
                f"no connection to the model endpoint {url}: {error or type(error).__name__}; is it running there?"
            ) from None

    def _json(self, url: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ProtocolViolation(f"{url} answered with something that is not JSON: {text[:_SHOWN]!r}") from None

    def _connections(self) -> aiohttp.ClientSession:
        if self._http is None:
            # vLLM closes idle connections after 5 s, which would break a request that is just being sent.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            )
        return self._http


def weight_versions(spans: Sequence[Mapping[str, Any]] | None, length: int, default: int) -> tuple[int, ...]:
    """Return the version of the weights that sampled each token, from the spans that vLLM reports.

    Args:
        spans: `version`, `start` and `end` of each span; None if the server reports none.
        length: the number of tokens.
        default: the version of tokens without one.
    """
    versions = [default] * length
    for span in spans or ():
        if str(span["version"]).isdecimal():
            versions[span["start"] : span["end"]] = [int(span["version"])] * (span["end"] - span["start"])
    return tuple(versions)


_NEUTRAL: Final[Mapping[str, Any]] = {
    **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    **{"repetition_penalty": 1.0, "min_tokens": 0, "ignore_eos": True, "skip_special_tokens": False},
    **{"logprobs": 0, "return_token_ids": True, "stream": False},
}
"""The fields of a request that sample from the whole distribution and return what was sampled."""


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _error_of(status: int, text: str, url: str) -> LudusError:
    message = f"{url} answered {status}: {' '.join(text.split())[:_SHOWN] or '(nothing)'}"
    kinds: Mapping[int, type[LudusError]] = {
        401: Unauthenticated, 403: Forbidden, 404: NotFound, 400: InvalidParams, 422: InvalidParams,
    }  # fmt: skip
    return kinds.get(status, InfrastructureFailed)(message, endpoint=url)
