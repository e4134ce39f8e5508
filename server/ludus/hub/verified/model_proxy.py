"""The way of a harness to its model: the hub sends each call to the declared endpoint, with the account's key.

How this works:

* The harness sends a request for chat completions without a key. `requests.prepare` checks it; the hub adds the key and
  sends it to the base URL of the run, to an address that `model_hosts` has checked.
* A call that gets no answer, or 408, 425, 429 or 5xx, is repeated for a while: the call, not the episode, so that an
  endpoint cannot give an episode that goes badly another chance. After that the harness gets an error; whether the
  episode is started again is decided in `runs`, and only if the endpoint had not answered in it at all.
* Bodies are bounded as they come. Of the answer's headers, only the type goes on. An answer with the key in it is
  refused, and so is a redirect.
* Each call is counted with the digests of what was sent and received, and with the tokens that the endpoint reports. It
  is written before it is sent, without an answer, and again when it is done: so the records have also the calls of a
  hub that is killed, and no call is made for a run that has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

from ludus.hub.verified.answers import EventStream, KeyFilter, KeyShown, Tokens, tokens_of_answer
from ludus.hub.verified.model_hosts import ModelHosts
from ludus.hub.verified.requests import prepare
from ludus.hub.verified.settings import VerifiedSettings
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.registry.types.verified import CallRecord

OUTAGES: Final = frozenset({408, 425, 429, *range(500, 600)})
"""The statuses of an endpoint that cannot answer now."""

LONGEST_PAUSE: Final = 30.0
"""The longest pause between two tries of a call, in seconds."""

CONNECT_SECONDS: Final = 10.0
"""How long a connection to an endpoint may take to open."""

PLAIN: Final = "application/json"

log = logging.getLogger("ludus.hub.verified")

_EMPTY: Final = hashlib.sha256().hexdigest()
_SHOWN_ERROR: Final = 64 * 1024
_BYTES_OF_TOKEN: Final = 4


@dataclass
class EpisodeCalls:
    """The calls of one start of an episode.

    Attributes:
        place, attempt: which one.
        keep: writes the record of a call, in place of an earlier one of the same call; returns whether the run is open.
        records: the calls that are done.
        begun: the number of all calls.
        open: the number of those that run.
        answered: whether the endpoint has answered one.
        outage: whether the endpoint could not answer one.
        waited: for how many seconds calls have waited for an endpoint that did not answer.
    """

    place: int
    attempt: int
    keep: Callable[[CallRecord], Awaitable[bool]]
    records: list[CallRecord] = field(default_factory=list)
    begun: int = 0
    open: int = 0
    answered: bool = False
    outage: bool = False
    waited: float = 0.0


class CallRefused(Exception):
    """A call that the hub does not make, or that has no answer to show: its status, and the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ModelProxy:
    """The model endpoint of one run.

    Args:
        base_url: its base URL.
        model: the model.
        key: the account's key; an empty one for none.
        options: the fields that are fixed for the run.
        hosts: the hosts that the operator allows.
        settings: the limits.
        most_tokens: the most tokens of all calls.
        spent: the tokens of earlier calls.
    """

    def __init__(
        self, base_url: str, model: str, key: str, options: Mapping[str, Any], hosts: ModelHosts,
        settings: VerifiedSettings, most_tokens: int, spent: int = 0,
    ) -> None:  # fmt: skip
        hosts.check_url(base_url)  # again, because the operator may have changed the hosts
        self.model = model
        self.tokens_left = most_tokens - spent
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = key
        self._options = options
        self._settings = settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=hosts.resolver(), use_dns_cache=False, limit=64),
            timeout=aiohttp.ClientTimeout(total=settings.call_seconds, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
        )  # fmt: skip

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def try_out(self) -> None:
        """Make the smallest possible call, so that a run with a wrong address or key is not registered.

        Raises:
            InvalidParams: the endpoint does not answer as one for chat completions does.
        """
        asked = {"model": self.model, "messages": [{"role": "user", "content": "Hi"}], **self._options}
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                reply = await self._send(json.dumps(asked).encode())
                reply.close()
        except (aiohttp.ClientError, OSError):
            raise InvalidParams("the model endpoint cannot be reached at base_url") from None
        if reply.status != 200:
            raise InvalidParams(
                f"the model endpoint answers a first call with {reply.status}: check base_url, the model and the key"
            )

    async def serve(self, request: web.BaseRequest, calls: EpisodeCalls) -> web.StreamResponse:
        """Answer a harness's request for chat completions."""
        try:
            self._admit(calls)
        except CallRefused as refused:
            return refusal(refused.status, refused.message)
        calls.begun += 1
        calls.open += 1
        call = _Call(self, request, calls, calls.begun)
        try:
            return await call.run()
        except CallRefused as refused:
            return refusal(refused.status, refused.message)
        finally:
            calls.open -= 1

    def _admit(self, calls: EpisodeCalls) -> None:
        limits = self._settings
        if calls.begun >= limits.calls:
            raise CallRefused(403, f"an episode of a verified run has at most {limits.calls} calls of the model")
        if calls.open >= limits.open_calls:
            raise CallRefused(403, f"an episode of a verified run has at most {limits.open_calls} calls at one time")
        if self.tokens_left <= 0:
            raise CallRefused(403, "the run has used the tokens that its registration allows")

    async def _send(self, body: bytes) -> aiohttp.ClientResponse:
        headers = {"content-type": PLAIN, "accept-encoding": "identity"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        return await self._session.post(self._url, data=body, headers=headers, allow_redirects=False)


class _Call:
    """One call.

    Args:
        proxy: the endpoint.
        request: what the harness has sent.
        calls: the calls of the episode.
        number: which of them it is.
    """

    def __init__(self, proxy: ModelProxy, request: web.BaseRequest, calls: EpisodeCalls, number: int) -> None:
        self._proxy = proxy
        self._request = request
        self._calls = calls
        self._number = number
        self._digest = hashlib.sha256()
        self._received = 0
        self._tokens = Tokens()
        self._status = 0

    async def run(self) -> web.StreamResponse:
        """Make the call, and count it.

        Raises:
            CallRefused: it was not made, or has no answer.
        """
        proxy = self._proxy
        try:
            body = await read_body(self._request, proxy._settings.request_bytes)
            asked = await asyncio.to_thread(prepare, body, proxy.model, proxy._options)  # a large one takes a while
        except LudusError as error:
            raise CallRefused(400, error.message) from None
        await self._begin(asked.body)
        try:
            reply = await self._reach(asked.body)
            try:
                return await (self._pass_stream(reply, asked.hides_usage) if asked.streams else self._pass(reply))
            finally:
                reply.close()
        finally:
            await self._count(asked.body)

    async def _begin(self, body: bytes) -> None:
        """Write the call before it is sent.

        Raises:
            CallRefused: the run has ended, or the call cannot be written.
        """
        try:
            is_open = await self._calls.keep(self._record(body))
        except LudusError:
            raise CallRefused(503, "the hub cannot write this call down now; try again") from None
        if not is_open:
            raise CallRefused(403, "the run has ended")

    async def _reach(self, body: bytes) -> aiohttp.ClientResponse:
        """Return the answer's head, after as many tries as the limit of the episode allows.

        Raises:
            CallRefused: the endpoint cannot answer, or answers with an error or a redirect.
        """
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._proxy._settings.outage_seconds - self._calls.waited, 1.0
        while True:
            try:
                reply = await self._proxy._send(body)
            except (aiohttp.ClientError, OSError) as error:
                self._status, why = 0, type(error).__name__
            else:
                self._status = reply.status
                if reply.status not in OUTAGES:
                    await self._check_status(reply)
                    return reply
                reply.close()
                why = str(reply.status)
            if loop.time() + pause > until:
                self._calls.outage = True
                raise CallRefused(503, f"the model's endpoint cannot answer now ({why})")
            await asyncio.sleep(pause)
            self._calls.waited += pause
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _check_status(self, reply: aiohttp.ClientResponse) -> None:
        if reply.status == 200 and reply.headers.get("content-encoding", "identity") == "identity":
            return
        try:
            if 400 <= reply.status < 500 and reply.status not in (401, 403):
                text = await reply.content.read(_SHOWN_ERROR)
                self._note(text)
                shown = KeyFilter(self._proxy._key)
                why = (shown.pass_on(text) + shown.rest()).decode("utf-8", "replace")
                raise CallRefused(reply.status, f"the model's endpoint answers {reply.status}: {why}")
        except KeyShown:
            pass
        except (aiohttp.ClientError, TimeoutError):
            pass
        finally:
            reply.close()
        # A redirect could lead anywhere, and the text of an error about a key can hold the key.
        status = reply.status if 400 <= reply.status < 500 else 502
        raise CallRefused(status, f"the model's endpoint answers {reply.status}, which is not passed on")

    async def _pass(self, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        shown = KeyFilter(self._proxy._key)
        body = bytearray()
        try:
            async for piece in reply.content.iter_any():
                self._note(piece)
                body += shown.pass_on(piece)
        except KeyShown:
            raise CallRefused(502, "the model's endpoint has sent the key back; its answer is not passed on") from None
        except (aiohttp.ClientError, TimeoutError):
            self._calls.outage = True
            raise CallRefused(503, "the model's endpoint has broken off its answer") from None
        body += shown.rest()
        with suppress(ValueError, RecursionError):
            self._tokens = tokens_of_answer(json.loads(bytes(body)))
        self._calls.answered = True
        return web.Response(body=bytes(body), content_type=PLAIN)

    async def _pass_stream(self, reply: aiohttp.ClientResponse, hides_usage: bool) -> web.StreamResponse:
        shown, events = KeyFilter(self._proxy._key), EventStream(hides_usage=hides_usage)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(self._request)
        self._calls.answered = True
        try:
            async for piece in reply.content.iter_any():
                self._note(piece)
                if passed := events.pass_on(shown.pass_on(piece)):
                    await response.write(passed)
            await response.write(events.pass_on(shown.rest()) + events.rest())
        except (KeyShown, CallRefused, aiohttp.ClientError, TimeoutError) as error:
            raise ConnectionResetError("the answer was broken off") from error  # its head is on the way
        finally:
            self._tokens = events.tokens
        await response.write_eof()
        return response

    def _note(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._received > self._proxy._settings.answer_bytes:
            raise CallRefused(502, "the model's answer is larger than this hub passes on")
        self._digest.update(piece)

    def _record(self, body: bytes) -> CallRecord:
        calls, (given, taken) = self._calls, self._tokens
        return CallRecord(
            place=calls.place, attempt=calls.attempt, number=self._number, status=self._status,
            request=hashlib.sha256(body).hexdigest(),
            answer=self._digest.hexdigest() if self._received else _EMPTY, input_tokens=given, output_tokens=taken,
        )  # fmt: skip

    async def _count(self, body: bytes) -> None:
        """Write the call again, now that it is done; if that fails, the end of the episode writes it."""
        record = self._record(body)
        self._calls.records.append(record)
        if self._status == 200:
            given, taken = record.input_tokens, record.output_tokens
            guess = (len(body) + self._received) // _BYTES_OF_TOKEN
            self._proxy.tokens_left -= guess if given is None or taken is None else given + taken
        try:
            await self._calls.keep(record)
        except LudusError as error:
            log.warning("a call of a verified run could not be written: %s", error.message)


def refusal(status: int, message: str) -> web.Response:
    """Return an error in the form of OpenAI's API."""
    text = json.dumps({"error": {"message": message, "type": "ludus_verified_run", "param": None, "code": None}})
    return web.Response(status=status, text=text, content_type=PLAIN)


async def read_body(request: web.BaseRequest, most: int) -> bytes:
    """Return the body of a request.

    Raises:
        InvalidParams: it has more than `most` bytes.
    """
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > most:
            raise InvalidParams(f"the request is larger than {most} bytes")
    return bytes(body)
