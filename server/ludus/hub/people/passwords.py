"""Passwords: hashed with Argon2id, a bounded number at a time.

One hash takes 64 MiB and some tenths of a second, so a client that could ask for many at once would fill the memory of
the hub. `CONCURRENT` are computed at a time, `WAITING` more wait, and others are refused. A name that does not exist
costs the same: its password is compared with the hash of random bytes.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from ludus.protocol.errors import CapacityError, InvalidParams
from ludus.registry.types.people import PASSWORD_LENGTHS

CONCURRENT: Final = 2
"""The most hashes that are computed at one time."""

WAITING: Final = 16
"""The most that wait for one of these to end."""

WAIT_SECONDS: Final = 20.0
"""The longest wait."""


class Passwords:
    """Hashes and verifies passwords. All methods block, and any thread may call them.

    Args:
        hasher: computes the hashes; by default with the parameters of RFC 9106 for little memory.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._places = threading.BoundedSemaphore(CONCURRENT)
        self._queue = threading.BoundedSemaphore(CONCURRENT + WAITING)

    def hash(self, password: str) -> str:
        """Return the hash of a password.

        Raises:
            InvalidParams: the password is too short or too long.
            CapacityError: too many hashes are waited for.
        """
        fewest, most = PASSWORD_LENGTHS
        if not fewest <= len(password) <= most:
            raise InvalidParams(f"a password takes {fewest} to {most} characters, this one has {len(password):,}")
        with self._place():
            return self._hasher.hash(password.encode("utf-8", "surrogatepass"))

    def verify(self, hashed: str | None, password: str) -> bool:
        """Return whether a password has a hash; with None, take the same time and return False.

        Raises:
            CapacityError: too many hashes are waited for.
        """
        shortened = password[: PASSWORD_LENGTHS[1]]
        with self._place():
            try:
                self._hasher.verify(hashed or self._impossible, shortened.encode("utf-8", "surrogatepass"))
            except (VerificationError, InvalidHashError):
                return False
        return hashed is not None and shortened == password

    @cached_property
    def _impossible(self) -> str:
        return self._hasher.hash(secrets.token_bytes(32))

    def prepare(self) -> None:
        """Compute what `verify` needs for unknown names, so that the first one takes no longer than the others."""
        _ = self._impossible

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._queue.acquire(blocking=False):
            raise _too_many()
        try:
            if not self._places.acquire(timeout=WAIT_SECONDS):
                raise _too_many()
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._queue.release()


def _too_many() -> CapacityError:
    return CapacityError(
        "too many people sign in at the same time; try again in some seconds", limit="passwords", retryAfter=5.0
    )
