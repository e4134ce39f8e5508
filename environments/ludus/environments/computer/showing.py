"""What a sandbox shows of the programs in `inside`, and how they are started."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

_ROOT: Final = "/opt/ludus"
_PACKAGE: Final = "ludus/environments/computer/inside"
PACKAGES: Final = f"{_ROOT}/packages"
"""Where a sandbox shows the packages of Python that the programs need."""

Shown = tuple[tuple[str, str], ...]


def programs() -> Shown:
    """Return the read-only paths that show the programs."""
    return ((str(Path(__file__).parent / "inside"), f"{_ROOT}/{_PACKAGE}"),)


def command(python: str, program: str, *arguments: str) -> list[str]:
    """Return the command that starts a program of `inside`.

    Modules that the agent has put into the work directory are not imported.
    """
    # Not PYTHONPATH, which the programs that it starts would inherit.
    start = f"import sys; sys.path[:0] = [{_ROOT!r}, {PACKAGES!r}]; sys.argv[0] = {program!r}; import runpy; "
    start += f"runpy.run_module('ludus.environments.computer.inside.{program}', run_name='__main__')"
    return [python, "-I", "-c", start, *arguments]


def packages(*names: str) -> Shown:
    """Return the read-only paths that show installed packages of Python.

    Raises:
        ModuleNotFoundError: one is not installed.
    """
    shown = []
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        place = Path(found.origin)
        place = place.parent if place.name == "__init__.py" else place
        shown.append((str(place), f"{PACKAGES}/{place.name}"))
    return tuple(shown)
