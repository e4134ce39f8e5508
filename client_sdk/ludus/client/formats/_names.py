"""Encoding of tool names for providers, which allow letters, digits, `_` and `-`, and at most 64 characters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from ludus.protocol.episodes import ToolSpec

_ALLOWED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def encode(name: str) -> str:
    """Return the name itself if every provider accepts it, and otherwise a readable name with a fixed hash."""
    if _ALLOWED.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:54]
    return f"t_{readable[:53]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def decode(encoded: str, specs: Sequence[ToolSpec]) -> str:
    """Return the name of the tool whose encoded name is `encoded`; `encoded` itself if no tool matches."""
    return next((spec.name for spec in specs if encode(spec.name) == encoded), encoded)
