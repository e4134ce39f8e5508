"""Secrets in files, as container engines mount them, in place of environment variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from ludus.protocol.errors import AuthoringError

PASSWORD_FILE: Final = "LUDUS_HUB_DATABASE_PASSWORD_FILE"
"""The variable that names the file with the password of the database."""

_BYTES: Final = 4096


def secret_in(variable: str) -> str | None:
    """Return the secret in the file that an environment variable names; None if the variable is not set.

    Raises:
        AuthoringError: the file cannot be read, or holds nothing or more than one line.
    """
    name = os.environ.get(variable)
    if not name:
        return None
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(_BYTES + 1)
    except (OSError, ValueError) as error:
        raise AuthoringError(f"{variable}: the file {name} cannot be read ({type(error).__name__})") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or len(text) > _BYTES or "\n" in secret or "\0" in secret:
        raise AuthoringError(f"{variable}: the file {name} must hold one line with the secret")
    return secret


def with_password(url: str | None) -> str | None:
    """Return the address of a database with the password that `LUDUS_HUB_DATABASE_PASSWORD_FILE` names, if it is set.

    Raises:
        AuthoringError: see `secret_in`; or the address has a password or no user.
    """
    password = secret_in(PASSWORD_FILE) if url is not None and not url.startswith("sqlite:") else None
    if url is None or password is None:
        return url
    parts = urlsplit(url)
    user, separator, host = parts.netloc.rpartition("@")
    if not separator or ":" in user:
        raise AuthoringError(
            f"{PASSWORD_FILE} is set, so the database must be postgresql://USER@HOST/DATABASE, with a user and without "
            "a password"
        )
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
