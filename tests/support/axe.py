"""axe-core, which checks the accessibility of pages in a browser."""

from __future__ import annotations

import os
from pathlib import Path

_PEER = Path(__file__).parents[2] / ".peers" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
AXE = os.environ.get("LUDUS_AXE") or (str(_PEER) if _PEER.exists() else "")
"""The path of its file: that of the peer, or of the variable LUDUS_AXE; empty if there is none."""
