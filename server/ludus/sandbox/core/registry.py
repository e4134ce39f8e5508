"""Lookup of sandbox providers by name in the entry-point group `ludus.sandboxes`, built-in ones included."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from ludus.sandbox.core.errors import SandboxUnavailable
from ludus.sandbox.core.model import SandboxProvider

__all__ = ["replace_provider"]


GROUP: Final = "ludus.sandboxes"
"""The entry-point group of providers: name → `module:Class`, where the class can be called without arguments."""

_replaced: dict[str, Callable[[], SandboxProvider]] = {}


def replace_provider(name: str, make: Callable[[], SandboxProvider]) -> None:
    """Let `find_provider` return another provider of that name in this process.

    Args:
        name: the name in the settings of sandboxes.
        make: creates the provider that takes its place.
    """
    _replaced[name] = make


def find_provider(name: str) -> SandboxProvider:
    """Create the provider of that name; it is not opened yet.

    Raises:
        SandboxUnavailable: there is no such provider, or a package that it needs is not installed.
    """
    if name in _replaced:
        return _replaced[name]()
    published = {entry.name: entry for entry in entry_points(group=GROUP)}
    entry = published.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, published, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(published)) or 'none'}"
        raise SandboxUnavailable(f"there is no sandbox {name!r}; {hint}")
    try:
        kind: Any = entry.load()
    except ModuleNotFoundError as error:
        raise SandboxUnavailable(
            f"the sandbox {name!r} needs the package {error.name!r}; install it with: pip install {error.name}, "
            "or choose another sandbox",
            package=error.name,
        ) from error
    provider: SandboxProvider = kind()
    return provider
