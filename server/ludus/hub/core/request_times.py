"""How long requests took, in buckets."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the buckets of `ludus_hub_request_seconds`."""


class Times:
    """How long the requests of one route took."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(REQUEST_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one request."""
        self.buckets[bisect_left(REQUEST_SECONDS, seconds)] += 1
        self.seconds += seconds
