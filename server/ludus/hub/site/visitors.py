"""Who looks at a page: a cookie names the browser, and on a hub with tokens a person signs in with one.

The cookie is a random name of the browser. It is not readable by scripts and is sent to this site only. Forms carry a
second value that is derived from the cookie with a key of this process, so that no other site can send them. Tokens
stay in the memory of the hub.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.tokens import LOCAL, Authenticator
from ludus.protocol.errors import Forbidden, Unauthenticated

COOKIE: Final = "ludus_visitor"
"""The name of the cookie."""

SIGNED_IN_SECONDS: Final = 12 * 3600.0
"""How long a sign-in lasts without a request."""

MOST_SIGNED_IN: Final = 10_000
"""The most sign-ins; the one that was used least recently ends first."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Visitor:
    """One browser.

    Attributes:
        key: names the browser in the memory of the hub; it is derived from the cookie.
        form_key: the value that forms of this browser must carry.
        cookie: the value of the cookie, if it has to be set; None if the browser sent it.
        owner: the principal's name; None for a person who has not signed in on a hub with tokens.
        token: the token with which the person has signed in; None on an open hub.
    """

    key: str
    form_key: str
    cookie: str | None
    owner: str | None
    token: str | None

    def require_owner(self) -> str:
        """Return the principal's name.

        Raises:
            Unauthenticated: the person has not signed in.
        """
        if self.owner is None:
            raise Unauthenticated("sign in first: this page is for people with a token of this hub")
        return self.owner


@dataclass
class _SignIn:
    token: str
    owner: str
    used: float


class Visitors:
    """Knows the browsers that have signed in.

    Args:
        authenticator: checks tokens.
        clock: returns seconds that only increase.
    """

    def __init__(self, authenticator: Authenticator, clock: Callable[[], float] = time.monotonic) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._signed_in: OrderedDict[str, _SignIn] = OrderedDict()

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor of a request; a browser without a valid cookie gets a new one."""
        sent = request.cookies.get(COOKIE, "")
        is_known = _NAME.fullmatch(sent) is not None
        name = sent if is_known else secrets.token_urlsafe(32)
        key = self._derive("key", name)
        found = self._find(key)
        owner = LOCAL if self._authenticator.is_open else found.owner if found is not None else None
        token = found.token if found is not None else None
        return Visitor(key, self._derive("form", name), None if is_known else name, owner, token)

    def check_form(self, request: Request, form_key: str) -> Visitor:
        """Return the visitor who has sent a form.

        Raises:
            Forbidden: the form is not one that this hub made for this browser.
        """
        visitor = self.visitor(request)
        if visitor.cookie is not None or not hmac.compare_digest(form_key.encode(), visitor.form_key.encode()):
            raise Forbidden("this form is out of date, or cookies are off: open its page again and repeat the entry")
        return visitor

    def sign_in(self, request: Request, visitor: Visitor, token: str) -> None:
        """Keep the token of a visitor.

        Raises:
            Unauthenticated: the token is not valid.
        """
        owner = self._owner_of(token)
        self._signed_in[visitor.key] = _SignIn(token, owner, self._clock())
        while len(self._signed_in) > MOST_SIGNED_IN:
            self._signed_in.popitem(last=False)

    def sign_out(self, visitor: Visitor) -> None:
        """Forget the token of a visitor."""
        self._signed_in.pop(visitor.key, None)

    @property
    def needs_sign_in(self) -> bool:
        """Whether the hub has tokens."""
        return not self._authenticator.is_open

    def _find(self, key: str) -> _SignIn | None:
        """Return the sign-in of a browser, if it lasts and its token is still valid."""
        found = self._signed_in.get(key)
        if found is None:
            return None
        now = self._clock()
        try:
            if now - found.used > SIGNED_IN_SECONDS or self._owner_of(found.token) != found.owner:
                raise Unauthenticated("the sign-in has ended")
        except Unauthenticated:
            del self._signed_in[key]
            return None
        found.used = now
        self._signed_in.move_to_end(key)
        return found

    def _owner_of(self, token: str) -> str:
        header = (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))
        return self._authenticator.principal(Request({"type": "http", "headers": [header]})).name

    def _derive(self, purpose: str, name: str) -> str:
        return hmac.new(self._secret, f"{purpose}:{name}".encode(), hashlib.sha256).hexdigest()


def set_cookie(request: Request, response: Response, visitor: Visitor) -> Response:
    """Return the response, with the cookie of a new visitor."""
    if visitor.cookie is not None:
        response.set_cookie(
            COOKIE, visitor.cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
        )
    return response
