"""Pauses between tries of one request: exponential backoff with jitter, for every client of a network service."""

from __future__ import annotations

import math
import random


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
        return pause * random.uniform(0.5, 1.0)
