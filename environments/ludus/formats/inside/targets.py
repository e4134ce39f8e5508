"""Finds what a target names: `module:name`, `file.py:name`, or a name in a module of a folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from .adapter import MissingPackage, NotUsable


def load(target: str, example: str) -> Any:
    """Return the object that a target names.

    Args:
        target: `module:name` or `path/file.py:name`.
        example: a correct target, for messages.

    Raises:
        NotUsable: there is no such file, module or name, or it cannot be imported.
        MissingPackage: the module needs a package that is not installed.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise NotUsable(f"{target!r} names no class; write {example}")
    module = load_file(place) if place.endswith(".py") else load_module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotUsable(f"{place} has no {name!r}{_near(part, found)}")
        found = getattr(found, part)
    return found


def load_file(path: str) -> Any:
    """Import a file. If its folders are packages, it is imported as their module, so its relative imports work.

    Raises:
        NotUsable: there is no such file, or it cannot be imported.
    """
    full = os.path.abspath(path)
    if not os.path.isfile(full):
        raise NotUsable(f"there is no file {path!r} (looked in {os.getcwd()})")
    folder, names = os.path.dirname(full), [os.path.basename(full)[:-3]]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, own = os.path.split(folder)
        names.insert(0, own)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = ".".join(names)
    if not all(part.isidentifier() for part in names) or _is_taken(names[0], folder):
        return _import_alone(full)
    return load_module(name)


def load_module(name: str) -> Any:
    """Import a module.

    Raises:
        NotUsable: there is none, or it raises when it is imported.
        MissingPackage: it needs a package that is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(missing + "."):
            raise NotUsable(f"there is no module {name!r} here; name a file as path/file.py:Name") from None
        raise MissingPackage(missing.partition(".")[0], f"{name} needs it") from None
    except Exception as error:
        raise NotUsable(f"importing {name} raised {type(error).__name__}: {error}") from error


def _import_alone(path: str) -> Any:
    name = "ludus_hosted_" + "".join(char if char.isalnum() else "_" for char in os.path.basename(path)[:-3])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackage((error.name or "").partition(".")[0], f"{path} needs it") from None
    except Exception as error:
        raise NotUsable(f"importing {path} raised {type(error).__name__}: {error}") from error
    return module


def _is_taken(name: str, folder: str) -> bool:
    """Return whether a name is that of another module than the one in the folder."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return True
    origin = getattr(spec, "origin", None) or ""
    return not os.path.abspath(origin).startswith(os.path.join(folder, name))


def _near(name: str, module: Any) -> str:
    known = [other for other in dir(module) if not other.startswith("_") and other.lower() == name.lower()]
    return f"; did you mean {known[0]!r}?" if known else ""
