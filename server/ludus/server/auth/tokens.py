"""Trainer tokens: the credential of the control plane.

A token is shown once, when it is created. The server keeps its SHA-256 hash, which is enough to recognize the token and
useless to a thief of the file. A slow password hash would add nothing: the token is 256 random bits, not a password
that a person chose.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ludus.protocol.errors import Unauthenticated
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.principal import CREDENTIAL_BYTES, Principal

__all__ = ["TOKEN_FILE_VARIABLE", "UnknownToken"]


TOKEN_PREFIX: Final = "ludus_"
"""The prefix of every token."""

TOKEN_FILE_VARIABLE: Final = "LUDUS_TOKEN_FILE"
"""The environment variable that names the token file."""

TOKENS_VARIABLE: Final = "LUDUS_TOKENS"
"""The environment variable that holds the text of a token file."""

RELOAD_SECONDS: Final = 1.0
"""The least time between two checks of the token file for changes."""

_logger = logging.getLogger("ludus.auth")


class UnknownToken(Unauthenticated):
    """A token that the server does not know: it was revoked, or it is a guess."""


class TokenFileError(ValueError):
    """A token file cannot be used; the message says where and why, and never repeats a secret."""


def _known_scope(scope: str) -> str:
    if scope in set(Scope) or (scope.startswith(SPLIT_SCOPE_PREFIX) and len(scope) > len(SPLIT_SCOPE_PREFIX)):
        return scope
    near = difflib.get_close_matches(scope, list(Scope), n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(Scope)} and {SPLIT_SCOPE_PREFIX}<name>"
    raise ValueError(f"no scope {scope!r}; {hint}")


ScopeName = Annotated[str, AfterValidator(_known_scope)]
"""A member of `Scope`, or `splits:<name>`."""


class TokenRecord(BaseModel):
    """What the server stores about one token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\w.@ -]+$")]
    """The owner's name; it appears in logs and as the owner of episodes."""
    hash: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    scopes: Annotated[tuple[ScopeName, ...], Field(min_length=1)]
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None
    """When the token expires; null for never."""
    limits: TokenLimits | None = None
    """What its holder may use; null, or a limit that is null, is the server's own limit."""

    @property
    def digest(self) -> bytes:
        """The SHA-256 digest of the token."""
        return bytes.fromhex(self.hash.removeprefix("sha256:"))


