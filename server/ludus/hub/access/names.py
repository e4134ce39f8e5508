"""The rules for names of owners and packages, and names that look alike.

Names are ASCII, so no character of another script can imitate one. Among those, names that differ only in separators
or in characters that look alike have the same *skeleton*, and the database holds each skeleton once.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from packaging.utils import canonicalize_name

from ludus.common.hub import OWNER_PATTERN
from ludus.registry.types.errors import NameRefused
from ludus.registry.types.packages import NAME_LENGTH, NAME_PATTERN

RESERVED: Final = frozenset(
    {
        "about", "account", "admin", "all", "api", "apps", "assets", "board", "boards", "catalog", "css", "docs", "e",
        "environments", "events", "favicon", "files", "health", "help", "hub", "index", "js",
        "leaderboards", "live", "login", "logout", "mcp", "members", "metrics", "new", "openapi", "org",
        "organizations", "orgs", "owners", "play", "publish", "ready", "redoc", "register", "results", "robots",
        "rollouts", "runs", "search", "settings", "signup", "simple", "site", "static", "status", "tags", "tokens",
        "upload", "user", "users", "view", "well",
    }
)  # fmt: skip
"""Names that no owner may have, because they begin paths of the hub or would mislead."""

_OWNER: Final = re.compile(OWNER_PATTERN)
_NAME: Final = re.compile(NAME_PATTERN)
_ALIKE: Final = (("rn", "m"), ("vv", "w"), ("0", "o"), ("1", "l"), ("i", "l"), ("5", "s"))


def skeleton(name: str) -> str:
    """Return a name without separators, and with characters that look alike made equal."""
    plain = re.sub(r"[-_.]", "", name.lower())
    for one, other in _ALIKE:
        plain = plain.replace(one, other)
    return plain


def check_owner(owner: str) -> str:
    """Return an owner's name if it is valid.

    Raises:
        NameRefused: it has another form, or is reserved.
    """
    if not _OWNER.fullmatch(owner):
        raise NameRefused(
            f"{_shown(owner)} cannot be an owner's name: it takes 2 to 39 lower-case letters and digits, and begins "
            f"with a letter{_foreign(owner)}"
        )
    if owner in RESERVED:
        raise NameRefused(f"the owner's name {owner!r} is reserved; choose another one")
    return owner


def check_name(name: str) -> str:
    """Return a package's name if it is valid.

    Raises:
        NameRefused: it has another form.
    """
    if len(name) > NAME_LENGTH or not _NAME.fullmatch(name):
        raise NameRefused(
            f"{_shown(name)} cannot be a package's name: it takes at most {NAME_LENGTH} lower-case letters, digits "
            f"and single '-', '_' or '.' between them{_foreign(name)}"
        )
    return name


def split_id(text: str) -> tuple[str, str]:
    """Return the owner and the name of an `owner/name`.

    Raises:
        NameRefused: one of them is not valid.
    """
    owner, slash, name = text.partition("/")
    if not slash:
        raise NameRefused(f"{_shown(text)} is not owner/name")
    return check_owner(owner), check_name(name)


def distribution_name(owner: str, name: str) -> str:
    """Return the name that pip installs for `owner/name`, in normal form: `owner-name`."""
    return canonicalize_name(f"{owner}-{name}")


def id_of_distribution(distribution: str) -> tuple[str, str]:
    """Return the owner and the name of a distribution: what is before and after its first separator.

    Raises:
        NameRefused: it has no valid owner's name in front.
    """
    owner, dash, name = canonicalize_name(distribution).partition("-")
    if not dash:
        raise NameRefused(
            f"the distribution {_shown(distribution)} has no owner in front: name it OWNER-{distribution[:60]}"
        )
    return check_owner(owner), check_name(name)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "…")


def _foreign(text: str) -> str:
    """Return a hint with the first character that is not ASCII, which may look like one that is."""
    found = next((char for char in text if not char.isascii()), None)
    if found is None:
        return ""
    return f"; it has {ascii(found)}, {unicodedata.name(found, 'a character without a name')}"
