"""The URLs of databases: recognized, and shown without their passwords."""

from __future__ import annotations

import re
from typing import Final

SCHEMES: Final = ("postgresql://", "postgres://")
"""How the URL of a database begins."""

_PASSWORD: Final = re.compile(r"(?<=://)([^/?#@:]*):.*@|([?&])(?:ssl)?password=[^&]*&?")


def is_database(text: str) -> bool:
    """Return whether the name of a journal is the URL of a database, and not the path of a file."""
    return text.startswith(SCHEMES)


def without_password(url: str) -> str:
    """Return the URL of a database as it may be shown: without its password."""
    return _PASSWORD.sub(lambda match: f"{match[1]}@" if match[1] is not None else match[2], url).rstrip("?&")
