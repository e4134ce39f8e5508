"""Secrets in settings that leave a machine: senders remove them, and receivers refuse those that they recognize.

A secret is recognized by the name of its key (`password`, `hub_token`, …) or by its form (tokens of well-known
services, private keys, an address with a password). This finds mistakes; it cannot find every secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

REMOVED: Final = "(removed)"
"""What a sender puts in place of a secret."""

_NAMES: Final = re.compile(
    r"(^|[_.-])(password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|"
    r"authorization|credentials?|(access|auth|hub|hf|api|bearer|refresh|session)[_-]?token)$|^token$",
    re.IGNORECASE,
)
_FORMS: Final = re.compile(
    r"ludus_hub_[0-9a-f]{8,}|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{15,}|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]*:[^\s/@]+@"
)
_PLACEHOLDER: Final = re.compile(r"\s*|\(.*\)|<.*>|\*+|none|null", re.IGNORECASE)


def find_secret(value: Any) -> str | None:
    """Return the place of the first secret in a JSON value, such as `hub.token`; None if none is recognized."""
    return next(_places(value, ()), None)


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a JSON value in which every text that is recognized as a secret is `REMOVED`.

    Args:
        value: the value.
        name: the key at which it stands; empty for the outermost value.
    """
    if isinstance(value, Mapping):
        return {key: without_secrets(one, str(key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(one, name) for one in value]
    return REMOVED if isinstance(value, str) and _is_secret(name, value) else value


def _places(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if _FORMS.search(str(key)):
                yield ".".join((*path, "(a key)"))
            yield from _places(one, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _places(one, path)
    elif isinstance(value, str) and _is_secret(path[-1] if path else "", value):
        yield ".".join(path)


def _is_secret(name: str, text: str) -> bool:
    named = _NAMES.search(name) is not None and _PLACEHOLDER.fullmatch(text) is None
    return named or _FORMS.search(text) is not None
