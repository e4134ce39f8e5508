"""Loads environment classes by a specifier: `NAME`, `module:Class`, `file.py:Class` or `FORMAT:TARGET`.

Names come from the entry-point group `ludus.environments`, including those of Ludus itself, and formats from the group
`ludus.formats` (`ludus.server.tasks.formats`).
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.protocol.text import shorten_traceback
from ludus.server.authoring.environment import Environment
from ludus.server.tasks.formats import formats, parse_source, resolve

__all__ = ["import_file", "load_environment"]


GROUP: Final = "ludus.environments"
"""The entry-point group in which packages publish environments: name → `module:Class`."""

_STAMPS: Final[dict[str, tuple[int, int]]] = {}
"""The modification time and size of each file when it was imported, by path; a changed file is imported again."""


def load_environments(specs: Sequence[str]) -> list[type[Environment[Any]]]:
    """Return the classes that `specs` name, in order; a spec of a format may name several.

    Raises:
        EnvironmentNotFound: a name, module, file or class does not exist; the message suggests the nearest one.
        AuthoringError: importing failed, the object found is not an environment, or a format cannot use its target.
    """
    environments: list[type[Environment[Any]]] = []
    for spec in specs:
        source = parse_source(spec)
        environments += [_load(spec)] if source is None else resolve(source)
    return environments


def load_environment(spec: str) -> type[Environment[Any]]:
    """Return the class that `spec` names, which must be a single one; see `load_environments`."""
    environments = load_environments([spec])
    if len(environments) != 1:
        names = ", ".join(cls.name or cls.__name__ for cls in environments)
        raise AuthoringError(f"{spec!r} names {len(environments)} environments, where one is expected: {names}")
    return environments[0]


def _load(spec: str) -> type[Environment[Any]]:
    location, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    if location.endswith(".py"):
        return _pick(import_file(Path(location), spec), name, spec)
    if name:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return _pick(_import(location, spec, None), name, spec)
    return _by_name(spec)


def _by_name(name: str) -> type[Environment[Any]]:
    published = {entry.name: entry for entry in entry_points(group=GROUP)}
    entry = published.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, published, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(published)) or 'none'}."
        if (base := name.partition("-")[0]) != name and base in published:
            hint = f"name {base!r}, which includes its variants."
        raise EnvironmentNotFound(
            f"no environment is published as {name!r}; {hint} A class of your own is named as `module:Class` or "
            f"`file.py:Class`, and one of another system as FORMAT:TARGET (formats: {', '.join(sorted(formats()))})",
            environment=name,
        )
    return _pick(_import(entry.module, name, entry), entry.attr, name)


def _import(module: str, spec: str, entry: EntryPoint | None) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise EnvironmentNotFound(
                f"there is no module {missing!r}, which {spec!r} names", environment=spec
            ) from None
        raise AuthoringError(
            f"{spec!r} needs the package {missing!r}; install it with: {_install_command(missing, entry)}"
        ) from error
    except Exception as error:
        raise _import_failed(spec, error) from error


def import_file(path: Path, spec: str) -> ModuleType:
    """Import a Python file, again only if it has changed.

    Args:
        path: the file.
        spec: what names it, for messages.

    Raises:
        EnvironmentNotFound: there is no such file.
        AuthoringError: importing it failed.
    """
    if not path.is_file():
        near = difflib.get_close_matches(path.stem, [file.stem for file in path.parent.glob("*.py")], n=1)
        hint = f"; did you mean {path.with_name(near[0] + '.py')}?" if near else ""
        raise EnvironmentNotFound(f"there is no file {path}, which {spec!r} names{hint}", environment=spec)
    name, location = re.sub(r"\W", "_", path.stem), str(path.resolve())
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != location:
        # Keep files with the same name apart, and do not replace a module that other code imports.
        name = f"{name}_{hashlib.sha256(location.encode()).hexdigest()[:12]}"
    stamp = (path.stat().st_mtime_ns, path.stat().st_size)
    if name in sys.modules and _STAMPS.setdefault(location, stamp) == stamp:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, location)
    if module_spec is None or module_spec.loader is None:
        raise AuthoringError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    # Pickling, dataclasses and pydantic look up a class's module in `sys.modules`. The file may import its neighbors.
    sys.modules[name] = module
    _STAMPS[location] = stamp
    sys.path.insert(0, str(path.resolve().parent))
    try:
        module_spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        sys.modules.pop(name, None)
        raise AuthoringError(
            f"{path} needs the package {error.name!r}; install it with: pip install {error.name}"
        ) from error
    except BaseException as error:
        sys.modules.pop(name, None)
        if not isinstance(error, Exception):
            raise
        raise _import_failed(spec, error) from error
    return module


def _pick(module: ModuleType, name: str, spec: str) -> type[Environment[Any]]:
    candidates = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
    }
    if not name:
        if len(candidates) != 1:
            file = spec.rstrip(":")
            choices = f"; name one: {', '.join(f'{file}:{key}' for key in candidates)}" if candidates else ""
            raise EnvironmentNotFound(f"{spec!r} has {len(candidates)} environments{choices}", environment=spec)
        return next(iter(candidates.values()))
    if not hasattr(module, name):
        near = difflib.get_close_matches(name, list(candidates) or list(vars(module)), n=1, cutoff=0.4)
        location = spec.rpartition(":")[0] or spec
        listing = f"its environments are: {', '.join(candidates)}" if candidates else "it defines no environment"
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise EnvironmentNotFound(f"{location} has no class {name!r}; {listing}{hint}", environment=spec)
    value = getattr(module, name)
    if not (isinstance(value, type) and issubclass(value, Environment)):
        raise AuthoringError(
            f"{spec!r} is not an environment: it must be a class derived from ludus.server.Environment; "
            + (f"the environments there are: {', '.join(candidates)}" if candidates else "there is none in that module")
        )
    return value


def _import_failed(spec: str, error: Exception) -> AuthoringError:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    origin = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace is not None else ""
    message = str(error)
    if isinstance(error, SyntaxError):
        message, origin = error.msg, f" ({error.filename}, line {error.lineno})"
    text = "".join(traceback.format_exception(error))
    return AuthoringError(
        f"importing {spec!r} failed: {type(error).__name__}: {message}{origin}", traceback=shorten_traceback(text)
    )


def _install_command(missing: str, entry: EntryPoint | None) -> str:
    """Return the pip command for a missing package: by the extra of the entry's distribution that lists it, if any."""
    distribution = entry.dist if entry is not None else None
    for requirement in (distribution.requires or []) if distribution is not None else []:
        match = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", requirement)
        if distribution is not None and match and _plain(match[1]) == _plain(missing.partition(".")[0]):
            return f'pip install "{distribution.metadata["Name"]}[{match[2]}]"'
    return f"pip install {missing.partition('.')[0]}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
