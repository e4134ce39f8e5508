"""Signing in with a name and a password or with a token, signing out, and registering."""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.api.accounts import register, require_passwords
from ludus.hub.site.site import Site, local_path, see, sentence, short_text
from ludus.hub.site.visitors import Visitor
from ludus.protocol.errors import CapacityError, Forbidden, InvalidParams, Unauthenticated
from ludus.registry.types.errors import NameRefused

LONGEST_NEXT: Final = 500
"""The most characters of the address to go to after the sign-in."""


class SignInPages:
    """The pages to sign in and to register, and their forms."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def form(self, request: Request) -> Response:
        """Return the page to sign in."""
        visitor = self._site.visitors.visitor(request)
        return self._page(request, visitor, local_path(short_text(request, "next", LONGEST_NEXT)), "", 200)

    async def sign_in(self, request: Request) -> Response:
        """Check a name and a password, or a token; show the page again if they are not valid."""
        visitor, fields = await self._site.form(request)
        following = local_path(str(fields.get("next", "")))
        try:
            signed_in = await run_in_threadpool(self._sign_in, request, visitor, fields)
        except (Unauthenticated, Forbidden, CapacityError) as error:
            return await run_in_threadpool(
                self._page, request, visitor, following, sentence(error.message), error.http_status
            )
        return self._site.visitors.set_cookie(request, see(following), signed_in)

    def _sign_in(self, request: Request, visitor: Visitor, fields: Any) -> Visitor:
        hub, token = self._site.hub, str(fields.get("token", "")).strip()
        if token:
            try:
                return self._site.visitors.sign_in_with_token(visitor, token)
            except Unauthenticated:
                raise Unauthenticated(
                    "the hub's token file does not know this token, or it has expired or was revoked"
                ) from None
        require_passwords(hub)
        name, address = str(fields.get("name", "")).strip(), hub.authenticator.address(request)
        hub.people.rates.login(name, address)
        person = hub.people.accounts.sign_in(name, str(fields.get("password", "")))
        hub.people.audit.note("signed in", "", actor=person.name, account=person.name, address=address)
        return self._site.visitors.sign_in(request, visitor, person.id)

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        visitor, _ = await self._site.form(request)
        signed_out = await run_in_threadpool(self._site.visitors.sign_out, visitor)
        return self._site.visitors.set_cookie(request, see("/login"), signed_out)

    def registration(self, request: Request) -> Response:
        """Return the page to register."""
        return self._registration(request, self._site.visitors.visitor(request), "", "", 200)

    async def register(self, request: Request) -> Response:
        """Create an account and sign in; show the page again if that is not possible."""
        visitor, fields = await self._site.form(request)
        name, password = str(fields.get("name", "")).strip(), str(fields.get("password", ""))
        hub = self._site.hub
        address = hub.authenticator.address(request)
        invitation = str(fields.get("invitation", "")).strip()[:100] or None
        try:
            if password != str(fields.get("again", "")):
                raise InvalidParams("the two passwords differ")
            person = await run_in_threadpool(register, hub, name, password, invitation, address)
        except (InvalidParams, NameRefused, Forbidden, CapacityError) as error:
            text, status = sentence(error.message), error.http_status
            return await run_in_threadpool(self._registration, request, visitor, name[:100], text, status)
        signed_in = await run_in_threadpool(self._site.visitors.sign_in, request, visitor, person.id)
        return self._site.visitors.set_cookie(request, see("/account"), signed_in)

    def _page(self, request: Request, visitor: Visitor, following: str, problem: str, status: int) -> Response:
        hub = self._site.hub
        return self._site.page(
            request, "login.html", visitor=visitor, status=status, next=following, problem=problem,
            has_tokens=hub.authenticator.has_operator_tokens, registration=hub.people.registration,
            passwords=hub.people.passwords, openid=hub.people.openid and hub.people.openid.settings,
        )  # fmt: skip

    def _registration(self, request: Request, visitor: Visitor, name: str, problem: str, status: int) -> Response:
        is_open = self._site.hub.authenticator.is_open
        return self._site.page(
            request, "register.html", visitor=visitor, status=status, name=name, problem=problem,
            registration="closed" if is_open else self._site.hub.people.registration,
            openid=self._site.hub.people.openid and self._site.hub.people.openid.settings,
        )  # fmt: skip
