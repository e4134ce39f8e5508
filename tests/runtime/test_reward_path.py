"""The path of a reward in docs/architecture.md is complete: no other type carries a reward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 8
"""The most types through which a reward passes."""


@pytest.fixture(scope="module")
def section() -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text.partition("## The path of a reward\n")[2].partition("\n## ")[0]


def carriers() -> Iterator[str]:
    """The classes of the protocol and the server with a field that holds rewards."""
    for root in ("protocol", "server"):
        for path in (ROOT / root / "ludus").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef):
                    fields = [ast.unparse(one.annotation) for one in node.body if isinstance(one, ast.AnnAssign)]
                    if any(re.search(r"\b(Reward|RewardEntry|Verdict)\b", one) for one in fields):
                        yield node.name


def test_a_reward_passes_through_few_types_and_each_is_where_the_page_says(section: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([\w/.]+)` \|", section, re.MULTILINE)
    assert 0 < len(rows) <= MOST
    for name, path in rows:
        assert re.search(rf"^class {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (name, path)


def test_every_type_that_carries_a_reward_is_named(section: str) -> None:
    assert {name for name in carriers() if f"`{name}`" not in section} == set()
