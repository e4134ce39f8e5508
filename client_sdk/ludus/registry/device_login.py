"""Signing in to a hub through a browser, which may be on another machine (RFC 8628)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from ludus.protocol.errors import CapacityError, ConnectionFailed, DeadlineExceeded, ProtocolViolation
from ludus.registry.client import RegistryClient
from ludus.registry.types.errors import HubUnavailable
from ludus.registry.types.people import CreatedToken, DeviceAuthorization, DeviceLogin

SLOWER_SECONDS: Final = 5.0
"""How much longer the client waits between two requests after the hub has asked it to slow down."""

PASSING: Final = (ConnectionFailed, DeadlineExceeded, HubUnavailable, CapacityError)
"""Errors after which the client asks again, more slowly, as long as the code is valid."""


async def sign_in_on_device(
    client: RegistryClient, wanted: DeviceLogin, show: Callable[[DeviceAuthorization], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> CreatedToken:  # fmt: skip
    """Sign in through a browser, and return the token.

    Args:
        client: a client of the hub, without a token.
        wanted: the token to make.
        show: shows the person the address and the code.
        sleep: waits between two requests.

    Raises:
        Conflict: the hub has no accounts, or the account has too many tokens.
        Forbidden: the person has refused.
        Unauthenticated: the code was not confirmed in time.
        DeadlineExceeded: the same, and the hub does not answer any more.
        ProtocolViolation: the address that the hub names is not one of HTTP.
    """
    begun = await client.begin_device_login(wanted)
    if urlsplit(begun.verification_uri).scheme not in ("http", "https"):
        raise ProtocolViolation(f"the hub names an address that is not one of HTTP: {begun.verification_uri[:200]!r}")
    show(begun)
    interval = float(begun.interval)
    try:
        async with asyncio.timeout(begun.expires_in + SLOWER_SECONDS):
            while True:
                await sleep(interval)
                try:
                    answer = await client.device_token(begun.device_code)
                except PASSING:
                    interval = min(interval + SLOWER_SECONDS, 60.0)
                    continue
                if answer.status == "slow_down":
                    interval += SLOWER_SECONDS
                if answer.created is not None:
                    return answer.created
    except TimeoutError:
        raise DeadlineExceeded(
            f"the code was not confirmed within {begun.expires_in // 60} minutes; run the command again"
        ) from None
