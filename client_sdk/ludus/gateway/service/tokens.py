"""Who may use the service: bearer tokens from a token file of `ludus token create`, and nothing else than loopback.

Without a token file, the service listens on loopback only. Then it refuses requests that a web page could send: those
with an `Origin`, and those whose `Host` is not a name of this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from ludus.protocol.errors import AuthoringError, Forbidden, Unauthenticated
from ludus.protocol.methods import Scope

ANYONE: Final = ""
"""The name of the caller if there are no tokens."""
NEEDED: Final = frozenset({Scope.EPISODES_RUN.value, Scope.REWARDS_READ.value})
"""The scopes that a token needs."""
_PREFIX: Final = "sha256:"


class _Token(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    hash: str
    scopes: tuple[str, ...]
    expires: AwareDatetime | None = None


class _TokenFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    tokens: tuple[_Token, ...] = ()


class Guard:
    """Decides whether a request is let in. The token file is read again when it changes.

    Args:
        host: the address that the service listens at.
        file: the token file; None on loopback only.

    Raises:
        AuthoringError: the file cannot be used, or it is missing although others can reach the address.
    """

    def __init__(self, host: str, file: Path | None) -> None:
        if file is None and not is_loopback(host):
            raise AuthoringError(
                f"refusing to listen on {host} without tokens: others can reach that address. Create one with "
                "`ludus token create --name NAME --file tokens.json` and give --token-file tokens.json"
            )
        self._host = host
        self._file = file
        self._stamp: tuple[int, int] | None = None
        self._tokens: tuple[_Token, ...] = ()
        if file is not None:
            self._reload(file)

    def check(self, headers: Mapping[str, str]) -> str:
        """Return the name of the token of a request.

        Raises:
            Unauthenticated: it has none, or one that is unknown or expired.
            Forbidden: the token lacks a scope, or a web page may have sent the request.
        """
        if self._file is None:
            self._check_local(headers)
            return ANYONE
        self._reload(self._file)
        scheme, _, secret = headers.get("Authorization", "").partition(" ")
        digest = _PREFIX + hashlib.sha256(secret.strip().encode(errors="replace")).hexdigest()
        known = [token for token in self._tokens if hmac.compare_digest(token.hash.encode(), digest.encode())]
        if scheme.lower() != "bearer" or not known or (known[0].expires or datetime.max.replace(tzinfo=UTC)) <= _now():
            raise Unauthenticated("no token, or one that is unknown or expired: send `Authorization: Bearer TOKEN`")
        if missing := sorted(NEEDED - set(known[0].scopes)):
            raise Forbidden(f"the token {known[0].name!r} lacks {', '.join(missing)}: create one with these scopes")
        return known[0].name

    def _check_local(self, headers: Mapping[str, str]) -> None:
        name = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
        if "Origin" in headers or not (is_loopback(name) or name == self._host):
            raise Forbidden("without tokens, the service answers programs of this machine only, and no web pages")

    def _reload(self, file: Path) -> None:
        """Read the token file if it has changed. A file that became unusable lets no caller in."""
        first = self._stamp is None
        try:
            found = os.stat(file)
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._tokens = _TokenFile.model_validate_json(file.read_bytes()).tokens
                self._stamp = stamp
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a file of `ludus token create`"
            self._stamp, self._tokens = (0, 0), ()  # it is read again when it is usable
            if first:
                raise AuthoringError(f"cannot use the token file {file}: {reason}") from None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is loopback, which no other machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _now() -> datetime:
    return datetime.now(UTC)
