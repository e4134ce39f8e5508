"""Signing in through an OpenID provider: to the provider and back, choosing a name, linking and unlinking.

Both ways lead over a page of the hub that goes on by itself. A form may not redirect to another site, because of the
content security policy; and a browser that comes from another site sends the cookie of its session only with the next
page.
"""

from __future__ import annotations

from typing import Any, Final, Never

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.people.access_tokens import digest_of
from ludus.hub.people.accounts import require_account
from ludus.hub.people.openid.pending import LASTS, Journey
from ludus.hub.people.openid.sign_in import STRAY, Arrival, Begun, OpenIdSignIn, proposed_name
from ludus.hub.site.site import Site, local_path, see, sentence
from ludus.hub.site.visitors import Visitor
from ludus.protocol.errors import (
    CapacityError,
    Conflict,
    Forbidden,
    LudusError,
    NotFound,
    Unauthenticated,
)
from ludus.registry.types.errors import NameRefused

SIGN_IN_COOKIE: Final = "ludus_sign_in"
"""The name of the cookie of a browser that is on its way to the provider or waits for a name."""

CALLBACK: Final = "/login/openid/callback"
"""Where the provider sends browsers; the operator registers it at the provider."""


class OpenIdPages:
    """The pages of signing in through an OpenID provider, and their forms."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._people = site.hub.people

    # ── to the provider and back ───────────────────────────────────────────────────────────────────────────────────

    async def sign_in(self, request: Request) -> Response:
        """Send a browser to the provider to sign in."""
        openid = self._provider()
        _, fields = await self._site.form(request)
        following = local_path(str(fields.get("next", ""))[:500])
        try:
            address = self._site.hub.authenticator.address(request)
            await run_in_threadpool(self._people.rates.hit, "login_address", address)
            begun = await openid.begin("sign in", self._redirect_uri(request), following=following)
        except LudusError as error:
            return self._problem(request, error)
        return self._leave(request, openid, begun)

    async def link(self, request: Request) -> Response:
        """Send the browser of a person who has signed in to the provider, to link an identity."""
        openid = self._provider()
        visitor, fields = await self._form(request)
        try:
            await run_in_threadpool(self._prove, request, visitor, fields)
            begun = await self._begin(request, openid, visitor, "link")
        except LudusError as error:
            return self._problem(request, error, "/account")
        return self._leave(request, openid, begun)

    async def confirm(self, request: Request) -> Response:
        """Send the browser of a person who has signed in to the provider, to sign in once more."""
        openid = self._provider()
        visitor, _ = await self._form(request)
        try:
            address = self._site.hub.authenticator.address(request)
            await run_in_threadpool(self._people.rates.login, visitor.require_owner(), address)
            begun = await self._begin(request, openid, visitor, "confirm")
        except LudusError as error:
            return self._problem(request, error, "/account")
        return self._leave(request, openid, begun)

    async def callback(self, request: Request) -> Response:
        """Take a browser back from the provider."""
        openid = self._provider()
        query = {name: value[:8192] for name, value in request.query_params.items()}
        cookie = request.cookies.get(SIGN_IN_COOKIE, "")
        try:
            await run_in_threadpool(self._site.visitors.visitor, request)  # counts the request
            arrival = await openid.finish(query, cookie, self._site.hub.authenticator.address(request))
        except LudusError as error:
            return self._without_cookie(self._problem(request, error))
        return await run_in_threadpool(self._arrive, request, arrival)

    def _arrive(self, request: Request, arrival: Arrival) -> Response:
        following = "/register/openid" if arrival.kind == "named" else arrival.following
        response = self._onward(request, "You are back", following, "Go on")
        if arrival.kind == "named":
            return self._with_cookie(request, response, arrival.cookie)
        if arrival.kind == "signed in":
            visitor = self._site.visitors.shown(request)
            signed_in = self._site.visitors.sign_in(request, visitor, arrival.account)
            self._site.visitors.set_cookie(request, response, signed_in)
        return self._without_cookie(response)

    # ── registering ────────────────────────────────────────────────────────────────────────────────────────────────

    def naming(self, request: Request) -> Response:
        """Return the page to choose the name of a new account."""
        openid = self._provider()
        journey = openid.waiting(request.cookies.get(SIGN_IN_COOKIE, ""))
        if journey is None:
            return self._problem(request, Unauthenticated(STRAY))
        visitor = self._site.visitors.visitor(request)
        return self._naming(request, visitor, journey, proposed_name(journey.username), "", 200)

    async def register(self, request: Request) -> Response:
        """Create the account of an identity that waits for a name, and sign in."""
        openid = self._provider()
        visitor, fields = await self._site.form(request)
        cookie, address = request.cookies.get(SIGN_IN_COOKIE, ""), self._site.hub.authenticator.address(request)
        name, invitation = (str(fields.get(key, "")).strip()[:100] for key in ("name", "invitation"))
        journey = await run_in_threadpool(openid.waiting, cookie)
        if journey is None:
            return self._problem(request, Unauthenticated(STRAY))
        try:
            await run_in_threadpool(self._people.rates.hit, "registration", address)
            person = await run_in_threadpool(openid.register, cookie, name, invitation, address)
        except (NameRefused, Forbidden, Conflict, CapacityError, Unauthenticated) as error:
            text, status = sentence(error.message), error.http_status
            return await run_in_threadpool(self._naming, request, visitor, journey, name, text, status)
        signed_in = await run_in_threadpool(self._site.visitors.sign_in, request, visitor, person.id)
        following = journey.following if journey.following != "/" else "/account"
        return self._without_cookie(self._site.visitors.set_cookie(request, see(following), signed_in))

    def _naming(
        self, request: Request, visitor: Visitor, journey: Journey, name: str, problem: str, status: int
    ) -> Response:
        openid = self._provider()
        return self._site.page(
            request, "register_openid.html", visitor=visitor, status=status, name=name, problem=problem,
            provider=openid.settings.name, registration=openid.settings.registration,
            who=journey.email or journey.username or journey.subject,
        )  # fmt: skip

    # ── the account ────────────────────────────────────────────────────────────────────────────────────────────────

    async def unlink(self, request: Request) -> Response:
        """Unlink an identity of the account."""
        visitor, fields = await self._form(request)
        try:
            await run_in_threadpool(self._unlink, request, visitor, fields)
        except (Unauthenticated, Conflict, NotFound, CapacityError) as error:
            return self._problem(request, error, "/account")
        return see("/account")

    def _unlink(self, request: Request, visitor: Visitor, fields: Any) -> None:
        account = require_account(visitor.viewer.account)
        identity, address = int(request.path_params["identity"]), self._site.hub.authenticator.address(request)
        self._people.identities.check_unlink(account, identity)  # before the proof, which may be used once
        self._prove(request, visitor, fields)
        self._people.identities.unlink(account, identity, address=address)
        self._people.tokens.forget()

    def _prove(self, request: Request, visitor: Visitor, fields: Any) -> None:
        name, password = visitor.require_owner(), str(fields.get("password", ""))
        self._people.rates.login(name, self._site.hub.authenticator.address(request))
        self._people.accounts.prove(name, password, digest_of(visitor.name))

    async def _form(self, request: Request) -> tuple[Visitor, Any]:
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        require_account(visitor.viewer.account)
        return visitor, fields

    async def _begin(self, request: Request, openid: OpenIdSignIn, visitor: Visitor, purpose: Any) -> Begun:
        return await openid.begin(
            purpose, self._redirect_uri(request), account=require_account(visitor.viewer.account),
            name=visitor.require_owner(), session=digest_of(visitor.name),
        )  # fmt: skip

    # ── answers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _provider(self) -> OpenIdSignIn:
        """Return the provider.

        Raises:
            NotFound: the hub has none.
        """
        return self._people.openid or _absent()

    def _redirect_uri(self, request: Request) -> str:
        return self._site.hub.base_url(request) + CALLBACK

    def _leave(self, request: Request, openid: OpenIdSignIn, begun: Begun) -> Response:
        name = openid.settings.name
        response = self._onward(request, f"To {name}", begun.address, f"Go on to {name}")
        return self._with_cookie(request, response, begun.cookie)

    def _onward(self, request: Request, title: str, address: str, link: str) -> Response:
        """Return a page that goes on to an address by itself."""
        return self._site.page(request, "onward.html", title=title, address=address, link=link)

    def _problem(self, request: Request, error: LudusError, back: str = "/login") -> Response:
        """Return a page with a problem. It sets no cookie of a session: the browser may not have sent its own."""
        return self._site.page(
            request, "openid_problem.html", status=error.http_status, problem=sentence(error.message), back=back
        )

    def _with_cookie(self, request: Request, response: Response, cookie: str) -> Response:
        secure = self._site.hub.base_url(request).startswith("https://")
        response.set_cookie(
            SIGN_IN_COOKIE, cookie, max_age=int(LASTS.total_seconds()), httponly=True, samesite="lax", secure=secure,
            path="/",
        )  # fmt: skip
        return response

    def _without_cookie(self, response: Response) -> Response:
        response.delete_cookie(SIGN_IN_COOKIE, path="/", httponly=True, samesite="lax")
        return response


def _absent() -> Never:
    raise NotFound("there is nothing at this address")
