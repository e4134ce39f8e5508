"""The JSON API of accounts, under /api/v1.

    POST   /login                     a name, a password, and the token to make → CreatedToken
    POST   /register                  NewAccount (with `invitation` where one is needed) → AccountInfo
    GET    /account                   AccountInfo; DELETE with the password deletes it
    POST   /account/password          PasswordChange
    GET    /account/tokens            TokenList; POST NewToken → CreatedToken; DELETE …/tokens/{id}
    GET    /account/export            everything that the hub keeps of the account
    GET    /account/audit             AuditList, of the account
    GET    /accounts                  AccountList, for administrators; POST NewAccount
    PUT    /accounts/{name}/disabled  DELETE to enable it again
    POST   /invitations               CreatedInvitation, for administrators
    GET    /audit                     AuditList of all, for administrators

Tokens that `/account` takes have the scope `account`, those of administrators have `admin`.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict

from ludus.hub.access.viewers import Viewer
from ludus.hub.parts.hub import Hub
from ludus.hub.people.accounts import Person, require_account
from ludus.hub.people.invitations import use_invitation
from ludus.protocol.errors import Conflict, Forbidden
from ludus.registry.types.people import (
    AccountInfo,
    AccountList,
    AuditList,
    CreatedInvitation,
    CreatedToken,
    HubScope,
    LoginParams,
    NewAccount,
    NewToken,
    PasswordChange,
    PasswordProof,
    RegisterParams,
    TokenList,
)


class LoginBody(LoginParams):
    """`LoginParams`, built now: FastAPI cannot describe a body whose type is built at its first use."""

    model_config = ConfigDict(defer_build=False)


class RegisterBody(RegisterParams):
    """`RegisterParams`, built now."""

    model_config = ConfigDict(defer_build=False)


class NewTokenBody(NewToken):
    """`NewToken`, built now."""

    model_config = ConfigDict(defer_build=False)


class NewAccountBody(NewAccount):
    """`NewAccount`, built now."""

    model_config = ConfigDict(defer_build=False)


class PasswordBody(PasswordChange):
    """`PasswordChange`, built now."""

    model_config = ConfigDict(defer_build=False)


class ProofBody(PasswordProof):
    """`PasswordProof`, built now."""

    model_config = ConfigDict(defer_build=False)


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/api/v1")
    _add_signing_in(routes, hub)
    _add_account(routes, hub)
    _add_tokens(routes, hub)
    _add_administration(routes, hub)
    return routes


def person_of(hub: Hub, request: Request, scope: HubScope = HubScope.ACCOUNT) -> tuple[Viewer, int]:
    """Return the sender of a request about their account, and the id of that.

    Raises:
        Unauthenticated: there is no valid token.
        Forbidden: the token lacks the scope, or is not one of an account.
    """
    viewer = hub.authenticator.principal(request)
    viewer.require(scope)
    return viewer, require_account(viewer.account)


def administrator_of(hub: Hub, request: Request) -> Viewer:
    """Return the sender of a request that only administrators may send.

    Raises:
        Unauthenticated: there is no valid token.
        Forbidden: the sender is not an administrator.
    """
    viewer = hub.authenticator.principal(request)
    require_administrator(viewer)
    return viewer


def require_administrator(viewer: Viewer) -> None:
    """Check that a viewer is an administrator.

    Raises:
        Forbidden: the viewer is not.
    """
    if not viewer.is_admin:
        raise Forbidden("this is for administrators, with a token of the scope 'admin'")


def require_passwords(hub: Hub) -> None:
    """Check that people may sign in to a hub with a password.

    Raises:
        Forbidden: they may not.
    """
    if not hub.people.passwords:
        raise Forbidden("this hub takes no passwords: sign in on its site, and make a token at /account/tokens")


def register(hub: Hub, name: str, password: str, invitation: str | None, address: str) -> Person:
    """Create an account for a person who registers.

    Raises:
        Forbidden: the hub takes no registrations, or the invitation is not valid.
        NameRefused: the name cannot be one, is taken, or looks like one that is.
        InvalidParams: the password is too short or too long.
        CapacityError: too many people register.
    """
    kind = hub.people.registration
    if kind == "closed" or hub.authenticator.is_open:
        raise Forbidden("this hub takes no registrations; ask its operator for an account")
    hub.people.rates.hit("registration", address)
    if kind == "invite" and not invitation:
        raise Forbidden("this hub takes registrations with an invitation only; ask its operator for one")
    return hub.people.accounts.create(
        name, password, actor=name, address=address,
        also=lambda session: use_invitation(session, invitation or "") if kind == "invite" else None,
    )  # fmt: skip


def _add_signing_in(routes: APIRouter, hub: Hub) -> None:
    people = hub.people

    @routes.post("/login", tags=["Account"], summary="Make a token with a name and a password", status_code=201)
    def login(request: Request, body: LoginBody) -> CreatedToken:
        address = hub.authenticator.address(request)
        require_passwords(hub)
        people.rates.login(body.account, address)
        person = people.accounts.sign_in(body.account, body.password)
        wanted = NewToken(name=body.name, scopes=body.scopes, packages=body.packages, days=body.days)
        return people.tokens.create(person.id, wanted, is_admin=person.is_admin, address=address)

    @routes.post("/register", tags=["Account"], summary="Register an account, where that is possible", status_code=201)
    def register_account(request: Request, body: RegisterBody) -> AccountInfo:
        address = hub.authenticator.address(request)
        person = register(hub, body.name, body.password, body.invitation, address)
        return people.accounts.info(person.name)


def _add_account(routes: APIRouter, hub: Hub) -> None:
    people = hub.people

    @routes.get("/account", tags=["Account"], summary="Show your account")
    def account(request: Request) -> AccountInfo:
        return people.accounts.info(person_of(hub, request)[0].name)

    @routes.delete("/account", tags=["Account"], summary="Delete your account", status_code=204)
    def delete(request: Request, body: ProofBody) -> Response:
        viewer, _ = person_of(hub, request)
        address = hub.authenticator.address(request)
        people.rates.login(viewer.name, address)
        people.data.delete(viewer.name, body.password, address=address)
        return Response(status_code=204)

    @routes.post("/account/password", tags=["Account"], summary="Change your password", status_code=204)
    def password(request: Request, body: PasswordBody) -> Response:
        viewer, _ = person_of(hub, request)
        address = hub.authenticator.address(request)
        people.rates.login(viewer.name, address)
        people.accounts.change_password(viewer.name, body.old, body.new, address=address)
        return Response(status_code=204)

    @routes.get("/account/export", tags=["Account"], summary="Export all that the hub keeps about you")
    def export(request: Request) -> dict[str, Any]:
        viewer, account_id = person_of(hub, request)
        return people.data.export(account_id, viewer.name)

    @routes.get("/account/audit", tags=["Account"], summary="Show what was done with your account")
    def audit(request: Request) -> AuditList:
        return AuditList(events=tuple(people.audit.events(person_of(hub, request)[0].name)))


def _add_tokens(routes: APIRouter, hub: Hub) -> None:
    tokens = hub.people.tokens

    @routes.get("/account/tokens", tags=["Account"], summary="List your tokens")
    def all_tokens(request: Request) -> TokenList:
        return TokenList(tokens=tuple(tokens.all(person_of(hub, request)[1])))

    @routes.post("/account/tokens", tags=["Account"], summary="Make a token", status_code=201)
    def create(request: Request, body: NewTokenBody) -> CreatedToken:
        viewer, account_id = person_of(hub, request)
        if extra := set(body.scopes) - viewer.grants:
            raise Forbidden(f"your token lacks the scope '{min(extra)}', so it cannot make one that has it")
        address = hub.authenticator.address(request)
        return tokens.create(account_id, body, is_admin=viewer.is_admin, address=address)

    @routes.delete("/account/tokens/{token}", tags=["Account"], summary="Revoke a token", status_code=204)
    def revoke(request: Request, token: int) -> Response:
        viewer, account_id = person_of(hub, request)
        tokens.revoke(account_id, token, actor=viewer.name, address=hub.authenticator.address(request))
        return Response(status_code=204)


def _add_administration(routes: APIRouter, hub: Hub) -> None:
    people = hub.people

    @routes.get("/accounts", tags=["Administration"], summary="List all accounts")
    def accounts(request: Request) -> AccountList:
        administrator_of(hub, request)
        return AccountList(accounts=tuple(people.accounts.all()))

    @routes.post("/accounts", tags=["Administration"], summary="Create an account", status_code=201)
    def create(request: Request, body: NewAccountBody) -> AccountInfo:
        viewer = administrator_of(hub, request)
        if hub.authenticator.is_open:
            raise Conflict("create the first account with `ludus hub accounts create NAME --admin`")
        person = people.accounts.create(
            body.name, body.password, admin=body.admin, actor=viewer.name, address=hub.authenticator.address(request)
        )
        return people.accounts.info(person.name)

    def set_disabled(request: Request, name: str, *, disabled: bool) -> AccountInfo:
        viewer = administrator_of(hub, request)
        address = hub.authenticator.address(request)
        info = people.accounts.set_disabled(name, disabled=disabled, actor=viewer.name, address=address)
        people.tokens.forget()
        return info

    @routes.put("/accounts/{name}/disabled", tags=["Administration"], summary="Disable an account")
    def disable(request: Request, name: str) -> AccountInfo:
        return set_disabled(request, name, disabled=True)

    @routes.delete("/accounts/{name}/disabled", tags=["Administration"], summary="Enable an account again")
    def enable(request: Request, name: str) -> AccountInfo:
        return set_disabled(request, name, disabled=False)

    @routes.post("/invitations", tags=["Administration"], summary="Make an invitation", status_code=201)
    def invite(request: Request) -> CreatedInvitation:
        viewer = administrator_of(hub, request)
        return people.invitations.create(actor=viewer.name, address=hub.authenticator.address(request))

    @routes.get("/audit", tags=["Administration"], summary="Show what was done on the hub")
    def audit(request: Request) -> AuditList:
        administrator_of(hub, request)
        return AuditList(events=tuple(people.audit.events()))
