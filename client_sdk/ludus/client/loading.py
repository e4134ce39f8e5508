"""Loading of objects by their address: `module:name`, or `path/file.py:name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from ludus.protocol.errors import NotFound


def load_object(source: str) -> Any:
    """Return the object that `source` names. Modules are also searched for in the working directory.

    Raises:
        NotFound: there is no such module, file or name. Exceptions of the module itself are not caught.
    """
    module, _, name = source.rpartition(":")
    if not module or not name:
        raise NotFound(f"{source!r} names nothing; write module:name or path/file.py:name")
    loaded = _file(Path(module)) if module.endswith(".py") else _module(module)
    try:
        return getattr(loaded, name)
    except AttributeError:
        raise NotFound(f"{module} has no {name!r}") from None


def _module(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFound(f"there is no module {name!r}; is its package installed?") from None
        raise


def _file(path: Path) -> Any:
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    # The hash keeps files of the same name apart. The module is registered because pydantic looks it up to resolve the
    # annotations of its classes.
    name = f"{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotFound(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
