"""Packages that need a GPU, with names that can be imported and do nothing.

    stand_in("vllm", "deepspeed")

A trainer's modules import them next to the code that a test runs. What is called is the trainer's own.
"""

import importlib.abc
import importlib.machinery
import sys
import types


def stand_in(*packages: str) -> None:
    """Let these packages, and all modules in them, be imported."""
    sys.meta_path.append(_Finder(packages))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module) -> None:
        module.__version__ = "1.0"


class _Module(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (dict,), {})
