"""Tool names as providers allow them: letters, digits, `_` and `-`, at most 64 characters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from ludus.protocol.episodes import ToolSpec

_ALLOWED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def encode(name: str) -> str:
    """The name itself where every provider takes it; otherwise a readable name with a hash, the same every time."""
    if _ALLOWED.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:54]
    return f"t_{readable[:53]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def decode(encoded: str, specs: Sequence[ToolSpec]) -> str:
    """The name of the tool that `encode` made `encoded` of; `encoded` itself where no tool matches."""
    return next((spec.name for spec in specs if encode(spec.name) == encoded), encoded)
