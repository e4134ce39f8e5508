"""An OpenID provider: its documents, where to send a browser, and what the code is worth with which it comes back.

The discovery document and the keys are kept for a while. A token with an unknown key makes the hub read the keys again,
because providers rotate them, but not more often than every `PAUSE_SECONDS`.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from ludus.hub.people.openid.fetching import Fetcher, ProviderFailed
from ludus.hub.people.openid.id_tokens import ALGORITHMS, Expected, Identity, UnknownKey, read_id_token
from ludus.hub.settings.openid import OpenIdSettings
from ludus.protocol.errors import Unauthenticated

FRESH_SECONDS: Final = 600.0
"""How long the discovery document and the keys are not read again."""

PAUSE_SECONDS: Final = 10.0
"""How long the keys are not read again because of an unknown key."""

MOST_KEYS: Final = 100
"""The most keys of a provider."""


@dataclass(frozen=True)
class Documents:
    """What the hub uses of a discovery document."""

    authorization: str
    token: str
    keys: str
    algorithms: frozenset[str]
    secret_in_form: bool
    """Whether the client's secret goes into the form, and not into a header."""
    names_issuer: bool
    """Whether the provider names itself when it sends a browser back (RFC 9207)."""


class Provider:
    """An OpenID provider.

    Args:
        settings: the operator's settings.
        clock: returns seconds that only increase.
    """

    def __init__(self, settings: OpenIdSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._fetcher = Fetcher(settings.issuer)
        self._documents: tuple[Documents, float] | None = None
        self._keys: tuple[list[dict[str, Any]], float] | None = None

    async def address(self, redirect_uri: str, state: str, nonce: str, verifier: str, *, fresh: bool) -> str:
        """Return where a browser signs in.

        Args:
            redirect_uri: where it comes back.
            state: what it brings back.
            nonce: what the ID token must have.
            verifier: the secret of PKCE.
            fresh: whether the person must sign in, also if they have before.

        Raises:
            ProviderFailed: the provider cannot be used.
        """
        documents = await self._read_documents()
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code", "client_id": self._settings.client_id, "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes), "state": state, "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="), "code_challenge_method": "S256",
        }  # fmt: skip
        if fresh:
            query |= {"prompt": "login", "max_age": "0"}
        parts = urlsplit(documents.authorization)
        return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *query.items()])))

    async def check_origin(self, issuer: str | None) -> None:
        """Check who has sent a browser back, by its parameter `iss`; see RFC 9207.

        Raises:
            Unauthenticated: it is another provider, or this one has not named itself and says that it does.
            ProviderFailed: the provider cannot be used.
        """
        if issuer is None and not (await self._read_documents()).names_issuer:
            return
        if issuer != self._settings.issuer:
            raise Unauthenticated("the sign-in comes from another OpenID provider than the one that it began at")

    async def redeem(self, code: str, redirect_uri: str, verifier: str, expected: Expected) -> Identity:
        """Return whom a code stands for.

        Raises:
            Unauthenticated: the provider does not take the code, or its ID token fails a check.
            ProviderFailed: the provider cannot be used.
        """
        documents = await self._read_documents()
        settings, headers = self._settings, {}
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier,
        }  # fmt: skip
        secret = settings.client_secret.get_secret_value() if settings.client_secret is not None else None
        if secret is not None and not documents.secret_in_form:
            pair = f"{quote(settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": settings.client_id} | ({"client_secret": secret} if secret is not None else {})
        status, answer = await self._fetcher.post(documents.token, form, headers)
        if status != 200:
            raise Unauthenticated(f"the OpenID provider refused the sign-in ({error_code(answer.get('error'))})")
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Unauthenticated("the OpenID provider sent no ID token")
        return await self._read_token(token, expected, documents)

    async def _read_token(self, token: str, expected: Expected, documents: Documents) -> Identity:
        keys = await self._read_keys(documents, FRESH_SECONDS)
        claim = self._settings.groups_claim
        try:
            return read_id_token(token, keys, expected, documents.algorithms, claim)
        except UnknownKey:
            keys = await self._read_keys(documents, PAUSE_SECONDS)
            return read_id_token(token, keys, expected, documents.algorithms, claim)

    async def _read_documents(self) -> Documents:
        if self._documents is not None and self._clock() - self._documents[1] < FRESH_SECONDS:
            return self._documents[0]
        settings, check = self._settings, self._fetcher.check_address
        found = await self._fetcher.get(settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != settings.issuer:
            raise ProviderFailed(
                f"the OpenID provider calls itself {str(found.get('issuer'))[:100]!r}; its operator's settings must "
                "name exactly that as the issuer"
            )
        if "S256" not in _names(found, "code_challenge_methods_supported", ["S256"]):
            raise ProviderFailed("the OpenID provider does not take PKCE with S256")
        methods = _names(found, "token_endpoint_auth_methods_supported", ["client_secret_basic"])
        in_form = "client_secret_basic" not in methods
        if in_form and "client_secret_post" not in methods and not settings.public_client:
            raise ProviderFailed("the OpenID provider takes a client secret neither in a header nor in a form")
        algorithms = frozenset(ALGORITHMS) & _names(found, "id_token_signing_alg_values_supported", ["RS256"])
        documents = Documents(
            authorization=check("authorization_endpoint", found.get("authorization_endpoint")),
            token=check("token_endpoint", found.get("token_endpoint")), keys=check("jwks_uri", found.get("jwks_uri")),
            algorithms=algorithms, secret_in_form=in_form,
            names_issuer=found.get("authorization_response_iss_parameter_supported") is True,
        )  # fmt: skip
        self._documents = documents, self._clock()
        return documents

    async def _read_keys(self, documents: Documents, seconds: float) -> list[dict[str, Any]]:
        """Return the provider's keys, as they were at the most some seconds ago."""
        if self._keys is not None and self._clock() - self._keys[1] < seconds:
            return self._keys[0]
        found = (await self._fetcher.get(documents.keys)).get("keys")
        if not isinstance(found, list) or len(found) > MOST_KEYS:
            raise ProviderFailed(f"the OpenID provider's keys are no list of at most {MOST_KEYS}")
        keys = [one for one in found if isinstance(one, dict)]
        self._keys = keys, self._clock()
        return keys


def error_code(value: object) -> str:
    """Return an error code of a provider, if it has the form of one; its other words are not shown."""
    text = value if isinstance(value, str) else ""
    return text if 0 < len(text) <= 60 and text.isascii() and text.replace("_", "").isalnum() else "without a reason"


def _names(document: dict[str, Any], field: str, default: list[str]) -> frozenset[str]:
    found = document.get(field, default)
    return frozenset(one for one in found if isinstance(one, str)) if isinstance(found, list) else frozenset()
