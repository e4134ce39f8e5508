"""How often an address, a name or a token may do something. The counts are in the memory of this process."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pydantic import BaseModel, ConfigDict, Field

from ludus.protocol.errors import CapacityError


class RateSettings(BaseModel):
    """The rates, each as a number of events per window."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    address_minute: int = Field(default=1200, ge=1)
    """Requests without a token from one address in a minute, except to endpoints."""
    token_minute: int = Field(default=3000, ge=1)
    """Requests with one token in a minute, except to endpoints."""
    wrong_tokens_minute: int = Field(default=60, ge=1)
    """Wrong tokens from one address in a minute."""
    logins_of_address: int = Field(default=30, ge=1)
    """Sign-ins from one address in 15 minutes."""
    logins_of_pair: int = Field(default=10, ge=1)
    """Sign-ins with one name from one address in 15 minutes."""
    logins_of_name: int = Field(default=100, ge=1)
    """Sign-ins with one name in 15 minutes, from all addresses."""
    registrations_hour: int = Field(default=10, ge=1)
    """Registrations from one address in an hour."""
    training_minute: int = Field(default=1200, ge=1)
    """Requests of one account in a minute that report training runs."""


@dataclass(frozen=True)
class _Rule:
    item: RateLimitItem
    what: str


class Rates:
    """Counts events, and refuses those that are too many. Any thread may call it.

    Args:
        settings: the rates.
    """

    def __init__(self, settings: RateSettings) -> None:
        self._lock = threading.Lock()
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._rules: Final[dict[str, _Rule]] = {
            "address": _rule(f"{settings.address_minute}/minute", "requests without a token"),
            "token": _rule(f"{settings.token_minute}/minute", "requests with this token"),
            "wrong": _rule(f"{settings.wrong_tokens_minute}/minute", "wrong tokens"),
            "login_address": _rule(f"{settings.logins_of_address} per 15 minute", "attempts to sign in"),
            "login_pair": _rule(f"{settings.logins_of_pair} per 15 minute", "attempts to sign in"),
            "login_name": _rule(f"{settings.logins_of_name} per 15 minute", "attempts to sign in"),
            "registration": _rule(f"{settings.registrations_hour}/hour", "registrations"),
            "training": _rule(f"{settings.training_minute}/minute", "requests that report training runs"),
        }

    def hit(self, name: str, *key: str) -> None:
        """Count an event.

        Args:
            name: the rate.
            key: of whom.

        Raises:
            CapacityError: there were too many; it says when to try again.
        """
        with self._lock:
            if self._limiter.hit(self._rules[name].item, name, *key):
                return
        raise self._refusal(name, *key)

    def login(self, name: str, address: str) -> None:
        """Count an attempt to sign in with a name from an address.

        Raises:
            CapacityError: there were too many.
        """
        self.hit("login_address", address)
        self.hit("login_pair", name[:100], address)
        self.hit("login_name", name[:100])

    def _refusal(self, name: str, *key: str) -> CapacityError:
        rule = self._rules[name]
        with self._lock:
            stats = self._limiter.get_window_stats(rule.item, name, *key)
        seconds = max(1.0, stats.reset_time - time.time())
        return CapacityError(
            f"too many {rule.what}: {rule.item.amount} are possible; try again in {seconds:.0f} s",
            limit=name, retryAfter=round(seconds, 1),
        )  # fmt: skip


def _rule(text: str, what: str) -> _Rule:
    return _Rule(parse(text), what)
