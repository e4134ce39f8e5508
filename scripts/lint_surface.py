"""Check that tenants use only the public surface of the core: names in the `__all__` of the modules they import from.

    python scripts/lint_surface.py

The tenants are the hub, its client, hosted formats, adapters, the built-in environments, and the library's, which are
packages of their own: all stand on the core, and a core without them must not miss them. Nothing is imported; files are
parsed. A name is used where a tenant writes `from MODULE import NAME`, or reads `module.NAME` of a core module that it
imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import installer

ROOTS: Final = ("protocol", "server", "client_sdk", "environments", "trainer")
"""The folders of the namespace package."""

TENANTS: Final = ("ludus.hub", "ludus.registry", "ludus.formats", "ludus.integrations", "ludus.environments")
"""Packages that use the core, and that no module of the core needs."""


class Use(NamedTuple):
    """A name of the core that a tenant uses."""

    file: Path
    line: int
    module: str
    name: str


def main() -> None:
    """Print each use of a name that is not public, and exit 1 if there are any."""
    private = [use for use in uses() if use.name not in public_names(use.module)]
    for use in private:
        path = use.file.relative_to(installer.ROOT)
        print(f"{path}:{use.line}: {use.name} is not in the __all__ of {use.module}")
    if private:
        sys.exit(f"{len(private)} names: add them to `__all__` if authors of such packages may rely on them")


def uses() -> Iterator[Use]:
    """Yield the names of the core that tenants use."""
    folders = [installer.ROOT / root / Path(*tenant.split(".")) for tenant in TENANTS for root in ROOTS]
    for folder in [*folders, *sorted(installer.ROOT.glob("environments/library/*/ludus_*"))]:
        for file in sorted(folder.rglob("*.py")):
            yield from _uses_in(file)


def _uses_in(file: Path) -> Iterator[Use]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and _is_core(node.module):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if _file_of(submodule) is not None:
                    modules[alias.asname or alias.name] = submodule
                else:
                    yield Use(file, node.lineno, node.module, alias.name)
        elif isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname and _is_core(alias.name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield Use(file, node.lineno, modules[node.value.id], node.attr)


def _is_core(module: str) -> bool:
    return module.startswith("ludus.") and not f"{module}.".startswith(tuple(f"{tenant}." for tenant in TENANTS))


@cache
def _file_of(module: str) -> Path | None:
    for root in ROOTS:
        path = installer.ROOT / root / Path(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@cache
def public_names(module: str) -> frozenset[str]:
    """Return the names in the `__all__` of a module; none if it has no `__all__`."""
    file = _file_of(module)
    if file is None:
        return frozenset()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return frozenset(ast.literal_eval(value))
            case _:
                pass
    return frozenset()


if __name__ == "__main__":
    main()
