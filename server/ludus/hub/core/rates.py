"""How often an address, a name or a token may do something.

Every count is in the memory of this process first, which refuses without work. Attempts to sign in, wrong tokens and
registrations are counted in the database, too, so that an attacker has no more guesses at several processes of a hub
than at one. Requests are not: that would be a write for each.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Final

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pydantic import BaseModel, ConfigDict, Field

from ludus.hub.core.shared_rates import Event, SharedCounts, TooMany
from ludus.protocol.errors import CapacityError
from ludus.registry.types.errors import HubUnavailable


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
    device_codes: int = Field(default=10, ge=1)
    """Codes of devices that one account enters in 15 minutes."""
    organizations_day: int = Field(default=10, ge=1)
    """Organizations that one account creates in a day."""


@dataclass(frozen=True)
class _Rule:
    item: RateLimitItem
    what: str


SHARED: Final = frozenset({"wrong", "login_address", "login_pair", "login_name", "registration", "device_code"})
"""The rates that all processes of the hub count together."""


class Rates:
    """Counts events, and refuses those that are too many. Any thread may call it; it may wait for the database.

    Args:
        settings: the rates.
        shared: the counts in the database.
    """

    def __init__(self, settings: RateSettings, shared: SharedCounts) -> None:
        self._shared = shared
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
            "device_code": _rule(f"{settings.device_codes} per 15 minute", "codes of devices"),
            "organization": _rule(f"{settings.organizations_day}/day", "new organizations"),
        }

    def hit(self, name: str, *key: str) -> None:
        """Count an event.

        Args:
            name: the rate.
            key: of whom.

        Raises:
            CapacityError: there were too many; it says when to try again.
        """
        self._hit([(name, *key)])

    def login(self, name: str, address: str) -> None:
        """Count an attempt to sign in with a name from an address.

        Raises:
            CapacityError: there were too many.
        """
        self._hit([("login_address", address), ("login_pair", name[:100], address), ("login_name", name[:100])])

    def _hit(self, keys: list[tuple[str, ...]]) -> None:
        """Count an event for each key, which begins with the name of its rate."""
        for key in keys:
            item = self._rules[key[0]].item
            with self._lock:
                if self._limiter.hit(item, *key):
                    continue
                stats = self._limiter.get_window_stats(item, *key)
            raise self._refusal(key[0], max(1.0, stats.reset_time - time.time()))
        shared = [key for key in keys if key[0] in SHARED]
        if not shared:
            return
        items = [self._rules[key[0]].item for key in shared]
        events = [Event(key, item.amount, item.get_expiry()) for key, item in zip(shared, items, strict=True)]
        try:
            with contextlib.suppress(HubUnavailable):  # then this process counts alone, as it does in any case
                self._shared.hit(events)
        except TooMany as error:
            raise self._refusal(shared[error.place][0], error.seconds) from None

    def _refusal(self, name: str, seconds: float) -> CapacityError:
        rule = self._rules[name]
        return CapacityError(
            f"too many {rule.what}: {rule.item.amount} are possible; try again in {seconds:.0f} s",
            limit=name, retryAfter=round(seconds, 1),
        )  # fmt: skip


def _rule(text: str, what: str) -> _Rule:
    return _Rule(parse(text), what)