class TokenFile(BaseModel):
    """The token file: JSON, version 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    tokens: tuple[TokenRecord, ...] = ()


def new_token(
    name: str, scopes: Sequence[str], expires: datetime | None = None, limits: TokenLimits | None = None
) -> tuple[str, TokenRecord]:
    """Return a new token and the record by which a server recognizes it.

    Raises:
        TokenFileError: the name or a scope is not valid.
    """
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    fields = {
        "name": name,
        "hash": f"sha256:{hashlib.sha256(token.encode()).hexdigest()}",
        "scopes": tuple(scopes),
        "created": datetime.now(UTC).replace(microsecond=0),
        "expires": expires,
        "limits": limits,
    }
    try:
        return token, TokenRecord.model_validate(fields)
    except ValidationError as error:
        raise TokenFileError(_explain("this token", error)) from None


def parse_token_file(text: str, where: str) -> TokenFile:
    """Parse a token file.

    Raises:
        TokenFileError: `text` is not a token file; the message names `where`.
    """
    try:
        file = TokenFile.model_validate_json(text)
    except ValidationError as error:
        raise TokenFileError(_explain(where, error)) from None
    for kind, values in (
        ("name", [record.name for record in file.tokens]),
        ("hash", [record.hash for record in file.tokens]),
    ):
        repeated = {value for value in values if values.count(value) > 1}
        if repeated:
            raise TokenFileError(f"{where}: two tokens have the {kind} {min(repeated)!r}")
    return file


def read_token_file(path: Path) -> TokenFile:
    """Read the token file at `path`.

    Raises:
        TokenFileError: the file cannot be read or is not a token file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TokenFileError(
            f"there is no token file {path}; make one with `ludus token create --file {path}`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"cannot read the token file {path}: {error}") from None
    return parse_token_file(text, str(path))


def write_token_file(path: Path, file: TokenFile) -> None:
    """Write `file` to `path` atomically, readable by its owner only: a server that reloads never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(file.model_dump(mode="json", exclude_none=True), stream, indent=2)
            stream.write("\n")
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


class TokenStore:
    """Recognizes tokens. Reloads its file when it changes; keeps the known tokens if the file becomes unreadable.

    Args:
        path: the token file; None if there is none.
        inline: the text of a token file, as `LUDUS_TOKENS` holds it.

    Raises:
        TokenFileError: a given source cannot be used.
    """

    def __init__(self, path: Path | None = None, inline: str | None = None) -> None:
        self._path = path
        self._inline = parse_token_file(inline, TOKENS_VARIABLE).tokens if inline is not None else ()
        self._known: dict[bytes, Principal] = {}
        """The principal of each token, by the token's digest."""
        self._by_credential: dict[bytes, Principal] = {}
        self._limits: dict[str, TokenLimits] = {}
        """The limits of the tokens that have some, by name."""
        self._stamp: tuple[int, int, int] | None = None
        self._next_look = 0.0
        if path is not None:
            self._stamp = _stamp(path)
            self._index(read_token_file(path).tokens)
        else:
            self._index(())

    @classmethod
    def from_environment(cls, path: Path | None, variables: Mapping[str, str]) -> TokenStore | None:
        """Return the store for `path`, `LUDUS_TOKEN_FILE` and `LUDUS_TOKENS`; None if none of them is set.

        Raises:
            TokenFileError: one of them is set and cannot be used.
        """
        named = variables.get(TOKEN_FILE_VARIABLE)
        source = path or (Path(named) if named else None)
        inline = variables.get(TOKENS_VARIABLE) or None
        return cls(source, inline) if source or inline else None

    def __len__(self) -> int:
        return len(self._known)

    def authenticate(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            Unauthenticated: the token is unknown (`UnknownToken`) or expired.
        """
        self._refresh()
        # A caller cannot choose a digest byte by byte, so the time of a failed look-up reveals nothing.
        principal = self._known.get(hashlib.sha256(token.encode("utf-8", "replace")).digest())
        if principal is None:
            raise UnknownToken("this token is not known to the server: check it, or have a new one made")
        if time.time() >= principal.expires_at:
            raise Unauthenticated(f"the token of {principal.name!r} has expired: have a new one made")
        return principal

    def still_may(self, credential: bytes, scope: str) -> bool:
        """Return whether the token with this `Principal.credential` is known, has not expired and has the scope."""
        self._refresh()
        principal = self._by_credential.get(credential)
        return principal is not None and time.time() < principal.expires_at and principal.may(scope)

    def limits_of(self, name: str) -> TokenLimits | None:
        """Return the limits of the token with a name; None if it has none, or if there is no such token."""
        self._refresh()
        return self._limits.get(name)

    def names(self) -> frozenset[str]:
        """Return the names of all tokens."""
        self._refresh()
        return frozenset(principal.name for principal in self._known.values())

    @property
    def limits_bytes(self) -> bool:
        """Whether a token has a limit on stored bytes."""
        return any(limits.stored_bytes is not None for limits in self._limits.values())

    def leave_out(self, secrets: Mapping[str, str]) -> Mapping[str, str]:
        """Return the secrets without those that are a known token, bare or in the form of an `Authorization` header."""
        return {name: text for name, text in secrets.items() if not self._is_token(text)}

    def _is_token(self, text: str) -> bool:
        text = text.strip()
        bare = text[7:].strip() if text[:7].lower() == "bearer " else text
        return hashlib.sha256(bare.encode("utf-8", "replace")).digest() in self._known

    def _refresh(self) -> None:
        """Read the file again if it has changed, at most once every `RELOAD_SECONDS`."""
        path = self._path
        if path is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + RELOAD_SECONDS
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._index(read_token_file(path).tokens)
        except TokenFileError as error:
            _logger.error("the tokens known so far stay in force: %s", error)
        else:
            _logger.info("token file read again: %d tokens", len(self._known))

    def _index(self, records: Sequence[TokenRecord]) -> None:
        self._known = {}
        for record in (*self._inline, *records):
            expires_at = record.expires.timestamp() if record.expires else float("inf")
            credential = record.digest[:CREDENTIAL_BYTES]
            principal = Principal(record.name, frozenset(record.scopes), credential, expires_at, record.limits)
            self._known[record.digest] = principal
        self._by_credential = {principal.credential: principal for principal in self._known.values()}
        self._limits = {token.name: token.limits for token in self._known.values() if token.limits is not None}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _explain(where: str, error: ValidationError) -> str:
    # pydantic's own text quotes the input, which may be a token pasted in place of its hash.
    problems: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
    problem = problems[0]
    field_path = ".".join(str(part) for part in problem["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {field_path + ': ' if field_path else ''}{problem['msg']}{more}"
