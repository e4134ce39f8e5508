"""Import packages of this library from their sources in this process."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any


@lru_cache(maxsize=512)
def compiled(source: str, name: str, mode: str = "exec") -> CodeType:
    """Return the code of a source of this library."""
    return compile(source, name, mode, dont_inherit=True)


class IsolatedImports:
    """Imports a package from its sources, for code that has `builtins` only; `sys.modules` stays as it is.

    Args:
        sources: the modules by their paths, such as `otter/store.py`. They are executed: only those of this library.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._modules: dict[str, ModuleType] = {}
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}

    def _path(self, name: str) -> str | None:
        base = name.replace(".", "/")
        return next((path for path in (f"{base}/__init__.py", f"{base}.py") if path in self._sources), None)

    def _load(self, name: str) -> ModuleType:
        if name in self._modules:
            return self._modules[name]
        parent, _, leaf = name.rpartition(".")
        if parent:
            self._load(parent)
        path = self._path(name)
        if path is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = self._modules[name] = ModuleType(name)
        package = name if path.endswith("/__init__.py") else parent
        module.__dict__.update(__builtins__=self.builtins, __package__=package, __file__=path)
        exec(compiled(self._sources[path], path), module.__dict__)
        if parent:
            setattr(self._modules[parent], leaf, module)
        return module

    def _import(
        self, name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:  # fmt: skip
        full = name
        if level:
            base = str((globals or {})["__package__"]).split(".")
            full = ".".join([*base[: len(base) - level + 1], *([name] if name else [])])
        top = full.partition(".")[0]
        if self._path(top) is None:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = self._load(full)
        if not fromlist:
            return self._modules[top]
        for one in fromlist:
            if not hasattr(module, one) and self._path(f"{full}.{one}"):
                self._load(f"{full}.{one}")
        return module


__all__ = ["IsolatedImports", "compiled"]
