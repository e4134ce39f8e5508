"""Rate limits and quotas: what each principal may use, and what a client address may send without a valid credential.

    Quotas ── Account (one principal) ── Meter (its requests), Meter (its steps)
       ├───── Guesses (wrong tokens of client addresses)
       └───── Strangers (their requests without a valid credential)

The counts are in a `UsageTable`, which the worker processes of one machine share. An account exists for every principal
that the server has seen; without limits, it only counts episodes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from ludus.protocol.errors import CapacityError
from ludus.server.auth.limits import DEFAULT_WRONG_TOKENS, STRANGER_REQUESTS, WRONG_TOKENS, TokenLimits
from ludus.server.auth.principal import OPEN_CREDENTIAL, Principal
from ludus.server.auth.tokens import UnknownToken
from ludus.server.auth.usage import REQUESTS, ROWS, STALE_SECONDS, STEPS, UsageBusy, UsageFull, UsageTable

log = logging.getLogger("ludus.server.quotas")

MOST_DRAWN: Final = 64
"""The most permits that a worker draws at one time."""

EPISODES_RETRY_SECONDS: Final = 2.0
"""After how many seconds to try again to open an episode."""

BYTES_RETRY_SECONDS: Final = 5.0
"""After how many seconds to try again once too many bytes are stored."""

BUSY_SECONDS: Final = 0.1
"""After how many seconds to try again when another process does not let go of the shared counts."""

SPREAD_SECONDS: Final = 1.0
"""Callers that are refused one after the other get times one after the other, within this time."""

STRANGER_BURST_SECONDS: Final = 5.0
"""Strangers may send as many requests at one time as in so many seconds: many clients may share an address."""


class Meter:
    """A rate of one principal: a token bucket in the shared memory, of which permits are drawn in small batches."""

    __slots__ = (
        "_account",
        "_batch",
        "_burst",
        "_clock",
        "_closed_until",
        "_kind",
        "_left",
        "_rate",
        "_refused",
        "_stale_at",
    )

    def __init__(self, account: Account, kind: int, rate: float, burst: int | None) -> None:
        self._account = account
        self._clock = account.quotas.table.clock
        self._kind = kind
        self._rate = rate
        self._burst = burst or max(1, math.ceil(rate))
        self._left = 0
        """Permits that are drawn and not spent."""
        self._batch = 0
        """How many were drawn last."""
        self._stale_at = 0.0
        self._closed_until = 0.0
        self._refused = 0
        """Refusals since the last permit."""

    def take(self) -> None:
        """Spend a permit.

        Raises:
            CapacityError: there is none.
        """
        tokens_left = self._left
        if tokens_left and self._clock() < self._stale_at:
            self._left = tokens_left - 1
        else:
            self._draw()

    def _draw(self) -> None:
        now, table = self._clock(), self._account.quotas.table
        if now < self._closed_until:
            raise self._refusal(self._closed_until - now)
        unspent, spent = self._left, self._batch - self._left
        want = 2 * spent if now < self._stale_at else spent
        self._left = self._batch = 0
        try:
            granted, wait = table.draw(
                self._account.row, self._kind, self._rate, self._burst,
                max(1, min(want, MOST_DRAWN, table.batch(self._burst))), unspent,
            )  # fmt: skip
        except UsageBusy:
            self._closed_until = now + BUSY_SECONDS
            raise self._refusal(BUSY_SECONDS) from None
        if not granted:
            self._closed_until = now + wait
            raise self._refusal(wait)
        self._batch, self._left, self._stale_at, self._refused = granted, granted - 1, now + STALE_SECONDS, 0

    def _refusal(self, wait: float) -> CapacityError:
        subject = "requests" if self._kind == REQUESTS else "steps"
        wait += min(SPREAD_SECONDS, self._refused / self._rate)
        self._refused += 1
        return self._account.refusal(
            f"{subject}_per_second",
            f"{self._rate:g} {subject} per second, and {self._burst} at one time",
            maximum=self._rate,
            burst=self._burst,
            wait=max(0.001, wait),
        )


class Account:
    """What one principal uses, and the limits on that."""

    __slots__ = (
        "counts_steps",
        "episodes",
        "full",
        "limits",
        "name",
        "own",
        "quotas",
        "requests",
        "row",
        "steps",
        "stored",
    )

    def __init__(self, quotas: Quotas, name: str, own: TokenLimits | None) -> None:
        self.quotas = quotas
        self.name = name
        self.own = own
        """The limits of its token."""
        self.limits = TokenLimits()
        self.row = -1
        """Its row in the shared memory; negative while it has no limits."""
        self.requests: Meter | None = None
        self.steps: Meter | None = None
        self.episodes = 0
        """Episodes of this process that start or run."""
        self.stored = 0
        """Bytes of its episodes in this process."""
        self.full = False
        """Whether it stores more bytes than it may, over all workers."""
        self.counts_steps = False
        """Whether `take_step` must be called for a step."""
        self.set_limits(own)

    def set_limits(self, own: TokenLimits | None) -> None:
        """Set the limits of its token, on top of the server's own.

        Raises:
            CapacityError: there is no room for a further principal with limits.
        """
        limits = (own or TokenLimits()).over(self.quotas.defaults)
        if limits.any and self.row < 0:
            self.row = self.quotas.row(self.name)
            self.quotas.table.set_counts(self.row, self.episodes, self.stored)
        self.own = own
        if limits == self.limits:
            return
        self.limits, self.full = limits, self.full and limits.stored_bytes is not None
        rate, burst = limits.requests_per_second, limits.request_burst
        self.requests = Meter(self, REQUESTS, rate, burst) if rate is not None else None
        rate, burst = limits.steps_per_second, limits.step_burst
        self.steps = Meter(self, STEPS, rate, burst) if rate is not None else None
        self.counts_steps = self.steps is not None or self.full

    def take_step(self) -> None:
        """Count a new step.

        Raises:
            CapacityError: it is one too many, or the principal stores too much.
        """
        if self.full:
            raise self._full()
        if self.steps is not None:
            self.steps.take()

    def open(self, count: int) -> None:
        """Count episodes that are to start.

        Raises:
            CapacityError: they are too many, or the principal stores too much.
        """
        if self.full:
            raise self._full()
        limit, opened = self.limits.open_episodes, self.episodes + count
        if limit is not None:
            excess = f"{limit} open episodes"
            if count > limit:
                raise self.refusal(
                    "open_episodes", excess, advice=f"a group of {count} can never fit: ask for fewer", maximum=limit
                )
            try:
                if not self.quotas.table.open_episodes(self.row, opened, limit, self.stored):
                    raise self.refusal(
                        "open_episodes", excess, maximum=limit, wait=EPISODES_RETRY_SECONDS,
                        advice="close episodes you no longer need, or try again",
                    )  # fmt: skip
            except UsageBusy:
                raise self.refusal("open_episodes", excess, maximum=limit, wait=BUSY_SECONDS) from None
        self.episodes = opened
        self._publish()

    def restore(self, count: int) -> None:
        """Count episodes that an earlier process opened, without a limit."""
        self.episodes += count
        self._publish()

    def close(self, count: int) -> None:
        """Count episodes that have ended, or have not started after all."""
        self.episodes -= count
        self._publish()

    def store(self, size: int) -> None:
        """Set how many bytes its episodes take in this process."""
        self.stored = size
        self._publish()

    def check_stored(self) -> None:
        """Find out whether the principal stores too much, over all processes."""
        limit = self.limits.stored_bytes
        self.full = limit is not None and self.quotas.table.totals(self.row).stored >= limit
        self.counts_steps = self.steps is not None or self.full

    def refusal(
        self,
        limit: str,
        what: str,
        *,
        maximum: float,
        wait: float | None = None,
        advice: str = "",
        burst: int | None = None,
    ) -> CapacityError:
        """Return the error for a request beyond a limit, and count it."""
        self.quotas.refused[limit] += 1
        whose = (
            f"the token {self.name!r} may have at most"
            if self.quotas.tokens
            else "callers of this server may have at most"
        )
        data = {"limit": limit, "maximum": maximum}
        if burst is not None:
            data["burst"] = burst
        if wait is not None:
            data["retryAfter"] = round(wait, 3)
            advice = advice or f"try again in {wait:.3g} s"
        return CapacityError(f"{whose} {what} ({limit}); {advice}", **data)

    def _full(self) -> CapacityError:
        limit = self.limits.stored_bytes or 0
        return self.refusal(
            "stored_bytes", f"{limit} bytes of episodes in memory and the journal", maximum=limit,
            wait=BYTES_RETRY_SECONDS, advice="close episodes: what they hold is freed a little later",
        )  # fmt: skip

    def _publish(self) -> None:
        if self.row >= 0:
            self.quotas.table.set_counts(self.row, self.episodes, self.stored)


class Guesses:
    """Wrong tokens by client address.

    An address that has sent too many gets 429 for further wrong ones. A right token is 256 random bits, which proves
    itself: it is never refused for what others behind the same address send.

    Args:
        quotas: the shared counts.
        per_minute: how many an address may send in a minute; None for no limit.
    """

    def __init__(self, quotas: Quotas, per_minute: float | None) -> None:
        self._quotas = quotas
        self._per_minute = per_minute
        self._burst = max(1, math.ceil(per_minute or 1))

    def recognize(self, token: str, address: str, authenticate: Callable[[str], Principal]) -> Principal:
        """Return the principal of a token that a client address sends.

        Raises:
            Unauthenticated: the token is unknown or expired.
            CapacityError: the token is unknown, and the address has sent too many such tokens.
        """
        try:
            return authenticate(token)
        except UnknownToken:
            if self._per_minute is None:
                raise
            table, network, rate = self._quotas.table, network_of(address), self._per_minute / 60
            wait = table.wait_of(network, rate, self._burst) if table.wrong_tokens else 0.0
            if wait:
                raise self._refusal(address, wait) from None
            try:
                table.note_wrong(network, rate, self._burst)
            except UsageBusy:
                raise self._refusal(address, BUSY_SECONDS) from None
            raise

    def _refusal(self, address: str, wait: float) -> CapacityError:
        self._quotas.refused[WRONG_TOKENS] += 1
        return CapacityError(
            f"too many wrong tokens came from your address {address}: at most {self._per_minute:g} per minute "
            f"({WRONG_TOKENS}); check the token, and try again in {math.ceil(wait)} s",
            limit=WRONG_TOKENS,
            maximum=self._per_minute,
            retryAfter=round(wait, 3),
        )


class Strangers:
    """Requests without a valid token or play capability, by client address. Those with one are never counted.

    Args:
        quotas: the shared counts.
        per_second: how many an address may send in a second; None for no limit.
    """

    def __init__(self, quotas: Quotas, per_second: float | None) -> None:
        self._quotas = quotas
        self._per_second = per_second or 0.0
        self._burst = max(1, math.ceil(self._per_second * STRANGER_BURST_SECONDS))
        self.limited = per_second is not None
        """Whether there is a limit."""

    def refusal(self, address: str) -> CapacityError | None:
        """Return the error for a request without a credential; None if the address may send one."""
        table = self._quotas.table
        if not table.strangers:
            return None
        wait = table.wait_of(_stranger(address), self._per_second, self._burst)
        if not wait:
            return None
        self._quotas.refused[STRANGER_REQUESTS] += 1
        return CapacityError(
            f"too many requests without a valid token or play URL came from your address {address}: at most "
            f"{self._per_second:g} per second, and {self._burst} at one time ({STRANGER_REQUESTS}); send a token, or "
            f"try again in {wait:.3g} s",
            limit=STRANGER_REQUESTS,
            maximum=self._per_second,
            burst=self._burst,
            retryAfter=round(max(0.001, wait), 3),
        )

    def note(self, address: str) -> None:
        """Count such a request."""
        with contextlib.suppress(UsageBusy):
            self._quotas.table.note_stranger(_stranger(address), self._per_second, self._burst)


def _stranger(address: str) -> str:
    return f"stranger {network_of(address)}"


class Quotas:
    """The limits of all principals of a server.

    Args:
        defaults: the limits of principals whose tokens have none of their own.
        wrong_tokens_per_minute: how many wrong tokens one client address may send; None for no limit.
        stranger_requests_per_second: how many requests without a valid credential it may send; None for no limit.
        table: the counts, shared with other processes; by default private memory.
        limits_of: returns the limits of the token with a name; None on a server without tokens.
        clock: the clock of private memory.
    """

    def __init__(
        self,
        defaults: TokenLimits | None = None,
        *,
        wrong_tokens_per_minute: float | None = DEFAULT_WRONG_TOKENS,
        stranger_requests_per_second: float | None = None,
        table: UsageTable | None = None,
        limits_of: Callable[[str], TokenLimits | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.defaults = defaults or TokenLimits()
        self.counts_requests = self.defaults.requests_per_second is not None
        """Whether the requests of principals whose tokens have no limits are counted."""
        self.table = table or UsageTable.private(clock)
        self.tokens = limits_of is not None
        """Whether principals have tokens."""
        self.accounts: dict[str, Account] = {}
        self.refused: Counter[str] = Counter()
        """Refusals, by limit."""
        self.guesses = Guesses(self, wrong_tokens_per_minute)
        self.strangers = Strangers(self, stranger_requests_per_second)
        self._limits_of = limits_of or (lambda name: None)

    def account(self, principal: Principal) -> Account:
        """Return the account of a principal, with the limits that its token has now.

        Raises:
            CapacityError: there is no room for a further principal with limits.
        """
        account = self.accounts.get(principal.name)
        if account is None:
            account = self.accounts[principal.name] = Account(self, principal.name, principal.limits)
        elif account.own is not principal.limits:
            account.set_limits(principal.limits)
        return account

    def account_of(self, owner: str) -> Account:
        """Return the account of the owner of an episode.

        Raises:
            CapacityError: there is no room for a further principal with limits.
        """
        account = self.accounts.get(owner)
        return account or self.account(Principal(owner, frozenset(), OPEN_CREDENTIAL, limits=self._limits_of(owner)))

    def row(self, name: str) -> int:
        """Return the row of a principal in the shared memory.

        Raises:
            CapacityError: there is no room for it, or another process does not let go of the memory.
        """
        try:
            return self.table.row(name)
        except UsageFull:
            self.refused["principals"] += 1
            raise CapacityError(
                f"this server counts the usage of {ROWS} tokens with limits, its most (principals); its operator can "
                "restart all of its processes, which makes room",
                limit="principals",
                maximum=ROWS,
                retryAfter=60.0,
            ) from None
        except UsageBusy:
            self.refused["principals"] += 1
            raise CapacityError(
                "the counts of usage are not available at this moment (principals); try again", limit="principals",
                retryAfter=BUSY_SECONDS,
            ) from None  # fmt: skip

    def refresh(self) -> None:
        """Follow changes of the tokens' limits, and clear what dead processes used."""
        self.table.clear_dead()
        for account in self.accounts.values():
            limits = self._limits_of(account.name)
            if limits is not account.own:
                try:
                    account.set_limits(limits)
                except CapacityError as error:
                    log.error("the limits of the token %r do not apply: %s", account.name, error.message)

    @property
    def counts_bytes(self) -> bool:
        """Whether any principal has a limit on stored bytes."""
        return any(account.limits.stored_bytes is not None for account in self.accounts.values())

    def close(self) -> None:
        """Give up what this process uses of the shared memory."""
        self.table.close()


def network_of(address: str) -> str:
    """Return what counts as one client address: an IPv4 address, or a network of 64 bits of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address or "-"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
    return str(parsed)
