"""The tables of signing in through an OpenID provider or on a device: identities, and sign-ins that have begun."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, DateTime, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ludus.hub.database.tables import BIG_ID, Table


class AccountIdentity(Table):
    """A person at an OpenID provider who may sign in to an account. An e-mail address never identifies anyone."""

    __tablename__ = "account_identities"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[int] = mapped_column(BIG_ID, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    issuer: Mapped[str] = mapped_column(String(300))
    subject: Mapped[str] = mapped_column(String(255))
    email: Mapped[str] = mapped_column(String(254))
    """The verified e-mail address at the last sign-in, which is only shown; empty if there was none."""
    gave_admin: Mapped[bool] = mapped_column(Boolean)
    """Whether the account is an administrator because of a group of this identity, and only as long as it is in it."""
    linked_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    used_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class PendingSignIn(Table):
    """A sign-in that has begun in one browser and has not come back from the provider, or waits for a name."""

    __tablename__ = "pending_sign_ins"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The SHA-256 digest of `state`, or of the browser's cookie for one that waits for a name."""
    browser: Mapped[str] = mapped_column(String(64))
    """The SHA-256 digest of the browser's cookie."""
    purpose: Mapped[str] = mapped_column(String(20))
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), index=True)
    """The account that began it; null for a stranger."""
    document: Mapped[str] = mapped_column(Text)
    """What belongs to it, as JSON."""
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), index=True)


class DeviceSignIn(Table):
    """A sign-in that has begun on a device, which a person confirms in a browser. It lasts for minutes."""

    __tablename__ = "device_sign_ins"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The SHA-256 digest of the device's secret."""
    code_digest: Mapped[str] = mapped_column(String(64), unique=True)
    """The SHA-256 digest of the code that the person enters."""
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), index=True)
    """The account that has entered the code; null for none."""
    state: Mapped[str] = mapped_column(String(20))
    """`pending`, `confirmed` or `denied`."""
    document: Mapped[str] = mapped_column(Text)
    """The token to make, as JSON."""
    address: Mapped[str] = mapped_column(String(64))
    """The address of the device."""
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), index=True)
    asked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """When the device asked for the token last."""
