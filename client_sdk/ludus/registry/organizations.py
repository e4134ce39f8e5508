"""The organizations of a hub for clients: members, roles and invitations."""

from __future__ import annotations

from urllib.parse import quote

from ludus.registry.client import ANSWER_SECONDS, TRANSFER_SECONDS, RegistryClient
from ludus.registry.types.organizations import MembershipList, NewOrganization, OrganizationInfo, Role
from ludus.registry.types.people import AuditList

_OWN = "/account/organizations"


class OrganizationsClient(RegistryClient):
    """A connection to a hub, with its organizations; see `RegistryClient`.

    All methods raise `NotFound` for an organization that does not exist or that the token's account does not see, and
    `Forbidden` where its role or its token does not allow the step.
    """

    async def own_organizations(self) -> MembershipList:
        """Return the organizations of the account, and its open invitations."""
        return await self._call("GET", _OWN, MembershipList)

    async def organization(self, name: str) -> OrganizationInfo:
        """Return an organization."""
        return await self._call("GET", _where(name), OrganizationInfo)

    async def create_organization(self, name: str, *, public: bool = False) -> OrganizationInfo:
        """Create an organization.

        Raises:
            NameRefused: the name cannot be one, is taken, or looks like one that is.
            Conflict: the account is an owner of too many.
        """
        body = NewOrganization(name=name, public=public).model_dump(mode="json", by_alias=True)
        return await self._call("POST", "/organizations", OrganizationInfo, json=body)

    async def set_organization_public(self, name: str, public: bool) -> OrganizationInfo:
        """Show an organization and its members to all, or to its members only."""
        return await self._call("PUT", _where(name), OrganizationInfo, json={"public": public})

    async def delete_organization(self, name: str) -> None:
        """Delete an organization with its private packages."""
        where = f"{self.hub}/api/v1{_where(name)}"
        async with self._request("DELETE", where, TRANSFER_SECONDS, json={"name": name}):
            pass

    async def invite(self, name: str, account: str, role: Role) -> OrganizationInfo:
        """Invite an account."""
        where = f"{_where(name)}/invitations/{quote(account, safe='')}"
        return await self._call("PUT", where, OrganizationInfo, json={"role": str(role)})

    async def cancel_invitation(self, name: str, account: str) -> None:
        """Take an invitation back."""
        await self._delete(f"{_where(name)}/invitations/{quote(account, safe='')}")

    async def accept_invitation(self, name: str) -> OrganizationInfo:
        """Accept an invitation."""
        return await self._call("POST", f"{_OWN}/{quote(name, safe='')}", OrganizationInfo)

    async def decline_invitation(self, name: str) -> None:
        """Decline an invitation."""
        await self._delete(f"{_OWN}/{quote(name, safe='')}")

    async def set_role(self, name: str, account: str, role: Role) -> OrganizationInfo:
        """Change the role of a member."""
        where = f"{_where(name)}/members/{quote(account, safe='')}"
        return await self._call("PUT", where, OrganizationInfo, json={"role": str(role)})

    async def remove_member(self, name: str, account: str) -> None:
        """Remove a member, or leave with the own name.

        Raises:
            Conflict: it is the last owner.
        """
        await self._delete(f"{_where(name)}/members/{quote(account, safe='')}")

    async def organization_audit(self, name: str) -> AuditList:
        """Return what was done with an organization, the newest first."""
        return await self._call("GET", f"{_where(name)}/audit", AuditList)

    async def _delete(self, path: str) -> None:
        async with self._request("DELETE", f"{self.hub}/api/v1{path}", ANSWER_SECONDS):
            pass


def _where(name: str) -> str:
    return f"/organizations/{quote(name, safe='')}"
