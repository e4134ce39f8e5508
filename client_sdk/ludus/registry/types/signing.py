"""Sign statements of publishers with Ed25519 over canonical JSON (RFC 8785), and check them.

The packages for this, `cryptography` and `rfc8785`, are not in the base install. Each function imports them when it is
called, and an error names the pip command.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

from ludus.common.distribution import missing_extra
from ludus.protocol.errors import LudusError
from ludus.protocol.model import WireModel
from ludus.registry.types.errors import SignatureRefused
from ludus.registry.types.packages import Manifest, Signed, Statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

EXTRA: Final = "registry"
"""The extra that installs the packages."""

KEY_PREFIX: Final = "ed25519:"
"""The prefix of a public key as text."""


def canonical(value: WireModel) -> bytes:
    """Return a value as canonical JSON.

    Raises:
        LudusError: it holds a number that canonical JSON cannot express, which is one beyond 2**53.
    """
    try:
        import rfc8785
    except ModuleNotFoundError as error:
        raise missing_extra(error, EXTRA) from None
    plain: Any = value.model_dump(mode="json", by_alias=True)
    try:
        return rfc8785.dumps(plain)
    except rfc8785.CanonicalizationError as error:
        raise LudusError(f"this cannot be signed: {error}; use smaller numbers and plain text") from None


def digest_of(value: WireModel) -> str:
    """Return the SHA-256 digest of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


def text_digest(text: str) -> str:
    """Return the SHA-256 digest of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def public_key(key: Ed25519PrivateKey) -> str:
    """Return the public part of a key as text."""
    return KEY_PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()


def sign(statement: Statement, key: Ed25519PrivateKey) -> Signed:
    """Return the statement with its signature."""
    signature = base64.b64encode(key.sign(canonical(statement))).decode()
    return Signed(statement=statement, key=public_key(key), signature=signature)


def check_signature(signed: Signed) -> None:
    """Check that the statement was signed with the key that it names.

    Raises:
        SignatureRefused: the signature or the key is wrong.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError as error:
        raise missing_extra(error, EXTRA) from None
    statement = signed.statement
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signed.key.removeprefix(KEY_PREFIX), validate=True))
        key.verify(base64.b64decode(signed.signature, validate=True), canonical(statement))
    except (InvalidSignature, ValueError):
        raise SignatureRefused(
            f"the signature of {statement.id} {statement.version} does not fit its statement and its key; "
            "do not use this version, and ask the publisher"
        ) from None


def check_contents(signed: Signed, manifest: Manifest, card: str) -> None:
    """Check a signature, and that its statement is about this manifest and this card.

    Raises:
        SignatureRefused: one of them differs from what was signed.
    """
    check_signature(signed)
    statement = signed.statement
    same = {
        "id": statement.id == manifest.id,
        "version": statement.version == manifest.version,
        "manifest": statement.manifest_sha256 == digest_of(manifest),
        "card": statement.card_sha256 == text_digest(card),
    }
    if wrong := [name for name, right in same.items() if not right]:
        raise SignatureRefused(
            f"the {' and the '.join(wrong)} of {manifest.id} {manifest.version} differs from what the publisher signed"
        )
