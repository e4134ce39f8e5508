"""The token that clients of `ludus sandboxd` present: from a file, or from an environment variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ludus.sandbox.core.errors import SandboxUnavailable

TOKEN_VARIABLE: Final = "LUDUS_SANDBOXD_TOKEN"
TOKEN_FILE_VARIABLE: Final = "LUDUS_SANDBOXD_TOKEN_FILE"


def read_token(file: Path | None = None) -> str | None:
    """Return the token in a file, or else that in LUDUS_SANDBOXD_TOKEN; None if there is neither.

    Raises:
        SandboxUnavailable: the file cannot be read, or does not contain exactly one token.
    """
    if file is None and (named := os.environ.get(TOKEN_FILE_VARIABLE)):
        file = Path(named)
    if file is None:
        return _check(os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE) if os.environ.get(TOKEN_VARIABLE) else None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxUnavailable(f"the token file {file} cannot be read: {error}") from None
    return _check(text, f"the token file {file}")


def _check(text: str, source: str) -> str:
    token = text.strip()
    if not token or any(not 33 <= ord(character) <= 126 for character in token):
        raise SandboxUnavailable(f"{source} must contain one token of printable ASCII characters without spaces")
    return token
