"""The settings of signing in through an OpenID provider: a TOML file, and a secret from another file or a variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    SecretStr,
    StringConstraints,
    model_validator,
)

from ludus.hub.core.toml_settings import check_settings, read_toml
from ludus.hub.settings.people import Registration
from ludus.protocol.errors import AuthoringError
from ludus.server.serving.settings import is_loopback

SECRET_VARIABLE: Final = "LUDUS_HUB_OPENID_SECRET"
"""The environment variable of the client's secret."""

Group = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Domain = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", max_length=253)]
ScopeName = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$", max_length=100)]


def parse_issuer(text: str) -> str:
    """Return the address of a provider, unchanged, because tokens must name exactly this one.

    Raises:
        ValueError: it is not `https://HOST/PATH`, or `http://` on this machine.
    """
    parts = urlsplit(text)
    plain = parts.hostname and not (parts.query or parts.fragment or parts.username or parts.password)
    if not plain or parts.scheme not in ("http", "https") or len(text) > 300:
        raise ValueError(f"{text!r} is not the address of a provider; write it like https://login.example.org")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"{text!r} is not encrypted; a provider on another machine needs https")
    return text


class OpenIdSettings(BaseModel):
    """How people sign in through an OpenID provider, and who of them may."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    issuer: Annotated[str, AfterValidator(parse_issuer)]
    """The provider's address, exactly as its discovery document names it."""
    client_id: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    """The hub's name at the provider."""
    client_secret: SecretStr | None = None
    """The hub's secret at the provider; not in the file of settings, but in another one or in a variable."""
    client_secret_file: Path | None = None
    """The file that has the secret alone."""
    public_client: bool = False
    """Whether the hub has no secret at the provider."""
    label: Annotated[str, StringConstraints(max_length=60)] = ""
    """What the provider is called on the site; by default its host."""
    scopes: tuple[ScopeName, ...] = ("openid", "profile", "email")
    """The scopes to ask for."""
    registration: Registration = "closed"
    """Who may register through the provider: none, so that only linked accounts sign in; those with an invitation; or
    all whom the provider lets in."""
    passwords: bool = True
    """Whether people may also sign in and register with a password."""
    allowed_domains: tuple[Domain, ...] = ()
    """Let in only people with a verified e-mail address of one of these domains; empty for all."""
    groups_claim: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "groups"
    """The claim of the ID token that lists a person's groups."""
    allowed_groups: tuple[Group, ...] = ()
    """Let in only people of one of these groups; empty for all."""
    admin_group: Group | None = None
    """People of this group are administrators of the hub, from one sign-in to the next."""

    @model_validator(mode="after")
    def _clear(self) -> Self:
        if self.public_client and (self.client_secret or self.client_secret_file):
            raise ValueError("there is a client secret, and public_client says that there is none; remove one of both")
        if not self.public_client and not self.client_secret and not self.client_secret_file:
            raise ValueError(
                f"the client secret is missing: name its file with client_secret_file, set {SECRET_VARIABLE}, or say "
                "public_client = true if the provider gave you none"
            )
        if "openid" not in self.scopes:
            raise ValueError("scopes must have 'openid'")
        if self.allowed_domains and "email" not in self.scopes:
            raise ValueError("allowed_domains needs the scope 'email'")
        if "groups_claim" in self.model_fields_set and not (self.allowed_groups or self.admin_group):
            raise ValueError("groups_claim has no effect without allowed_groups or admin_group")
        return self

    @property
    def name(self) -> str:
        """What the provider is called on the site."""
        return self.label or urlsplit(self.issuer).netloc


def read_openid(path: Path | None, variables: Mapping[str, str] = os.environ) -> OpenIdSettings | None:
    """Return the settings in a TOML file, with the client's secret; None for no file.

    Raises:
        AuthoringError: the file cannot be read, a setting does not exist, has a wrong value or contradicts another one,
            or the secret is missing, in two places or in the file of settings itself.
    """
    secret = variables.get(SECRET_VARIABLE, "")
    if path is None:
        if secret:
            raise AuthoringError(f"{SECRET_VARIABLE} is set, but --openid names no settings of a provider")
        return None
    given = read_toml(path, "the settings of the OpenID provider")
    if "client_secret" in given:
        raise AuthoringError(
            f"{path} has the client secret itself; put it into a file of its own and name that with client_secret_file"
        )
    if secret and "client_secret_file" in given:
        raise AuthoringError(f"the client secret is in {SECRET_VARIABLE} and in client_secret_file; remove one of both")
    if isinstance(named := given.get("client_secret_file"), str):
        secret = _read_secret(path.parent / named)
    return check_settings(OpenIdSettings, given | ({"client_secret": SecretStr(secret)} if secret else {}), path)


def check_callback(openid: OpenIdSettings | None, public_url: str | None, *, on_loopback: bool) -> None:
    """Check that browsers can come back from the provider.

    Raises:
        AuthoringError: others can reach the hub, and it has no public address with https.
    """
    if openid is None or (on_loopback and public_url is None):
        return
    parts = urlsplit(public_url or "")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise AuthoringError(
            "people who sign in through an OpenID provider come back to the hub's public address, which must have "
            "https: give it with --public-url https://…"
        )


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthoringError(f"the client secret in {path} cannot be read: {error}") from None
    if not secret:
        raise AuthoringError(f"the file of the client secret, {path}, is empty")
    return secret
