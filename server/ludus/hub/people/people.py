"""All parts of a hub that are about people."""

from __future__ import annotations

from starlette.requests import Request

from ludus.hub.access.viewers import Viewer
from ludus.hub.core.blobs import BlobStore
from ludus.hub.core.rates import Rates
from ludus.hub.core.shared_rates import SharedCounts
from ludus.hub.database.engine import Database
from ludus.hub.people.access_tokens import AccessTokens
from ludus.hub.people.accounts import Accounts
from ludus.hub.people.audit import Audit
from ludus.hub.people.authenticator import Authenticator
from ludus.hub.people.device_sign_ins import DeviceSignIns
from ludus.hub.people.invitations import Invitations
from ludus.hub.people.openid.identities import Identities
from ludus.hub.people.openid.sign_in import OpenIdSignIn
from ludus.hub.people.organizations import Organizations
from ludus.hub.people.passwords import Passwords
from ludus.hub.people.personal_data import PersonalData
from ludus.hub.people.sessions import Sessions
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.people import Registration
from ludus.server.auth import TokenStore


class People:
    """The parts of a hub that are about people.

    Args:
        database: the hub's database.
        blobs: the hub's files.
        settings: the hub's settings.
        operator: the tokens of the token file; None if there is none.

    Attributes:
        accounts: the accounts.
        tokens: their tokens.
        sessions: the browsers in which people have signed in.
        invitations: codes to register with.
        devices: sign-ins that have begun on devices.
        audit: the log of what people did.
        rates: how many requests may come.
        data: exports and deletes what belongs to a person.
        organizations: groups of accounts that own packages.
        authenticator: finds the viewer of a request.
        passwords: whether people may sign in with a password.
        registration: who may register with a password.
        identities: identities at an OpenID provider that are linked to accounts.
        openid: signing in through an OpenID provider; None for a hub without one.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, settings: HubSettings, operator: TokenStore | None
    ) -> None:
        passwords = Passwords()
        names = (lambda: operator.names()) if operator is not None else tuple
        self.accounts = Accounts(database, passwords, names)
        self.tokens = AccessTokens(database)
        self.invitations = Invitations(database)
        self.devices = DeviceSignIns(database, self.tokens)
        self.audit = Audit(database)
        self.rates = Rates(settings.people.rates, SharedCounts(database))
        self.authenticator = Authenticator(settings, operator, self.accounts, self.tokens, self.rates)
        self.sessions = Sessions(database, self.authenticator.of_operator_token)
        self.data = PersonalData(database, blobs, self.accounts, self.sessions, self.tokens)
        self.organizations = Organizations(database, blobs, self.data, self.rates, names)
        self.passwords = settings.openid is None or settings.openid.passwords
        self.registration: Registration = settings.people.registration if self.passwords else "closed"
        self.identities = Identities(database, passwords=self.passwords)
        self.data.add("identities", self.identities.export, lambda name: None)  # they go with the account
        self.data.add("deviceSignIns", self.devices.export, lambda name: None)  # they do, too
        self.openid = (
            OpenIdSignIn(
                settings.openid, database, self.accounts, self.sessions, self.tokens, self.audit, self.identities
            )
            if settings.openid is not None
            else None
        )
        if not self.authenticator.is_open:
            passwords.prepare()
            self.audit.sweep()

    def note_of(self, viewer: Viewer, request: Request, action: str, subject: str, account: str) -> None:
        """Add to the audit log what the sender of a request has done.

        Args:
            viewer: the sender.
            request: the request.
            action: what was done, such as `published`.
            subject: what it was done to.
            account: the account that it is about.
        """
        address = self.authenticator.address(request)
        self.audit.note(action, subject, actor=viewer.name, account=account, address=address)
