"""Keep the packages that make hidden tests out of the sandboxes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VISIBLE: Final = ("/usr", "/lib", "/opt", str(Path(sys.base_prefix).resolve()))
"""The places of this machine that a sandbox may show."""


def hide_package(folder: Path, visible: Sequence[str] = VISIBLE) -> tuple[tuple[str, str], ...]:
    """Return the setting `readonly` with which an empty folder replaces a package in a sandbox.

    Args:
        folder: the folder of the package.
        visible: the places of this machine that a sandbox shows. If the folder is in none of them, nothing is needed.
    """
    seen = any(folder.is_relative_to(place) for place in visible)
    return ((str(Path(__file__).resolve().parent / "nothing"), str(folder)),) if seen else ()
