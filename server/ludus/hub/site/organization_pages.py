"""The pages of organizations: those of an account with its invitations, and one organization with its members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.database.search import owner_tag
from ludus.hub.people.accounts import require_account
from ludus.hub.people.organizations import check_name_again
from ludus.hub.site.site import Site, see
from ludus.hub.site.visitors import Visitor
from ludus.protocol.errors import CapacityError, Conflict, Forbidden, InvalidParams, NotFound
from ludus.registry.types.errors import NameRefused
from ludus.registry.types.organizations import Role

OWN: Final = "/account/organizations"
"""The page of the organizations of an account."""

SHOWN_PACKAGES: Final = 20
"""The most packages on the page of an organization."""

SHOWN_MEMBERS: Final = 250
"""The most members on the page of an organization."""

SHOWN_INVITATIONS: Final = 100
"""The most open invitations on the page of an organization."""

MEANINGS: Final = {
    Role.READER: "reads and plays private environments",
    Role.PUBLISHER: "also publishes and yanks versions",
    Role.OWNER: "also changes members, readers, keys and settings",
}
"""What each role allows, in words."""

_REFUSALS: Final = (CapacityError, Conflict, Forbidden, InvalidParams, NameRefused, NotFound)
"""The errors that are shown above the form that was sent, if the visitor sees its page. All others have their own."""


class OrganizationPages:
    """The pages of organizations, and their forms.

    The field `do` of a form names the step. A page shows the reason if the hub refuses it.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._organizations = site.hub.people.organizations
        self._steps: dict[str, Callable[[Request, Visitor, str, Any], str]] = {
            "invite": self._invite, "cancel": self._cancel, "role": self._set_role, "remove": self._remove,
            "leave": self._leave, "show": self._set_public, "delete": self._delete,
        }  # fmt: skip

    # ── your organizations ─────────────────────────────────────────────────────────────────────────────────────────

    def own(self, request: Request) -> Response:
        """Return the page of the organizations of the account."""
        visitor = self._site.visitors.visitor(request)
        visitor.require_owner()
        return self._own(request, visitor, "", 200)

    async def change_own(self, request: Request) -> Response:
        """Create an organization, or answer an invitation."""
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        require_account(visitor.viewer.account)
        try:
            where = await run_in_threadpool(self._change_own, request, visitor, fields)
        except _REFUSALS as error:
            return await run_in_threadpool(self._own, request, visitor, error.message, 422)
        return see(where)

    def _change_own(self, request: Request, visitor: Visitor, fields: Any) -> str:
        step, name = str(fields.get("do", "")), str(fields.get("name", "")).strip()
        viewer, address = visitor.viewer, self._address(request)
        if step == "create":
            self._organizations.create(viewer, name, public=bool(fields.get("public")), address=address)
        elif step == "accept":
            self._organizations.accept(viewer, name, address=address)
        elif step == "decline":
            self._organizations.decline(viewer, name)
            return OWN
        else:
            raise InvalidParams("choose what to do")
        return f"/orgs/{name}"

    def _own(self, request: Request, visitor: Visitor, problem: str, status: int) -> Response:
        found = self._organizations.of_account(require_account(visitor.viewer.account))
        return self._site.page(
            request, "organizations.html", visitor=visitor, status=status, problem=problem,
            organizations=found.organizations, invitations=found.invitations,
        )  # fmt: skip

    # ── one organization ───────────────────────────────────────────────────────────────────────────────────────────

    def organization(self, request: Request) -> Response:
        """Return the page of an organization."""
        return self._organization(request, self._site.visitors.visitor(request), "", 200)

    async def change(self, request: Request) -> Response:
        """Change an organization or its members."""
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        step = self._steps.get(str(fields.get("do", "")), self._unknown)
        name = str(request.path_params["organization"])
        try:
            where = await run_in_threadpool(step, request, visitor, name, fields)
        except _REFUSALS as error:
            return await run_in_threadpool(self._organization, request, visitor, error.message, 422)
        return see(where)

    def audit(self, request: Request) -> Response:
        """Return the page of what was done with an organization."""
        visitor = self._site.visitors.visitor(request)
        visitor.require_owner()
        name = str(request.path_params["organization"])
        events = self._organizations.events(visitor.viewer, name)
        return self._site.page(request, "organization_audit.html", organization=name, events=events)

    def _invite(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        address = self._address(request)
        self._organizations.invite(visitor.viewer, name, _account(fields), _role(fields), address=address)
        return f"/orgs/{name}"

    def _cancel(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        self._organizations.cancel(visitor.viewer, name, _account(fields), address=self._address(request))
        return f"/orgs/{name}"

    def _set_role(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        address = self._address(request)
        self._organizations.set_role(visitor.viewer, name, _account(fields), _role(fields), address=address)
        return f"/orgs/{name}"

    def _remove(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        self._organizations.remove(visitor.viewer, name, _account(fields), address=self._address(request))
        return f"/orgs/{name}"

    def _leave(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        self._organizations.remove(visitor.viewer, name, visitor.require_owner(), address=self._address(request))
        return OWN

    def _set_public(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        public = str(fields.get("to", "")) == "all"
        self._organizations.set_public(visitor.viewer, name, public=public, address=self._address(request))
        return f"/orgs/{name}"

    def _delete(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        self._organizations.info(visitor.viewer, name)
        check_name_again(name, str(fields.get("name", "")))
        self._organizations.delete(visitor.viewer, name, address=self._address(request))
        return OWN

    def _unknown(self, request: Request, visitor: Visitor, name: str, fields: Any) -> str:
        raise InvalidParams("choose what to do")

    def _organization(self, request: Request, visitor: Visitor, problem: str, status: int) -> Response:
        viewer = visitor.viewer
        found = self._organizations.info(viewer, str(request.path_params["organization"]))
        packages, total = self._site.catalog(request).search("", [owner_tag(found.name)], page_size=SHOWN_PACKAGES)
        members, invitations = found.members, found.invitations or ()
        return self._site.page(
            request, "organization.html", visitor=visitor, status=status, problem=problem, organization=found,
            packages=packages, more_packages=total - len(packages), invitations=invitations[:SHOWN_INVITATIONS],
            members=members[:SHOWN_MEMBERS] if members is not None else None,
            more_members=max(0, len(members or ()) - SHOWN_MEMBERS),
            more_invitations=max(0, len(invitations) - SHOWN_INVITATIONS), manages=found.invitations is not None,
            roles=[(str(role), meaning) for role, meaning in MEANINGS.items()],
            keys=self._site.hub.catalog_of(viewer).keys(found.name) if found.invitations is not None else (),
        )  # fmt: skip

    def _address(self, request: Request) -> str:
        return self._site.hub.authenticator.address(request)


def _account(fields: Any) -> str:
    """Return the account that a form names.

    Raises:
        InvalidParams: it names none.
    """
    name = str(fields.get("name", "")).strip()
    if not name:
        raise InvalidParams("write the name of an account")
    return name


def _role(fields: Any) -> Role:
    """Return the role that a form names.

    Raises:
        InvalidParams: it names none.
    """
    try:
        return Role(str(fields.get("role", "")))
    except ValueError:
        raise InvalidParams(f"choose a role: {', '.join(Role)}") from None
