"""Keys of accounts for model endpoints, encrypted: the database has the text, a file of the data folder the key to it.

Backups have the database and not this file, so a key cannot be read from a backup; a run that was open goes without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, InvalidToken

KEY_FILE: Final = "verified.key"
"""The name of the file in the hub's data folder."""


class Sealer:
    """Encrypts and decrypts.

    Args:
        path: the file of the key, which is made if there is none.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(descriptor, "wb") as file:
                file.write(Fernet.generate_key())
        self._fernet = Fernet(path.read_bytes())

    def seal(self, text: str) -> str:
        """Return a text encrypted."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str | None:
        """Return the text; None if it was encrypted with another key."""
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            return None
