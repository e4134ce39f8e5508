"""Checks of ID tokens, as OpenID Connect Core 3.1.3.7 lists them.

PyJWT checks the signature, with the algorithm that the key and the list below allow, and `iss`, `aud`, `exp`, `iat`
and `nbf`. The rest is here. HMAC and `none` are not in the list, so that a public key is never taken for a secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm

from ludus.protocol.errors import Unauthenticated

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""The algorithms with which a provider may sign."""

SKEW_SECONDS: Final = 60
"""How far the clocks of the hub and the provider may differ."""

MOST_CHARACTERS: Final = 64 * 1024
"""The longest token."""

MOST_GROUPS: Final = 5_000
"""The most groups of a person."""

_REQUIRED: Final = ["iss", "sub", "aud", "exp", "iat"]
_KEY_TYPES: Final = ("RSA", "EC", "OKP")


class UnknownKey(Unauthenticated):
    """A token is signed with a key that is not among the provider's."""


@dataclass(frozen=True)
class Expected:
    """What a token must have.

    Attributes:
        issuer: the provider.
        client_id: the hub's name at the provider.
        nonce: the value that was sent with the browser.
        begun: when the browser was sent, in seconds since 1970.
        fresh: whether the person must have signed in at the provider since then.
    """

    issuer: str
    client_id: str
    nonce: str
    begun: float
    fresh: bool


@dataclass(frozen=True)
class Identity:
    """A person, as the provider knows them.

    Attributes:
        issuer, subject: who it is; nothing else identifies anyone.
        email: a verified e-mail address; empty if there is none.
        username: what the person is called at the provider; empty if that is not known.
        groups: the person's groups.
    """

    issuer: str
    subject: str
    email: str = ""
    username: str = ""
    groups: tuple[str, ...] = ()


def read_id_token(
    token: str, keys: Sequence[Mapping[str, Any]], expected: Expected, algorithms: Collection[str], groups_claim: str
) -> Identity:
    """Check an ID token, and return whose it is.

    Args:
        token: the token.
        keys: the provider's keys, as JSON Web Keys.
        expected: what it must have.
        algorithms: those of `ALGORITHMS` that the provider uses.
        groups_claim: the claim with the groups.

    Raises:
        UnknownKey: it is signed with another key.
        Unauthenticated: it fails a check; the message says which one.
    """
    if len(token) > MOST_CHARACTERS:
        raise _refused("it is too long")
    try:
        key = _key_of(jwt.get_unverified_header(token), keys, algorithms)
        claims = jwt.decode(
            token, key, algorithms=[key.algorithm_name], audience=expected.client_id, issuer=expected.issuer,
            leeway=SKEW_SECONDS,
            options={"require": _REQUIRED, "enforce_minimum_key_length": True},
        )  # fmt: skip
        _check(claims, expected)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _refused(str(error).partition("\n")[0][:120]) from None
    return _identity(claims, groups_claim)


def _key_of(header: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], algorithms: Collection[str]) -> jwt.PyJWK:
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS or algorithm not in algorithms:
        raise _refused(f"its algorithm {str(algorithm)[:20]!r} is not one that the provider may use")
    possible = []
    for key in keys:
        of_name = name is None or key.get("kid") == name
        if of_name and key.get("kty") in _KEY_TYPES and key.get("use", "sig") == "sig":
            if key.get("alg", algorithm) != algorithm:
                continue
            try:
                possible.append(jwt.PyJWK(dict(key), algorithm))
            except (jwt.PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
                continue  # a key for another algorithm, or one that is broken
    if not possible:
        raise UnknownKey("the sign-in cannot be verified: it is signed with a key that is not the provider's")
    if len(possible) > 1:
        raise _refused("it does not say which of the provider's keys signed it")
    return possible[0]


def _check(claims: Mapping[str, Any], expected: Expected) -> None:
    audience, party = claims["aud"], claims.get("azp")
    if (party is not None or (isinstance(audience, list) and len(audience) > 1)) and party != expected.client_id:
        raise _refused("it was made for another client")
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), expected.nonce.encode()):
        raise _refused("it is of another sign-in")
    if float(claims["iat"]) < expected.begun - SKEW_SECONDS:
        raise _refused("it is older than this sign-in")
    if not isinstance(claims["sub"], str) or not 1 <= len(claims["sub"]) <= 255:
        raise _refused("it names no person")
    if expected.fresh:
        signed_in = claims.get("auth_time")
        if isinstance(signed_in, bool) or not isinstance(signed_in, int | float):
            raise Unauthenticated("the OpenID provider does not say when you signed in, so this confirms nothing")
        if signed_in < expected.begun - SKEW_SECONDS:
            raise Unauthenticated("the OpenID provider did not let you sign in again, so this confirms nothing")


def _identity(claims: Mapping[str, Any], groups_claim: str) -> Identity:
    email = claims.get("email")
    is_verified = claims.get("email_verified") is True and isinstance(email, str) and len(email) <= 254
    groups, username = claims.get(groups_claim), claims.get("preferred_username")
    listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    return Identity(
        issuer=claims["iss"], subject=claims["sub"], email=str(email) if is_verified else "",
        username=username[:200] if isinstance(username, str) else "",
        groups=tuple(one for one in listed[:MOST_GROUPS] if isinstance(one, str)),
    )  # fmt: skip


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the sign-in cannot be verified: the provider's ID token was refused ({why})")
