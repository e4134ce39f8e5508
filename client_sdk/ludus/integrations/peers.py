"""Check that a system is installed, in a version that its adapter was tested with."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ludus.protocol.errors import PeerNotUsable

UNTESTED_VARIABLE: Final = "LUDUS_UNTESTED_PEERS"
"""The environment variable that permits other versions than the tested ones."""


def require(distribution: str, tested: str) -> None:
    """Check an installed distribution.

    Args:
        distribution: the name that pip knows.
        tested: the version that the adapter was tested with; any patch of the same minor version is fine.

    Raises:
        PeerNotUsable: it is missing, or of another minor version and the variable `LUDUS_UNTESTED_PEERS` is not set.
    """
    minor = ".".join(tested.split(".")[:2])
    command = f"pip install '{distribution}=={minor}.*'"
    try:
        found = version(distribution)
    except PackageNotFoundError:
        raise PeerNotUsable(f"{distribution} is not installed; install it with: {command}") from None
    if found.split(".")[:2] != tested.split(".")[:2] and not os.environ.get(UNTESTED_VARIABLE):
        raise PeerNotUsable(
            f"{distribution} {found} is installed, and this adapter was tested with {tested}; "
            f"run: {command}, or set {UNTESTED_VARIABLE}=1 to use {found}"
        )
