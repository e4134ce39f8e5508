"""What an endpoint sees of this machine: the hub's own installation, and nothing else of the hub."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Final

import ludus

PYTHON: Final = os.path.realpath(sys.executable)
"""The interpreter of all virtual environments: the hub's own, without its virtual environment."""

ENVIRONMENT: Final = "/environment"
"""Where an endpoint in a sandbox sees its virtual environment."""

PACKAGES: Final = "/packages"
"""Where an endpoint in a sandbox sees the folders of the hub's installation, as `/packages/0` and so on."""

SANDBOXES: Final = "/sandboxes"
"""Where an endpoint in a sandbox sees the folder with the socket of its broker; see `sandboxes.py`."""

SOCKET: Final = f"{SANDBOXES}/socket"

SITE_PACKAGES: Final = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
"""The folder of packages in a virtual environment."""


@cache
def hub_packages() -> tuple[str, ...]:
    """Return the folders in which the hub's own packages lie, in the order in which Python searches them."""
    roots = [str(Path(place).parent) for place in ludus.__path__]
    places = [*roots, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places if Path(place).is_dir()))


def shown_packages() -> tuple[tuple[str, str], ...]:
    """Return those folders, each with the path at which a sandbox shows it."""
    return tuple((place, f"{PACKAGES}/{number}") for number, place in enumerate(hub_packages()))
