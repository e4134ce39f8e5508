"""The peers' own Pythons, and what their processes are given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python_of(peer: str) -> str:
    """The peer's interpreter, or a skip with the reason."""
    path = ROOT / ".peers" / peer / "bin" / "python"
    if not path.exists():
        pytest.skip(f"the peer {peer!r} is not installed (.peers/{peer}); `python scripts/peers.py` installs it")
    return str(path)


def peer_variables() -> dict[str, str]:
    """The process environment of a peer: no update checks, no proxies, our loopback."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "OPENREWARD_DISABLE_UPDATE_CHECK": "1", "LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"}
