"""Seeds that are derived from names."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """Return a seed below 2**48 derived from `parts`; different parts give independent seeds."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")
