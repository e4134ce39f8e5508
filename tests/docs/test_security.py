"""SECURITY.md names tests that exist, and each of its promises has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from promises import holds_a_promise, promises

ROOT = Path(__file__).resolve().parents[2]


def names_in(path: Path) -> set[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def test_every_row_of_the_tables_is_a_promise_with_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| (?!promise)[^-]", line)]
    assert len(rows) == len(promises()) > 20
    for promise in promises():
        assert promise.tests, promise.text
        for file, name in promise.tests:
            path = ROOT / file
            assert path.exists(), file
            assert not name or name in names_in(path), f"{file} has no {name}"
    assert text.count("`tests/") == sum(len(promise.tests) for promise in promises())


@pytest.mark.parametrize("role", ["Strangers", "Agents", "Trainers", "Authors", "Operators"])
def test_each_role_has_a_table(role: str) -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition(f"### {role}\n")[2].partition("\n#")[0]
    assert section.count("`tests/") >= 2


def test_the_suite_of_attacks_has_exactly_the_tests_that_are_named() -> None:
    assert holds_a_promise("tests/mcp/test_secrecy.py::test_no_reply[a-b]")
    assert holds_a_promise("tests/mcp/test_play_plane.py::test_a_play_address_ends_with_the_token_that_made_it[x]")
    assert not holds_a_promise("tests/mcp/test_control_plane.py::test_only_post_is_allowed")
    assert not holds_a_promise("tests/cli/test_init.py::test_a")
