"""The JSON API of organizations, under /api/v1.

    GET    /account/organizations                      MembershipList: your organizations, and your invitations
    POST   /account/organizations/{organization}       accept an invitation → OrganizationInfo; DELETE declines it
    POST   /organizations                              NewOrganization → OrganizationInfo
    GET    /organizations/{organization}               OrganizationInfo; PUT OrganizationChange; DELETE with its name
    PUT    /organizations/{organization}/members/{name}      RoleChange → OrganizationInfo
    DELETE /organizations/{organization}/members/{name}      removes a member; your own name leaves
    PUT    /organizations/{organization}/invitations/{name}  RoleChange → OrganizationInfo; DELETE takes it back
    GET    /organizations/{organization}/audit         AuditList, for its owners

All of them need a token of the scope `account`, except that everyone may ask for an organization. One that the sender
does not see is absent.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict

from ludus.hub.api.accounts import person_of
from ludus.hub.parts.hub import Hub
from ludus.hub.people.organizations import check_name_again
from ludus.registry.types.organizations import (
    MembershipList,
    NewOrganization,
    OrganizationChange,
    OrganizationInfo,
    OrganizationProof,
    RoleChange,
)
from ludus.registry.types.people import AuditList


class NewOrganizationBody(NewOrganization):
    """`NewOrganization`, built now: FastAPI cannot describe a body whose type is built at its first use."""

    model_config = ConfigDict(defer_build=False)


class ChangeBody(OrganizationChange):
    """`OrganizationChange`, built now."""

    model_config = ConfigDict(defer_build=False)


class RoleBody(RoleChange):
    """`RoleChange`, built now."""

    model_config = ConfigDict(defer_build=False)


class NameBody(OrganizationProof):
    """`OrganizationProof`, built now."""

    model_config = ConfigDict(defer_build=False)


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/api/v1", tags=["Organizations"])
    _add_own(routes, hub)
    _add_organizations(routes, hub)
    _add_members(routes, hub)
    return routes


def _add_own(routes: APIRouter, hub: Hub) -> None:
    organizations, where = hub.people.organizations, "/account/organizations"

    @routes.get(where, summary="List your organizations and your invitations")
    def own(request: Request) -> MembershipList:
        return organizations.of_account(person_of(hub, request)[1])

    @routes.post(f"{where}/{{organization}}", summary="Accept an invitation")
    def accept(request: Request, organization: str) -> OrganizationInfo:
        viewer = hub.authenticator.principal(request)
        return organizations.accept(viewer, organization, address=hub.authenticator.address(request))

    @routes.delete(f"{where}/{{organization}}", summary="Decline an invitation", status_code=204)
    def decline(request: Request, organization: str) -> Response:
        organizations.decline(hub.authenticator.principal(request), organization)
        return Response(status_code=204)


def _add_organizations(routes: APIRouter, hub: Hub) -> None:
    organizations, one = hub.people.organizations, "/organizations/{organization}"

    @routes.post("/organizations", summary="Create an organization", status_code=201)
    def create(request: Request, body: NewOrganizationBody) -> OrganizationInfo:
        viewer = hub.authenticator.principal(request)
        address = hub.authenticator.address(request)
        return organizations.create(viewer, body.name, public=body.public, address=address)

    @routes.get(one, summary="Show an organization")
    def show(request: Request, organization: str) -> OrganizationInfo:
        return organizations.info(hub.viewer(request), organization)

    @routes.put(one, summary="Show it to all, or to its members only")
    def change(request: Request, organization: str, body: ChangeBody) -> OrganizationInfo:
        viewer = hub.authenticator.principal(request)
        address = hub.authenticator.address(request)
        return organizations.set_public(viewer, organization, public=body.public, address=address)

    @routes.delete(one, summary="Delete an organization", status_code=204)
    def delete(request: Request, organization: str, body: NameBody) -> Response:
        viewer = hub.authenticator.principal(request)
        check_name_again(organization, body.name)
        organizations.delete(viewer, organization, address=hub.authenticator.address(request))
        return Response(status_code=204)

    @routes.get(f"{one}/audit", summary="Show what was done with an organization")
    def audit(request: Request, organization: str) -> AuditList:
        return AuditList(events=tuple(organizations.events(hub.authenticator.principal(request), organization)))


def _add_members(routes: APIRouter, hub: Hub) -> None:
    organizations, one = hub.people.organizations, "/organizations/{organization}"
    address = hub.authenticator.address

    @routes.put(f"{one}/members/{{name}}", summary="Change the role of a member")
    def set_role(request: Request, organization: str, name: str, body: RoleBody) -> OrganizationInfo:
        viewer = hub.authenticator.principal(request)
        return organizations.set_role(viewer, organization, name, body.role, address=address(request))

    @routes.delete(f"{one}/members/{{name}}", summary="Remove a member, or leave", status_code=204)
    def remove(request: Request, organization: str, name: str) -> Response:
        viewer = hub.authenticator.principal(request)
        organizations.remove(viewer, organization, name, address=address(request))
        return Response(status_code=204)

    @routes.put(f"{one}/invitations/{{name}}", summary="Invite an account")
    def invite(request: Request, organization: str, name: str, body: RoleBody) -> OrganizationInfo:
        viewer = hub.authenticator.principal(request)
        return organizations.invite(viewer, organization, name, body.role, address=address(request))

    @routes.delete(f"{one}/invitations/{{name}}", summary="Take an invitation back", status_code=204)
    def cancel(request: Request, organization: str, name: str) -> Response:
        viewer = hub.authenticator.principal(request)
        organizations.cancel(viewer, organization, name, address=address(request))
        return Response(status_code=204)
