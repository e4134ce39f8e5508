"""A person's own pages: the account, its tokens, its audit log; and who may read a package."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.api.accounts import require_administrator
from ludus.hub.people.access_tokens import digest_of
from ludus.hub.people.accounts import require_account
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.site import Site, see
from ludus.hub.site.visitors import Visitor
from ludus.protocol.errors import Conflict, Forbidden, InvalidParams, Unauthenticated
from ludus.protocol.messages import describe_invalid
from ludus.registry.types.errors import NameRefused
from ludus.registry.types.people import DEFAULT_DAYS, CreatedToken, HubScope, NewToken

LIFETIMES: Final = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "one year", "": "no end"}
"""The lives of tokens that the page offers, by days."""

MEANINGS: Final = {
    HubScope.READ: "read your private packages",
    HubScope.PUBLISH: "publish and yank versions",
    HubScope.RUN: "play environments at endpoints",
    HubScope.RESULTS: "submit results",
    HubScope.ACCOUNT: "change owners, readers, keys, tokens, organizations and the account",
    HubScope.ADMIN: "everything on the whole hub",
}
"""What each scope allows, in words."""


class AccountPages:
    """The pages of an account, and their forms."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._people = site.hub.people

    def account(self, request: Request) -> Response:
        """Return the page of the account."""
        return self._account(request, self._person(request), "", 200)

    async def change_password(self, request: Request) -> Response:
        """Set a new password, and end all other sessions."""
        visitor, fields = await self._form(request)
        try:
            new = str(fields.get("new", ""))
            if new != str(fields.get("again", "")):
                raise InvalidParams("the two new passwords differ")
            await run_in_threadpool(self._change_password, request, visitor, str(fields.get("old", "")), new)
        except (InvalidParams, Unauthenticated) as error:
            return await run_in_threadpool(self._account, request, visitor, error.message, 422)
        return see("/account")

    def _change_password(self, request: Request, visitor: Visitor, old: str, new: str) -> None:
        name, address = visitor.require_owner(), self._site.hub.authenticator.address(request)
        self._people.rates.login(name, address)
        keep = digest_of(visitor.name)
        self._people.accounts.change_password(name, old, new, keep=keep, address=address)

    async def sign_out_everywhere(self, request: Request) -> Response:
        """End all sessions of the account."""
        visitor, _ = await self._form(request)
        await run_in_threadpool(self._people.sessions.end_all, require_account(visitor.viewer.account))
        signed_out = await run_in_threadpool(self._site.visitors.sign_out, visitor)
        return self._site.visitors.set_cookie(request, see("/login"), signed_out)

    def export(self, request: Request) -> Response:
        """Return everything that the hub keeps of the account, as a file."""
        viewer = self._person(request).viewer
        found = self._people.data.export(require_account(viewer.account), viewer.name)
        headers = {**HEADERS, "content-disposition": f'attachment; filename="{viewer.name}.json"'}
        return Response(json.dumps(found, indent=2), headers=headers, media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Delete the account."""
        visitor, fields = await self._form(request)
        name, address = visitor.require_owner(), self._site.hub.authenticator.address(request)
        try:
            if str(fields.get("name", "")).strip() != name:
                raise InvalidParams("write the name of the account to delete it")
            await run_in_threadpool(self._people.rates.login, name, address)
            await run_in_threadpool(
                self._people.data.delete, name, str(fields.get("password", "")), browser=digest_of(visitor.name),
                address=address,
            )  # fmt: skip
        except (InvalidParams, Unauthenticated, Conflict) as error:
            return await run_in_threadpool(self._account, request, visitor, error.message, 422)
        signed_out = await run_in_threadpool(self._site.visitors.sign_out, visitor)
        return self._site.visitors.set_cookie(request, see("/"), signed_out)

    # ── tokens ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def tokens(self, request: Request) -> Response:
        """Return the page of the tokens."""
        return self._tokens(request, self._person(request), None, "", 200)

    async def create_token(self, request: Request) -> Response:
        """Create a token, and show it once."""
        visitor, fields = await self._form(request)
        try:
            created = await run_in_threadpool(self._create_token, request, visitor, fields)
        except (InvalidParams, Conflict, Forbidden) as error:
            return await run_in_threadpool(self._tokens, request, visitor, None, error.message, 422)
        return await run_in_threadpool(self._tokens, request, visitor, created, "", 201)

    def _create_token(self, request: Request, visitor: Visitor, fields: Any) -> CreatedToken:
        days = str(fields.get("days", DEFAULT_DAYS))
        if days not in LIFETIMES:
            raise InvalidParams("choose one of the lifetimes")
        try:
            wanted = NewToken.model_validate(
                {
                    "name": str(fields.get("name", "")), "scopes": [str(one) for one in fields.getlist("scope")],
                    "packages": str(fields.get("packages", "")).split(), "days": int(days) if days else None,
                }
            )  # fmt: skip
        except ValidationError as error:
            first: Any = error.errors(include_url=False)[0]
            raise InvalidParams(f"{first['loc'][0]}: {describe_invalid(first)}") from None
        viewer, address = visitor.viewer, self._site.hub.authenticator.address(request)
        account = require_account(viewer.account)
        return self._people.tokens.create(account, wanted, is_admin=viewer.is_admin, address=address)

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a token."""
        visitor, _ = await self._form(request)
        account, name = require_account(visitor.viewer.account), visitor.require_owner()
        address = self._site.hub.authenticator.address(request)
        token = int(request.path_params["token"])
        await run_in_threadpool(self._people.tokens.revoke, account, token, actor=name, address=address)
        return see("/account/tokens")

    # ── the audit log ──────────────────────────────────────────────────────────────────────────────────────────────

    def audit(self, request: Request) -> Response:
        """Return the page of what was done with the account."""
        viewer = self._person(request).viewer
        events = self._people.audit.events(viewer.name)
        return self._site.page(request, "audit.html", events=events, of_all=False, is_admin=viewer.is_admin)

    def audit_of_all(self, request: Request) -> Response:
        """Return the page of what was done on the hub, for administrators."""
        viewer = self._person(request).viewer
        require_administrator(viewer)
        return self._site.page(request, "audit.html", events=self._people.audit.events(), of_all=True, is_admin=True)

    # ── packages ───────────────────────────────────────────────────────────────────────────────────────────────────

    def access(self, request: Request) -> Response:
        """Return the page of who may read a package."""
        visitor = self._site.visitors.visitor(request)
        self._site.hub.ownership.check_owner(visitor.viewer, *_package(request))
        return self._access(request, visitor, "", 200)

    async def change_access(self, request: Request) -> Response:
        """Make a package private or public, or change its readers."""
        visitor, fields = await self._site.form(request)
        try:
            await run_in_threadpool(self._change_access, request, visitor, fields)
        except (NameRefused, Conflict, InvalidParams) as error:
            return await run_in_threadpool(self._access, request, visitor, error.message, 422)
        return see("/{}/{}/access".format(*_package(request)))

    def _change_access(self, request: Request, visitor: Visitor, fields: Any) -> None:
        viewer, ownership, (owner, name) = visitor.viewer, self._site.hub.ownership, _package(request)
        private, add, remove = (str(fields.get(key, "")).strip() for key in ("private", "add", "remove"))
        if private in ("yes", "no"):
            if private == "yes":
                self._site.hub.check_hides(f"{owner}/{name}")
            ownership.set_private(viewer, owner, name, private=private == "yes")
            done = "made private" if private == "yes" else "made public", f"{owner}/{name}"
        elif add:
            ownership.add_reader(viewer, owner, name, add)
            done = "reader added", f"{owner}/{name}: {add}"
        elif remove:
            ownership.remove_reader(viewer, owner, name, remove)
            done = "reader removed", f"{owner}/{name}: {remove}"
        else:
            ownership.check_owner(viewer, owner, name)
            raise InvalidParams("write the name of a reader")
        self._people.note_of(viewer, request, *done, owner)

    def _access(self, request: Request, visitor: Visitor, problem: str, status: int) -> Response:
        owner, name = _package(request)
        private, readers = self._site.hub.catalog_of(visitor.viewer).readers(owner, name)
        return self._site.page(
            request, "access.html", visitor=visitor, status=status, package=f"{owner}/{name}", private=private,
            readers=readers, problem=problem,
        )  # fmt: skip

    # ── common ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _person(self, request: Request) -> Visitor:
        """Return the visitor with an account.

        Raises:
            Unauthenticated: the person has not signed in.
            Forbidden: the person has signed in without an account.
        """
        visitor = self._site.visitors.visitor(request)
        visitor.require_owner()
        require_account(visitor.viewer.account)
        return visitor

    async def _form(self, request: Request) -> tuple[Visitor, Any]:
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        require_account(visitor.viewer.account)
        return visitor, fields

    def _account(self, request: Request, visitor: Visitor, problem: str, status: int) -> Response:
        name = visitor.require_owner()
        account, this, openid = require_account(visitor.viewer.account), digest_of(visitor.name), self._people.openid
        sessions = self._people.sessions.all(account)
        return self._site.page(
            request, "account.html", visitor=visitor, status=status, problem=problem, this=this, sessions=sessions,
            account=self._people.accounts.info(name), identities=self._people.identities.all(account),
            has_password=self._people.accounts.has_password(account), openid=openid and openid.settings,
            is_confirmed=any(session.digest == this and session.is_confirmed for session in sessions),
        )  # fmt: skip

    def _tokens(
        self, request: Request, visitor: Visitor, created: CreatedToken | None, problem: str, status: int
    ) -> Response:
        scopes = [scope for scope in HubScope if scope is not HubScope.ADMIN or visitor.viewer.is_admin]
        return self._site.page(
            request, "tokens.html", visitor=visitor, status=status, problem=problem, created=created,
            tokens=self._people.tokens.all(require_account(visitor.viewer.account)),
            scopes=[(str(scope), MEANINGS[scope]) for scope in scopes], lifetimes=LIFETIMES,
        )  # fmt: skip


def _package(request: Request) -> tuple[str, str]:
    return request.path_params["owner"], request.path_params["name"]
