"""The errors of the hub's registry, as a branch of the tree in `ludus.protocol.errors`.

    RequestError
    ├── NameRefused           a name of another form, reserved, or too similar to one that exists
    ├── ManifestRefused       a manifest that is invalid or contradicts the wheel
    ├── WheelRefused          not a wheel, a broken one, or one that is unsafe to unpack
    ├── UploadRefused         an upload request with missing, repeated or broken parts
    ├── DigestMismatch        bytes that do not have the digest they should have
    ├── SignatureRefused      a signature that is missing or wrong, or of a key that the owner does not have
    │   └── KeyChanged        raised by clients only: a publisher's key is not the one that was pinned
    ├── PackageNotFound       (NotFound) no such package, or no such version
    ├── VersionBlocked        (Forbidden) an administrator has blocked the version's wheel; the message has the reason
    └── VersionConflict       (Conflict) the version exists with other content
    ServerError
    └── HubUnavailable        the hub's database, disk or object store cannot be used now
        └── BlobMissing       a file that the hub has lost, or that is not what it was
    AuthoringError
    └── PublishFailed         raised by clients only: the package cannot be published as it is
    LudusError
    └── InstallFailed         raised by clients only: pip or uv failed, or there is none

The hub sends the class's name as `data.kind` next to the code, and `registry_error` turns an answer into an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ludus.protocol.errors import (
    AuthoringError,
    CapacityError,
    Conflict,
    Forbidden,
    InvalidParams,
    LudusError,
    NotFound,
    PayloadTooLarge,
    RequestError,
    ServerError,
    Unauthenticated,
    from_wire,
)


class NameRefused(RequestError):
    """A name of another form, a reserved one, or one too similar to an existing name."""

    http_status = 422


class ManifestRefused(RequestError):
    """A manifest that is invalid or contradicts the wheel."""

    http_status = 422


class WheelRefused(RequestError):
    """A file that is not a wheel, is broken, or is unsafe to unpack."""

    http_status = 422


class UploadRefused(RequestError):
    """An upload with missing, repeated or broken parts."""

    http_status = 400


class DigestMismatch(RequestError):
    """Bytes that do not have the digest they should have."""

    http_status = 400


class SignatureRefused(RequestError):
    """A signature that is missing or wrong, or of a key that the owner does not have."""

    http_status = 422


class KeyChanged(SignatureRefused):
    """A publisher's key is not the one that was pinned. Raised by clients only."""


class PackageNotFound(NotFound):
    """No such package, or no such version of it."""


class VersionBlocked(Forbidden):
    """An administrator of the hub has blocked the version's wheel, so nothing installs or runs it."""

    @classmethod
    def of(cls, title: str, reason: str) -> VersionBlocked:
        """Return the error for what was blocked, such as `ada/maze 1.0.0` or a file's name, with the reason."""
        return cls(f"{title} is blocked on this hub: {reason}", reason=reason)


class VersionConflict(Conflict):
    """The version exists with other content."""


class RunElsewhere(Conflict):
    """A played run whose episodes are open in another process of the hub."""


class HubUnavailable(ServerError):
    """The hub's database, disk or object store cannot be used now."""

    http_status = 503


class BlobMissing(HubUnavailable):
    """A file that the hub has lost, or that is not what it was; its operator must restore it."""


class PublishFailed(AuthoringError):
    """A package cannot be published as it is. Raised by clients only."""


class InstallFailed(LudusError):
    """The installer failed, or there is none. Raised by clients only."""


KINDS: Final[Mapping[str, type[LudusError]]] = {
    kind.__name__: kind
    for kind in (
        NameRefused, ManifestRefused, WheelRefused, UploadRefused, DigestMismatch, SignatureRefused, PackageNotFound,
        VersionBlocked, VersionConflict, RunElsewhere, HubUnavailable, BlobMissing, Forbidden, InvalidParams,
        PayloadTooLarge, Unauthenticated, CapacityError,
    )
}  # fmt: skip
"""The classes that a hub may send, by name."""


def registry_error(code: int, message: str, data: Mapping[str, Any]) -> LudusError:
    """Return the exception for an error object of a hub."""
    facts = dict(data)
    kind = KINDS.get(str(facts.pop("kind", "")))
    return kind(message, **facts) if kind is not None else from_wire(code, message, facts)
