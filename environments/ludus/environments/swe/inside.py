"""The part of `swe` that runs in a sandbox: import the policy's package from its sources, and run one hidden test.

Its text follows that of `ludus.server.rewards.isolated.inside`, which has the runner. The server loads it, too, for
the reference. A hidden test is a script that calls the package and notes what it returns; it holds inputs, and no
expected value.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import random
import sys
from typing import Any

from ludus.server.rewards.isolated import encode, serve

USUAL = (
    "abc", "argparse", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "io", "itertools", "json", "math", "operator", "re", "string", "textwrap",
    "typing",
)  # fmt: skip
"""Modules that are imported once for all tests, because packages may use them."""


class MemoryFinder:
    """Imports a package from its sources, by their paths such as `store/items.py`."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how to load a module of the package; None for another one."""
        base = name.replace(".", "/")
        for file, is_package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if file in self.sources:
                loader: Any = self
                return importlib.machinery.ModuleSpec(name, loader, origin=file, is_package=is_package)
        return None

    def create_module(self, spec: Any) -> None:
        """Ask for an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Execute the source of a module."""
        exec(compile(self.sources[module.__spec__.origin], module.__spec__.origin, "exec"), module.__dict__)


def run_check(code: Any, seed: int, builtins: Any = None) -> list[Any]:
    """Run a hidden test, and return what it noted, as pairs: "value" and an encoding, or "error" and a class's name.

    Args:
        code: the script, as text or compiled. It may call `note(value)`, `attempt(function, *arguments)`, which notes
            what the function returns or raises, and `rng`, the random generator that draws its inputs.
        seed: what the inputs are drawn from.
        builtins: the built-in functions, if not the usual ones.
    """
    noted: list[Any] = []

    def note(value: Any) -> None:
        noted.append(["value", encode(value)])

    def attempt(function: Any, *arguments: Any, **named: Any) -> None:
        try:
            value = function(*arguments, **named)
        except Exception as error:
            noted.append(["error", type(error).__name__])
        else:
            note(value)

    scope = {"__name__": "hidden", "note": note, "attempt": attempt, "rng": random.Random(seed)}
    if builtins is not None:
        scope["__builtins__"] = builtins
    try:
        exec(code, scope)
    except Exception as error:
        noted.append(["raised", type(error).__name__])
    return noted


def answer_check(request: dict[str, Any], case: Any) -> dict[str, Any]:
    """Import the policy's package, and run one hidden test; runs in the child."""
    sys.meta_path.insert(0, MemoryFinder(request["sources"]))
    try:
        return {"outcomes": run_check(*case)}
    except BaseException as error:
        return {"failed": type(error).__name__}


def serve_checks() -> None:
    """Run the hidden tests of a request; see `serve`."""
    for name in USUAL:
        importlib.import_module(name)
    serve(answer_check)


__all__ = ["run_check", "serve_checks"]
