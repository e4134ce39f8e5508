"""Signing in with a token of the hub."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.site.site import Site, local_path, see, short_text
from ludus.hub.site.visitors import set_cookie
from ludus.protocol.errors import Unauthenticated


class SignInPages:
    """The page to sign in, and its forms."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def form(self, request: Request) -> Response:
        """Return the page."""
        visitor = self._site.visitors.visitor(request)
        following = local_path(short_text(request, "next", 500))
        return self._site.page(request, "login.html", visitor=visitor, next=following, problem="")

    async def sign_in(self, request: Request) -> Response:
        """Check a token and keep it; show the page again if it is not valid."""
        visitor, fields = await self._site.form(request)
        following = local_path(str(fields.get("next", "")))
        try:
            await run_in_threadpool(self._site.visitors.sign_in, request, visitor, str(fields.get("token", "")).strip())
        except Unauthenticated:
            return self._site.page(
                request, "login.html", visitor=visitor, status=401, next=following,
                problem="The hub does not know this token, or it has expired or was revoked.",
            )  # fmt: skip
        return set_cookie(request, see(following), visitor)

    async def sign_out(self, request: Request) -> Response:
        """Forget the token."""
        visitor, _ = await self._site.form(request)
        self._site.visitors.sign_out(visitor)
        return see("/login")
