"""Who looks at a page: a cookie names the browser, and a person signs in with a name and a password, or with a token.

The cookie is a random name of the browser. It is not readable by scripts and is sent to this site only. Forms carry a
second value that is derived from the cookie, so that no other site can send them. Each sign-in and
sign-out sets a new cookie: one that an attacker has put into the browser before names no session.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.access.viewers import STRANGER, Viewer
from ludus.hub.parts.hub import VISITOR_COOKIE, Hub
from ludus.protocol.errors import Forbidden, LudusError, Unauthenticated

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_VISITOR: Final = "ludus.visitor"
"""The key of the ASGI scope under which the visitor of a request is remembered."""


@dataclass(frozen=True)
class Visitor:
    """One browser.

    Attributes:
        name: the value of its cookie.
        is_new: whether the browser does not have that cookie yet.
        viewer: the person who has signed in, or a stranger.
    """

    name: str
    is_new: bool
    viewer: Viewer

    @property
    def key(self) -> str:
        """The name of the browser in the memory of the hub, which reveals nothing of the cookie."""
        return _derive("key", self.name)

    @property
    def form_key(self) -> str:
        """The value that forms of this browser must carry."""
        return _derive("form", self.name)

    @property
    def owner(self) -> str | None:
        """The name of the person; None for a person who has not signed in."""
        return self.viewer.name or None

    def require_owner(self) -> str:
        """Return the name of the person.

        Raises:
            Unauthenticated: the person has not signed in.
        """
        if self.owner is None:
            raise Unauthenticated("sign in first: this page is for people with an account on this hub")
        return self.owner


class Visitors:
    """Knows the browsers that have signed in. All methods block.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor of a request; a browser without a valid cookie gets a new one.

        Raises:
            LudusError: the request has a token, and it is not valid; or there are too many requests.
        """
        known: Visitor | None = request.scope.get(_VISITOR)
        if known is None:
            sent = request.cookies.get(VISITOR_COOKIE, "")
            is_known = _NAME.fullmatch(sent) is not None
            viewer = self._hub.viewer(request, of_page=True)
            known = Visitor(sent if is_known else _new_name(), not is_known, viewer)
            request.scope[_VISITOR] = known
        return known

    def shown(self, request: Request) -> Visitor:
        """Return the visitor of a request for what all pages show; a stranger where that cannot be found out."""
        try:
            return self.visitor(request)
        except LudusError:
            return Visitor(_new_name(), True, STRANGER)

    def check_form(self, request: Request, form_key: str) -> Visitor:
        """Return the visitor who has sent a form.

        Raises:
            Forbidden: the form is not one that this hub made for this browser.
        """
        visitor = self.visitor(request)
        wanted = visitor.form_key.encode()
        if visitor.is_new or not hmac.compare_digest(form_key.encode("utf-8", "replace"), wanted):
            raise Forbidden("this form is out of date, or cookies are off: open its page again and repeat the entry")
        return visitor

    def sign_in(self, request: Request, visitor: Visitor, account: int) -> Visitor:
        """Begin a session of an account, and return the visitor with a new cookie."""
        self.sign_out(visitor)
        name = _new_name()
        self._hub.people.sessions.begin(account, name, request.headers.get("user-agent", ""))
        return self._renamed(name)

    def sign_in_with_token(self, visitor: Visitor, token: str) -> Visitor:
        """Begin a session with a token of the operator's token file, and return the visitor with a new cookie.

        Raises:
            Unauthenticated: the token is not valid.
        """
        name = _new_name()
        self._hub.people.sessions.begin_with_token(token, name)
        self.sign_out(visitor)
        return self._renamed(name)

    def sign_out(self, visitor: Visitor) -> Visitor:
        """End the session of a visitor, and return the visitor with a new cookie."""
        self._hub.people.sessions.end(visitor.name)
        return Visitor(_new_name(), True, STRANGER)

    def _renamed(self, name: str) -> Visitor:
        return Visitor(name, True, self._hub.people.sessions.viewer(name) or STRANGER)

    @property
    def needs_sign_in(self) -> bool:
        """Whether the hub has accounts or tokens."""
        return not self._hub.authenticator.is_open

    def set_cookie(self, request: Request, response: Response, visitor: Visitor) -> Response:
        """Return the response, with the cookie of a new visitor."""
        if visitor.is_new:
            secure = self._hub.base_url(request).startswith("https://")
            response.set_cookie(VISITOR_COOKIE, visitor.name, httponly=True, samesite="strict", secure=secure, path="/")
        return response


def _new_name() -> str:
    return secrets.token_urlsafe(32)


def _derive(purpose: str, name: str) -> str:
    return hmac.new(name.encode(), purpose.encode(), hashlib.sha256).hexdigest()
