"""A cassette as one episode plays it: the n-th of equal requests has the n-th recorded answer."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ludus.sandbox.cassettes.file import Entry, HttpAnswer
from ludus.sandbox.cassettes.library import Library, open_library
from ludus.sandbox.cassettes.requests import call_request, canonical, http_request
from ludus.sandbox.core.cassette_settings import Cassette
from ludus.sandbox.core.errors import CassetteError, CassetteMiss

_SHOWN = 300


class Unrecorded(Exception):
    """Raised by a live request whose answer is given but not recorded, such as that of a server that is out of order.

    Attributes:
        answer: the answer.
    """

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__("an answer that is not recorded")
        self.answer = answer


class Tape:
    """The answers of a cassette for one episode, or for one sandbox of it.

    Args:
        settings: the cassette; its path is absolute.
        secrets: texts that must not be written to the file.

    Raises:
        CassetteError: the file cannot be read or recorded.
    """

    def __init__(self, settings: Cassette, secrets: Iterable[str] = ()) -> None:
        self.settings = settings
        self.secrets = tuple(secrets)
        self.failure: CassetteMiss | CassetteError | None = None
        """Why a sandbox's request has no answer, or was not recorded; it leaves the episode unscored."""
        self._library: Library = open_library(settings)
        self._taken: Counter[str] = Counter()

    def again(self) -> Tape:
        """Return a tape at the same position, for a copy of what plays this one."""
        copy = Tape(self.settings, self.secrets)
        copy._taken = self._taken.copy()
        copy.failure = self.failure
        return copy

    async def call(
        self, name: str, arguments: Mapping[str, Any], live: Callable[[], Awaitable[Any] | Any]
    ) -> Any:  # fmt: skip
        """Return the recorded result of a call; to record, call `live` and keep its result.

        Args:
            name: what is called, such as `search`.
            arguments: JSON values; equal ones have the same results.
            live: makes the call and returns a JSON value. An error that it raises is not recorded.

        Raises:
            CassetteMiss: the file has no result, and the mode is "replay"; the episode ends unscored.
            CassetteError: the arguments or the result are not JSON, or contain a secret.
        """
        request = call_request(self.settings, name, arguments)

        async def ask() -> Any:
            result = live()
            if inspect.isawaitable(result):
                result = await result
            return json.loads(canonical(result))

        # A copy: an environment that changes a result must not change those of other episodes.
        return json.loads(canonical(await self._play(request, ask)))

    async def fetch(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes,
        live: Callable[[], Awaitable[HttpAnswer]],
    ) -> HttpAnswer:  # fmt: skip
        """Return the recorded response to a request over HTTP; to record, make the request by `live`.

        Raises:
            CassetteMiss: the file has no response, and the mode is "replay".
            CassetteError: the response contains a secret.
        """
        request = http_request(self.settings, method, url, headers, body)

        async def ask() -> Any:
            answer = await live()
            self._refuse_secrets(answer.body)
            return answer.to_json()

        try:
            return HttpAnswer.from_json(await self._play(request, ask))
        except Unrecorded as passed:
            return passed.answer
        except (CassetteMiss, CassetteError) as error:
            if self.settings.miss == "unscored" or isinstance(error, CassetteError):
                self.failure = self.failure or error
            raise

    async def _play(self, request: dict[str, Any], ask: Callable[[], Awaitable[Any]]) -> Any:
        key = canonical(request)
        number = self._taken[key]
        self._taken[key] += 1
        answers = self._library.find(key)
        if number < len(answers):
            return answers[number]
        if self._library.mode == "replay":
            if answers and self.settings.repeat:
                return answers[-1]
            short_key = key if len(key) <= _SHOWN else f"{key[:_SHOWN]}…"
            raise CassetteMiss(
                f"the cassette {Path(self.settings.path).name} has {len(answers) or 'no'} answers to {short_key}, and "
                f"this is request {number + 1} of that kind; record it with LUDUS_CASSETTE=record-missing"
            )
        answer = await ask()
        self._refuse_secrets((canonical(answer) + key).encode("utf-8", "surrogatepass"))
        return await self._library.keep(Entry(request, answer), number)

    def _refuse_secrets(self, written: bytes) -> None:
        for secret in filter(None, self.secrets):
            spellings = (secret, canonical(secret)[1:-1])
            if any(spelling.encode("utf-8", "surrogatepass") in written for spelling in spellings):
                raise CassetteError(
                    f"the request or its answer has a secret in it, so the cassette {Path(self.settings.path).name} "
                    "does not keep it: leave the secret out, or name the part of the request in `ignore`"
                )
