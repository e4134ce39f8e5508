"""The hub's own key, with which it signs the built-in library and the receipts of played runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE: Final = "hub-key.pem"
"""The hub's own key in the data folder."""


def hub_key(path: Path) -> Ed25519PrivateKey:
    """Return the hub's own key, and make it when there is none."""
    with contextlib.suppress(FileExistsError):
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # fails where another process was first, so that all of them use the same key
        finally:
            draft.unlink()
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return key
