"""The tables of the registry and of people.

Columns with `info={"blob": True}` hold digests of blobs; backups and checks follow them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from packaging.utils import canonicalize_version
from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)  # fmt: skip
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

BIG_ID = BigInteger().with_variant(Integer, "sqlite")
"""The type of ids; SQLite counts up only in columns of type INTEGER."""

VERSION_LENGTH: Final = 60
"""The most characters of a version."""


class Table(DeclarativeBase):
    """The base of all tables."""


class Owner(Table):
    """A person or a group under whose name packages are published."""

    __tablename__ = "owners"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(39), unique=True)
    skeleton: Mapped[str] = mapped_column(String(39), unique=True)
    """The name with characters that look alike made equal; see `ludus.hub.access.names`."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    retired_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """When its account was deleted; null if it was not. The name is never given to another one."""


class PublisherKey(Table):
    """A public key with which an owner's versions may be signed."""

    __tablename__ = "publisher_keys"

    owner_id: Mapped[int] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(60), primary_key=True)
    added_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Package(Table):
    """A package: `owner/name`."""

    __tablename__ = "packages"
    __table_args__ = (
        UniqueConstraint("owner_id", "name"),
        UniqueConstraint("owner_id", "skeleton"),
        Index("ix_packages_catalog", "updated_at", "id", "private"),
        Index("ix_packages_private", "id", sqlite_where=text("private = 1"), postgresql_where=text("private")),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("owners.id"))
    owner: Mapped[str] = mapped_column(String(39), index=True)
    name: Mapped[str] = mapped_column(String(60))
    skeleton: Mapped[str] = mapped_column(String(60))
    distribution: Mapped[str] = mapped_column(String(100), unique=True)
    """The normal form of the name that pip installs."""
    latest: Mapped[str] = mapped_column(String(60), default="")
    """The version that is meant where none is named."""
    summary: Mapped[str] = mapped_column(Text, default="")
    """A `PackageSummary` as JSON, so that a page of the catalog is one query."""
    private: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    """Whether only its owner, its maintainers and its readers may know of it."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Maintainer(Table):
    """A principal besides the owner who may publish versions of a package."""

    __tablename__ = "maintainers"

    package_id: Mapped[int] = mapped_column(ForeignKey("packages.id"), primary_key=True)
    principal: Mapped[str] = mapped_column(String(100), primary_key=True)


class Reader(Table):
    """A principal that may read a private package."""

    __tablename__ = "readers"

    package_id: Mapped[int] = mapped_column(ForeignKey("packages.id"), primary_key=True)
    principal: Mapped[str] = mapped_column(String(100), primary_key=True)


class PackageTag(Table):
    """A tag of a package's latest version.

    Besides the publisher's, which have no colon, there are `owner:NAME` and `durability:KIND`, by which the catalog
    filters.
    """

    __tablename__ = "package_tags"

    tag: Mapped[str] = mapped_column(String(60), primary_key=True)
    package_id: Mapped[int] = mapped_column(ForeignKey("packages.id"), primary_key=True, index=True)


def version_identity(version: str) -> str:
    """Return the text that all spellings of a version share: `1` for `1`, `1.0` and `1.0.0`.

    pip and uv take equal versions for one, so a hub that kept both would let them choose. What is no version stays as
    it is.
    """
    return canonicalize_version(version) if len(version) <= VERSION_LENGTH else version


def _identity_of_row(context: Any) -> str:
    return version_identity(context.get_current_parameters()["version"])


class Version(Table):
    """A version of a package. Only `yanked` and `changed_at` ever change."""

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("package_id", "version"),
        Index("ix_versions_identity", "package_id", "identity", unique=True),
    )

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    package_id: Mapped[int] = mapped_column(ForeignKey("packages.id"))
    version: Mapped[str] = mapped_column(String(VERSION_LENGTH))
    """The version as it was published."""
    identity: Mapped[str | None] = mapped_column(String(VERSION_LENGTH), default=_identity_of_row)
    """The text that all spellings of the version share, by which it is found.

    Null for a version of an older hub that equals another one of its package: the hub does not offer it, and sends its
    wheel only to those who ask for its digest.
    """
    filename: Mapped[str] = mapped_column(String(255), unique=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True, info={"blob": True})
    size: Mapped[int] = mapped_column(BigInteger)
    metadata_sha256: Mapped[str] = mapped_column(String(64), info={"blob": True})
    """The digest of the wheel's METADATA file, which is also kept by itself (PEP 658)."""
    requires_python: Mapped[str | None] = mapped_column(String(200))
    manifest: Mapped[str] = mapped_column(Text)
    """The manifest as JSON."""
    card: Mapped[str] = mapped_column(Text)
    signed: Mapped[str | None] = mapped_column(Text)
    """The signed statement as JSON; null for an upload without a signature."""
    validation: Mapped[str | None] = mapped_column(Text)
    uploaded_by: Mapped[str] = mapped_column(String(100))
    uploaded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    yanked: Mapped[str | None] = mapped_column(String(500))
    """Why the version was yanked; null if it was not."""
    changed_at: Mapped[datetime] = mapped_column(
        DateTime(timezone=True), index=True, server_default="1970-01-01 00:00:00.000000"
    )
    """When it was published, yanked, or became or ceased to be the latest."""


