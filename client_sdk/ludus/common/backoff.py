"""Retries of one request, for every client of a network service: which answers to retry, and after which pause."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["Backoff", "RETRIED_STATUSES"]


RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""The HTTP status codes of a model endpoint after which another attempt may succeed."""

_JITTER: Final = random.Random()
"""A generator of its own: threads that retry must not change what a program draws from a seed of `random`."""


class Backoff:
    """The pauses of one request. Each is twice as long as the one before, up to `longest`; jitter spreads the clients.

    Args:
        first: the first pause before jitter, in seconds.
        longest: the longest pause before jitter, in seconds.
    """

    __slots__ = ("_longest", "_pause")

    def __init__(self, first: float, longest: float = math.inf) -> None:
        self._pause, self._longest = min(first, longest), longest

    def next(self) -> float:
        """Return the next pause in seconds: between half of its full length and all of it."""
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        return pause * _JITTER.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], text: str = "") -> float | None:
    """Return the seconds after which a server allows another attempt; None if it does not say.

    Known are `Retry-After` in seconds or as a date, `retry-after-ms`, `ratelimit-reset` and `x-ratelimit-reset` in
    seconds or as Unix time, and, in the text of an error, "try again in 7.66s" and Google's `"retryDelay": "34s"`.

    Args:
        headers: the headers of a response; the names must be compared without their case, as HTTP clients do.
        text: the body of the response.
    """
    if (seconds := _seconds(headers.get("retry-after-ms"))) is not None:
        return seconds / 1000
    stated = headers.get("Retry-After")
    if (seconds := _seconds(stated)) is not None:
        return seconds
    if stated is not None and (seconds := _seconds_until(stated)) is not None:
        return seconds
    if (match := _IN_TEXT.search(text[:_TEXT_CHARS])) is not None:
        amounts = ((match["minutes"], 60.0), (match["seconds"] or match["delay"], 1.0), (match["millis"], 0.001))
        if any(amount for amount, _ in amounts):
            return sum(float(amount) * unit for amount, unit in amounts if amount)
    for name in ("ratelimit-reset", "x-ratelimit-reset"):
        if (seconds := _seconds(headers.get(name))) is not None:
            return max(0.0, seconds - time.time()) if seconds > _UNIX_TIME else seconds
    return None


_UNIX_TIME: Final = 1e9
"""Higher values of a header are times and not durations."""
_TEXT_CHARS: Final = 4_000
_IN_TEXT: Final = re.compile(
    r"(?:try again|retry)[a-z ]{0,20} (?:in|after) (?:(?P<minutes>\d{1,4}) ?m(?:in(?:ute)?s?)?(?![a-z]))? ?"
    r"(?:(?P<seconds>\d{1,6}(?:\.\d{1,6})?) ?s|(?P<millis>\d{1,9}(?:\.\d{1,6})?) ?ms)?"
    r"|\"retryDelay\": ?\"(?P<delay>\d{1,6}(?:\.\d{1,9})?)s\"",
    re.IGNORECASE,
)


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str) -> float | None:
    """Return the seconds until an HTTP date, or one of RFC 3339; None if the text is neither."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(date)
        except ValueError:
            continue
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - time.time())
    return None
