"""Functions, classes and files stay small enough to be read: the tail is what a reader meets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("protocol", "server", "client_sdk", "environments", "trainer")
FUNCTION_P95, FUNCTION_MAX, FILE_MAX = 50, 100, 900


def sources() -> Iterator[Path]:
    for root in ROOTS:
        yield from sorted((ROOT / root / "ludus").rglob("*.py"))
    yield from sorted((ROOT / "environments" / "library").glob("*/ludus_*/**/*.py"))


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """A function, without the tree that it came from: all trees together are millions of objects."""

    path: Path
    name: str
    line: int
    lines: int

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} {self.name} ({self.lines} lines)"


@pytest.fixture(scope="module")
def functions() -> list[FunctionSize]:
    return [size for path in sources() for size in sizes_in(path, ast.parse(path.read_bytes(), str(path)))]


def sizes_in(path: Path, node: ast.AST) -> Iterator[FunctionSize]:
    """The functions in statements; expressions hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            assert child.end_lineno is not None
            yield FunctionSize(path, child.name, child.lineno, child.end_lineno - child.lineno + 1)
        yield from sizes_in(path, child)


def test_no_function_is_longer_than_the_budget(functions: list[FunctionSize]) -> None:
    assert [str(function) for function in functions if function.lines > FUNCTION_MAX] == []


def test_nineteen_functions_in_twenty_fit_on_a_screen(functions: list[FunctionSize]) -> None:
    lengths = sorted(function.lines for function in functions)
    assert lengths[int(0.95 * len(lengths))] <= FUNCTION_P95


def test_no_file_is_longer_than_the_budget() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert [f"{path.relative_to(ROOT)} ({count})" for path, count in lengths.items() if count > FILE_MAX] == []