class BlockedWheel(Table):
    """A wheel that an administrator has blocked, by its digest and so under every name and version."""

    __tablename__ = "blocked_wheels"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Not marked as a blob: the wheel may be none of this hub's."""
    reason: Mapped[str] = mapped_column(String(500))
    blocked_by: Mapped[str] = mapped_column(String(100))
    """Who has blocked it; empty for the operator's command line."""
    blocked_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


# ── people ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Account(Table):
    """A person who signs in with a password or an OpenID identity. The owner of the same name is theirs."""

    __tablename__ = "accounts"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("owners.id"), unique=True)
    name: Mapped[str] = mapped_column(String(39), unique=True)
    password: Mapped[str] = mapped_column(String(200))
    """The Argon2id hash, with its parameters; empty for an account without a password."""
    is_admin: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    disabled_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class AccountSession(Table):
    """A browser in which a person has signed in."""

    __tablename__ = "account_sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The SHA-256 digest of the cookie."""
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    browser: Mapped[str] = mapped_column(String(100))
    """The beginning of the `User-Agent` header."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    used_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    confirmed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """When the person last signed in again at the OpenID provider, in place of a password; null if not used yet."""


class AccessToken(Table):
    """A token that a person has made for a program."""

    __tablename__ = "access_tokens"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    name: Mapped[str] = mapped_column(String(60))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """The SHA-256 digest of the token."""
    scopes: Mapped[str] = mapped_column(String(200))
    """Scopes, separated by spaces."""
    packages: Mapped[str] = mapped_column(Text)
    """The packages to which it is limited, as `owner/name` separated by spaces; empty for no limit."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Organization(Table):
    """A group of accounts that owns packages under its own name."""

    __tablename__ = "organizations"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("owners.id"), unique=True)
    name: Mapped[str] = mapped_column(String(39), unique=True)
    public: Mapped[bool] = mapped_column(Boolean, default=False)
    """Whether everyone sees it and its members."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class OrganizationMember(Table):
    """An account that is a member of an organization."""

    __tablename__ = "organization_members"

    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(10))
    """A `ludus.registry.types.organizations.Role`."""
    joined_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class OrganizationInvitation(Table):
    """An invitation to become a member. It stays until its end when it is declined, or when there is no such account.

    So its sender cannot learn from it which accounts exist.
    """

    __tablename__ = "organization_invitations"

    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(39), primary_key=True)
    """The name that was invited."""
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), index=True)
    """The account that may accept; null if there was none, if it has declined, or if it was deleted."""
    role: Mapped[str] = mapped_column(String(10))
    invited_by: Mapped[str] = mapped_column(String(100))
    """The account that has invited. The invitation ends when that stops to be an owner of the organization."""
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Invitation(Table):
    """A code with which one person may register."""

    __tablename__ = "invitations"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The SHA-256 digest of the code."""
    created_by: Mapped[str] = mapped_column(String(100))
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class AuditEvent(Table):
    """Something that a person or an operator did."""

    __tablename__ = "audit_events"

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    actor: Mapped[str] = mapped_column(String(100), index=True)
    """Who did it; empty for the operator's command line."""
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(200))
    """What it was done to: an account, a package, or a token's name."""
    account: Mapped[str] = mapped_column(String(100), index=True)
    """The account that it is about, whose person may read it."""
    address: Mapped[str] = mapped_column(String(64))
    """The client's address; empty for the command line."""


class RateCount(Table):
    """How many events of a kind there were in a period, for all processes of the hub."""

    __tablename__ = "rate_counts"

    key: Mapped[str] = mapped_column(String(40), primary_key=True)
    """A digest of the kind and of the name or the address that it is about."""
    period: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    count: Mapped[int] = mapped_column(Integer)
    expires_at: Mapped[float] = mapped_column(Float(53), index=True)
    """Unix time from which the row counts no more."""
