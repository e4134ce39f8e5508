"""The tables of packages in docs/architecture.md and the READMEs: from the layers in pyproject.toml and docstrings."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from installer import LIBRARY

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("protocol", "server", "client_sdk", "environments", "trainer")
"""The folders that have packages of the namespace `ludus`."""


def all_packages() -> str:
    """Return every package with its layer, the lowest first, and what it must not import of the layers below it."""
    config = _contracts()
    layers = next(one["layers"] for one in config["contracts"] if one["type"] == "layers" and "containers" not in one)
    number = {name: at for at, layer in enumerate(reversed(layers), 1) for name in layer.split(" | ")}
    if set(number) != {name for name in config["root_packages"] if name.startswith("ludus.")}:
        raise SystemExit("pyproject.toml: the root packages of import-linter are not those of its layers")
    lines = ["| layer | package | holds | must not import either |", "|---|---|---|---|"]
    for name in sorted(number, key=lambda one: (number[one], one)):
        below = {other for other, at in number.items() if at < number[name]}
        forbidden = sorted(below & _forbidden(config["contracts"], name))
        shown = ", ".join(f"`{other.removeprefix('ludus.')}`" for other in forbidden) or "–"
        path = _path(name)
        folder = path.relative_to(ROOT).parts[0]
        lines.append(f"| {number[name]} | [`{name}`](../{folder}/README.md) | {_about(path)} | {shown} |")
    return "\n".join(lines)


def packages_of(folder: str) -> str:
    """Return the packages of a folder of the repository, each followed by the packages in it."""
    lines = ["| package | holds |", "|---|---|"]
    for path in sorted((ROOT / folder / "ludus").iterdir()):
        if (path / "__init__.py").exists():
            lines.append(_row(path))
            lines += [_row(inner) for inner in _inner(path)]
    for path in LIBRARY:
        if path.is_relative_to(ROOT / folder):
            (module,) = path.glob("ludus_*")
            lines.append(f"| [`{module.name}`]({path.relative_to(ROOT / folder)}) | {_about(module)} |")
    return "\n".join(lines)


def _row(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return f"| [`{'.'.join(parts[1:])}`]({'/'.join(parts[1:])}) | {_about(path)} |"


def _inner(path: Path) -> Iterator[Path]:
    """Yield the packages in a package: those with layers of their own from the lowest one, others by name."""
    inner = {one.name: one for one in sorted(path.iterdir()) if (one / "__init__.py").exists()}
    ranks = [
        name
        for one in _contracts()["contracts"]
        if one.get("containers") == [f"ludus.{path.name}"]
        for layer in reversed(one["layers"])
        for name in sorted(layer.split(" | "))
    ]
    ordered = [name for name in ranks if name in inner]
    for name in [*ordered, *(name for name in inner if name not in ordered)]:
        if not name.startswith("_"):
            yield inner[name]


def _about(path: Path) -> str:
    """Return the first line of a package's docstring."""
    text = ast.get_docstring(ast.parse((path / "__init__.py").read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{path.relative_to(ROOT)} has no docstring, which the tables of packages show")
    return text.partition("\n")[0].rstrip(".").replace("|", "\\|")


def _path(name: str) -> Path:
    return next(path for folder in FOLDERS if (path := ROOT / folder / name.replace(".", "/")).is_dir())


def _forbidden(contracts: list[dict[str, Any]], name: str) -> set[str]:
    """Return the modules that contracts forbid a package besides its layer."""
    own = [one for one in contracts if one["type"] == "forbidden" and name in one["source_modules"]]
    return {module for one in own for module in one["forbidden_modules"]}


def _contracts() -> dict[str, Any]:
    tool: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return dict(tool["importlinter"])
