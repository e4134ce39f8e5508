"""The page of the built-in environments has a row for each of them, measured."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from ludus.hub.seed import LIBRARY
from ludus.server.authoring.procedural import SECRET_VARIABLE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "environments.md"
PACKAGES = {path.parent.name: path.parent for path in (ROOT / "environments" / "library").glob("*/ludus.toml")}
"""The folders of the environments that are packages of their own, by name."""


def rows(table: int = 0) -> dict[str, list[str]]:
    """The cells of one of the page's tables by environment: what environments cost, or what shortcuts earn."""
    text = PAGE.read_text("utf-8").split("## What shortcuts earn")[table]
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def built_in() -> dict[str, Any]:
    """The classes of all built-in environments by name, also of those in the library."""
    ours = [one for one in entry_points(group="ludus.environments") if one.value.startswith(("ludus.", "ludus_"))]
    return {one.name: one.load() for one in ours}


def test_each_environment_has_a_row() -> None:
    assert sorted(rows()) == sorted(built_in())


def test_the_oracle_earns_the_most_and_guessing_and_giving_up_next_to_nothing() -> None:
    for name, cls in built_in().items():
        oracle, guessing, nothing = map(float, rows()[name][:3])
        assert oracle == cls.reward_range[1], name
        assert guessing <= (cls.random_baseline or 0.0) + 0.1, name
        assert nothing <= 0.0, name


def test_no_shortcut_earns_more_than_a_tenth_where_no_baseline_is_declared() -> None:
    found = rows(table=1)
    assert sorted(found) == sorted(built_in())
    for name, cells in found.items():
        *earned, random_play, oracle, allowed = cells
        shortcuts = [float(cell) for cell in earned if cell != "–"]
        assert shortcuts, name
        # Means of 48 games differ by chance from a declared baseline; where nothing is declared, the bar is a tenth.
        assert max(shortcuts) <= (0.1 if float(allowed) <= 0.05 else float(allowed) + 0.1), name
        assert float(oracle) == built_in()[name].reward_range[1]
        assert float(random_play) <= max(0.1, float(allowed))


@pytest.mark.parametrize("name", sorted(built_in()))
def test_the_readme_shows_a_whole_task_and_what_policies_earn(name: str) -> None:
    folder = PACKAGES.get(name, ROOT / "environments" / "ludus" / "environments" / name)
    text = (folder / "README.md").read_text("utf-8")
    example = text.split("<!-- begin: a whole task -->")[1].split("<!-- end: a whole task -->")[0]
    assert {"The prompt:", "The oracle's episode:", "It earns 1."} <= {*example.splitlines()}
    table = text.split("<!-- begin: what policies earn -->")[1].split("<!-- end: what policies earn -->")[0]
    assert "| oracle |" in table


def test_the_hub_publishes_each_environment_that_is_not_a_package_of_its_own() -> None:
    assert sorted([*LIBRARY, *PACKAGES]) == sorted(built_in())


@pytest.mark.parametrize("name", sorted(built_in()))
def test_a_secret_draws_other_test_tasks_where_the_page_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.search(r"For\s(`[^.]*`), a server with", " ".join(PAGE.read_text("utf-8").split()))
    assert said is not None
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public = built_in()[name].splits["test"].get(0)
    monkeypatch.setenv(SECRET_VARIABLE, "a long secret")
    assert (built_in()[name].splits["test"].get(0).id != public.id) == (f"`{name}`" in said[1])


def test_the_reference_and_the_readme_name_each_environment() -> None:
    reference = re.findall(r"^## (\w+)$", (ROOT / "docs" / "reference" / "environments.md").read_text("utf-8"), re.M)
    assert reference == sorted(built_in())
    for readme in ("docs/environments.md", "environments/README.md"):
        text = (ROOT / readme).read_text("utf-8")
        assert [name for name in built_in() if not re.search(rf"\b{name}\b", text)] == []
