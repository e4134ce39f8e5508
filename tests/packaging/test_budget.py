"""Functions, classes and files stay small enough to be read: the tail is what a reader meets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("protocol", "server", "client_sdk", "environments", "trainer")
FUNCTION_P95, FUNCTION_MAX, FILE_MAX = 40, 100, 900

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[Path]:
    for root in ROOTS:
        yield from sorted((ROOT / root / "ludus").rglob("*.py"))


@pytest.fixture(scope="module")
def nodes() -> list[tuple[Path, ast.AST]]:
    trees = [(path, ast.parse(path.read_bytes(), str(path))) for path in sources()]
    return [(path, node) for path, tree in trees for node in ast.walk(tree)]


def lines(node: Function | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def place(path: Path, node: Function) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({lines(node)} lines)"


def test_no_function_is_longer_than_the_budget(nodes: list[tuple[Path, ast.AST]]) -> None:
    assert [place(p, n) for p, n in nodes if isinstance(n, Function) and lines(n) > FUNCTION_MAX] == []


def test_nineteen_functions_in_twenty_fit_on_a_screen(nodes: list[tuple[Path, ast.AST]]) -> None:
    lengths = sorted(lines(node) for _, node in nodes if isinstance(node, Function))
    assert lengths[int(0.95 * len(lengths))] <= FUNCTION_P95


def test_no_file_is_longer_than_the_budget() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert [f"{path.relative_to(ROOT)} ({count})" for path, count in lengths.items() if count > FILE_MAX] == []
