"""Retries of one request, for every client of a network service: which answers to retry, and after which pause."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Final

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


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a `Retry-After` header; None without one, or if it is a date or is not a finite number.

    Args:
        headers: the headers of a response; the names must be compared without their case, as HTTP clients do.
    """
    try:
        seconds = float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
