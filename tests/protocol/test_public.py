"""What `ludus.protocol` offers is listed, documented and free of I/O."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from enum import Enum
from types import ModuleType

import pytest

import ludus.protocol as protocol

MODULES = [importlib.import_module(f"ludus.protocol.{info.name}") for info in pkgutil.iter_modules(protocol.__path__)]


def test_all_is_sorted_complete_and_true() -> None:
    homes = {name: module for module, names in protocol._MODULES.items() for name in names.split()}
    assert sorted(protocol.__all__) == sorted(homes)
    assert len(protocol.__all__) == len(set(protocol.__all__))
    for name, module in homes.items():
        assert getattr(protocol, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", protocol.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(protocol, name)
    if isinstance(value, type) or inspect.isfunction(value):
        assert value.__module__.startswith("ludus.protocol")
        assert (inspect.getdoc(value) or "").strip().endswith((".", "`", ":"))
        assert "!!! abstract" not in (value.__doc__ or "")
    else:
        assert any(name in _documented_constants(module) for module in MODULES), f"{name} has no docstring"


def _documented_constants(module: ModuleType) -> set[str]:
    body = ast.parse(inspect.getsource(module)).body
    found = set()
    for statement, following in zip(body, body[1:], strict=False):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if isinstance(target, ast.Name) and documented:
            found.add(target.id)
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_class_and_function_of_every_module_is_documented(module: ModuleType) -> None:
    assert module.__doc__
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type) or inspect.isfunction(value):
            assert value.__doc__, f"{module.__name__}.{name}"


def test_every_member_of_every_wire_enumeration_says_what_it_means() -> None:
    for kind in (protocol.EpisodeStatus, protocol.EndReason):
        assert issubclass(kind, Enum)
        source = ast.parse(inspect.getsource(kind)).body[0]
        assert isinstance(source, ast.ClassDef)
        texts = [node for node in source.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
        assert len(texts) == len(kind) + 1


def test_the_protocol_imports_nothing_that_could_do_io() -> None:
    code = (
        "import sys, ludus.protocol.jsonrpc\n"
        "from ludus.protocol import *\n"
        "print(*sorted({'asyncio', 'ssl', 'aiohttp', 'httpx', 'starlette', 'fastapi', 'mcp', 'torch', "
        "'ludus.server', 'ludus.client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
