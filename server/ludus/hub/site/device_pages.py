"""The page on which a person confirms the sign-in of a device: `ludus account login --web`.

The code is entered by hand and sent in a form: it is in no address, and a link alone confirms nothing.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.people.accounts import require_account
from ludus.hub.people.device_sign_ins import LASTS, Asked, normal_code
from ludus.hub.site.account_pages import MEANINGS
from ludus.hub.site.site import Site, sentence
from ludus.hub.site.visitors import Visitor
from ludus.protocol.errors import CapacityError, Forbidden, NotFound


class DevicePages:
    """The page, and its forms."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._people = site.hub.people

    def form(self, request: Request) -> Response:
        """Return the page to enter a code."""
        visitor = self._site.visitors.visitor(request)
        visitor.require_owner()
        require_account(visitor.viewer.account)
        return self._page(request, visitor)

    async def enter(self, request: Request) -> Response:
        """Take a code, and show what its device asks for; or take the decision."""
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        account = require_account(visitor.viewer.account)
        code, decision = normal_code(str(fields.get("code", ""))), str(fields.get("decision", ""))
        try:
            if decision in ("confirm", "refuse"):
                confirmed = decision == "confirm"
                asked = await run_in_threadpool(self._decide, request, visitor, account, code, confirmed)
                return await run_in_threadpool(self._page, request, visitor, done=decision, asked=asked)
            asked = await run_in_threadpool(self._enter, visitor, account, code)
        except (NotFound, Forbidden, CapacityError) as error:
            text, status = sentence(error.message), error.http_status
            return await run_in_threadpool(self._page, request, visitor, problem=text, status=status)
        return await run_in_threadpool(self._page, request, visitor, asked=asked)

    def _enter(self, visitor: Visitor, account: int, code: str) -> Asked:
        self._people.rates.hit("device_code", visitor.require_owner())
        return self._people.devices.enter(code, account)

    def _decide(self, request: Request, visitor: Visitor, account: int, code: str, confirmed: bool) -> Asked:
        address = self._site.hub.authenticator.address(request)
        return self._people.devices.decide(code, visitor.viewer, account, confirmed=confirmed, address=address)

    def _page(
        self, request: Request, visitor: Visitor, *, asked: Asked | None = None, done: str = "", problem: str = "",
        status: int = 200,
    ) -> Response:  # fmt: skip
        address = self._site.hub.authenticator.address(request)
        return self._site.page(
            request, "device.html", visitor=visitor, status=status, asked=asked, done=done, problem=problem,
            minutes=int(LASTS.total_seconds() // 60), here=address,
            scopes=[(str(scope), MEANINGS[scope]) for scope in asked.wanted.scopes] if asked is not None else [],
        )  # fmt: skip
