"""The tokens that `ludus account login` keeps, by the hub's address, in a file in the user's configuration folder."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from ludus.registry.client import normal_address
from ludus.registry.keys import KeyFileUnusable, config_folder

TOKENS_FILE: Final = "hub-tokens.json"
"""The file in the folder of keys and pins; only its user can read it."""

NETRC_VARIABLE: Final = "NETRC"
"""The environment variable that names the file from which pip and uv take credentials."""


def saved_token(hub: str) -> str | None:
    """Return the kept token of a hub; None if there is none.

    Raises:
        KeyFileUnusable: the file cannot be read.
    """
    return _read().get(normal_address(hub))


def save_token(hub: str, token: str | None) -> Path:
    """Keep the token of a hub in place of the one before, or forget it, and return the file.

    Raises:
        KeyFileUnusable: the file cannot be read.
    """
    tokens, path = _read(), config_folder() / TOKENS_FILE
    if token is None:
        tokens.pop(normal_address(hub), None)
    else:
        tokens[normal_address(hub)] = token
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(tokens, file, indent=2)
    draft.replace(path)
    return path


def _read() -> dict[str, str]:
    path = config_folder() / TOKENS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise KeyFileUnusable(f"{path} cannot be read: {error}; remove it and sign in again") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for pair in found.items() for one in pair):
        raise KeyFileUnusable(f"{path} is not a file of tokens; remove it and sign in again")
    return found


@contextmanager
def for_installers(hub: str, token: str | None) -> Iterator[dict[str, str]]:
    """Yield the environment variables with which pip and uv send a token to a hub, and to no other host.

    The token is in a file that only this user can read, and not on the command line, which others can see. The user's
    own credentials for other hosts stay in force.

    Args:
        hub: the hub's address.
        token: the token; with None, nothing changes.
    """
    host = urlsplit(normal_address(hub)).hostname
    if token is None or host is None:
        yield {}
        return
    own = Path(os.environ.get(NETRC_VARIABLE) or Path.home() / ".netrc")
    with TemporaryDirectory(prefix="ludus-netrc-") as folder:
        path = Path(folder) / "netrc"
        others = own.read_text(encoding="utf-8", errors="replace") if own.is_file() else ""
        path.touch(mode=0o600)
        path.write_text(f"machine {host}\nlogin __token__\npassword {token}\n\n{others}", encoding="utf-8")
        yield {NETRC_VARIABLE: str(path)}
