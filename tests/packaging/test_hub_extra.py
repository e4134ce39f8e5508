"""The extra `hub` installs what a hub imports: the tests have more installed, so they would not notice."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name
from wheelhouse import closure

HUB = Path(__file__).parents[2] / "server" / "ludus" / "hub"


def imported(path: Path) -> set[str]:
    """The packages that a module imports when it is imported itself."""
    found: set[str] = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found - {"ludus", *sys.stdlib_module_names}


def test_what_a_hub_imports_is_installed_by_its_extra() -> None:
    installed, homes = closure("ludus-rl[hub]"), packages_distributions()
    missing = {
        f"{path.relative_to(HUB)} imports {name}"
        for path in HUB.rglob("*.py")
        for name in imported(path)
        if not any(canonicalize_name(one) in installed for one in homes.get(name, ()))
    }
    assert not missing
