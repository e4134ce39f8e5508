"""The types of a hub's accounts: people, their tokens, and what is recorded of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel
from ludus.registry.types.packages import PackageId

TOKEN_PREFIX: Final = "ludus_hub_"
"""The prefix of every token of an account, by which secret scanners recognize one."""

PASSWORD_LENGTHS: Final = (10, 1000)
"""The fewest and the most characters of a password."""

MOST_DAYS: Final = 3650
"""The longest life of a token, in days."""

DEFAULT_DAYS: Final = 90
"""The life of a token where none is named, in days."""


class HubScope(StrEnum):
    """What a token of an account may do."""

    READ = "read"
    """Read the private packages that its person may read."""
    PUBLISH = "publish"
    """Publish and yank versions."""
    RUN = "run"
    """Play environments at the hub's endpoints."""
    RESULTS = "results"
    """Submit results."""
    ACCOUNT = "account"
    """Change who may publish and read packages, keys, tokens and the account itself."""
    ADMIN = "admin"
    """Everything on the whole hub; only administrators can make such a token."""


USUAL_SCOPES: Final = (HubScope.READ, HubScope.PUBLISH, HubScope.RUN, HubScope.RESULTS, HubScope.ACCOUNT)
"""The scopes of the token that `ludus account login` makes."""

TokenName = Annotated[
    str, StringConstraints(min_length=1, max_length=60, pattern=r"^[\w.@:+ -]+$", strip_whitespace=True)
]
"""What a person calls a token."""

Password = Annotated[str, StringConstraints(max_length=PASSWORD_LENGTHS[1])]
"""A password; the hub checks its shortest length when one is chosen."""

AccountName = Annotated[str, StringConstraints(max_length=100)]
"""The name of an account, whose form the hub checks."""


class AccountInfo(WireModel):
    """An account, as its person and administrators see it."""

    name: str
    admin: bool
    created_at: datetime
    disabled: bool = False


class AccountList(WireModel):
    """Accounts of a hub."""

    accounts: tuple[AccountInfo, ...]


class NewAccount(WireModel):
    """An account to create."""

    name: AccountName
    password: Password
    admin: bool = False


class RegisterParams(WireModel):
    """An account for oneself."""

    name: AccountName
    password: Password
    invitation: Annotated[str, StringConstraints(max_length=100)] | None = None
    """The code, where registration is by invitation."""


class NewToken(WireModel):
    """A token to create."""

    name: TokenName
    scopes: tuple[HubScope, ...] = Field(min_length=1, max_length=len(HubScope))
    packages: tuple[PackageId, ...] = Field(default=(), max_length=50)
    """The packages to which it is limited; empty for no limit."""
    days: int | None = Field(default=DEFAULT_DAYS, ge=1, le=MOST_DAYS)
    """After how many days it expires; null for never."""


class LoginParams(NewToken):
    """A name and a password, and the token to create for them."""

    account: AccountName
    password: Password


class DeviceLogin(WireModel):
    """A sign-in to begin on a device, which a person confirms in a browser. The field names are those of RFC 8628."""

    model_config = ConfigDict(alias_generator=None)

    name: TokenName
    scopes: tuple[HubScope, ...] = Field(min_length=1, max_length=len(HubScope))
    days: int = Field(default=DEFAULT_DAYS, ge=1, le=MOST_DAYS)
    """After how many days the token expires."""


class DeviceAuthorization(WireModel):
    """A sign-in that has begun on a device."""

    model_config = ConfigDict(alias_generator=None)

    device_code: str
    """The secret of the device, with which it asks for the token."""
    user_code: str
    """The code that the person enters on the page, such as `WDJB-MJHT`."""
    verification_uri: str
    """The address of the page."""
    expires_in: int = Field(ge=1, le=3600)
    """The seconds after which both codes are worth nothing."""
    interval: int = Field(default=5, ge=1, le=60)
    """The fewest seconds between two requests for the token."""


class DeviceCode(WireModel):
    """A request for the token of a sign-in on a device."""

    model_config = ConfigDict(alias_generator=None)

    device_code: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class TokenInfo(WireModel):
    """A token, without its secret."""

    id: Whole
    name: str
    scopes: tuple[HubScope, ...]
    packages: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    """When it was last used, to the minute; null for never."""


class CreatedToken(WireModel):
    """A token that was just created. Its secret is shown only now."""

    token: str
    info: TokenInfo
    account: str


class DeviceAnswer(WireModel):
    """What has come of a sign-in on a device."""

    model_config = ConfigDict(alias_generator=None)

    status: Literal["authorization_pending", "slow_down", "complete"]
    created: CreatedToken | None = None
    """The token, if the status is `complete`. It is shown only once."""


class TokenList(WireModel):
    """The tokens of an account."""

    tokens: tuple[TokenInfo, ...]


class PasswordChange(WireModel):
    """A new password in place of the old one."""

    old: Password
    new: Password


class PasswordProof(WireModel):
    """The password, for a step that cannot be undone."""

    password: Password


class AuditEntry(WireModel):
    """Something that was done."""

    at: datetime
    actor: str
    """Who did it; empty for the operator's command line."""
    action: str
    subject: str
    account: str
    """The account that it is about."""
    address: str
    """The client's address; empty for the command line."""


class AuditList(WireModel):
    """The newest events, the last one first."""

    events: tuple[AuditEntry, ...]


class Access(WireModel):
    """Whether a package is private, and who may read it then."""

    id: PackageId
    private: bool
    readers: tuple[str, ...] = ()
    """Those who may read it besides its owner and maintainers."""


class AccessChange(WireModel):
    """Whether a package shall be private."""

    private: bool


class CreatedInvitation(WireModel):
    """A code with which one person may register. It is shown only now."""

    code: str
    expires_at: datetime
