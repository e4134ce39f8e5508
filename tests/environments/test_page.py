"""The page of the built-in environments has a row for each of them, measured."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from ludus.environments._partition import SECRET_VARIABLE
from ludus.hub.seed import LIBRARY

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def rows(table: int = 0) -> dict[str, list[str]]:
    """The cells of one of the page's tables by environment: what environments cost, or what a small model solves."""
    text = PAGE.read_text("utf-8").split("## What a small model solves")[table]
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def built_in() -> dict[str, Any]:
    """The classes of all built-in environments by name."""
    ours = [one for one in entry_points(group="ludus.environments") if one.value.startswith("ludus.")]
    return {one.name: one.load() for one in ours}


def test_each_environment_has_a_row() -> None:
    assert sorted(rows()) == sorted(built_in())


def test_the_oracle_earns_the_most_and_guessing_and_giving_up_next_to_nothing() -> None:
    for name, cls in built_in().items():
        oracle, guessing, nothing = map(float, rows()[name][:3])
        assert oracle == cls.reward_range[1], name
        assert guessing <= (cls.random_baseline or 0.0) + 0.1, name
        assert nothing <= 0.0, name


def test_the_page_says_for_each_environment_what_a_small_model_solves_or_that_it_was_not_measured() -> None:
    found = rows(table=1)
    assert sorted(found) == sorted(built_in())
    for name, (level, solved, interval, mean, date) in found.items():
        if solved == "not measured":
            assert {level, interval, mean, date} == {"–"}
            continue
        assert level.strip("`").removeprefix(f"{name}-") in built_in()[name].variants
        won, played = map(int, re.findall(r"\d+", solved)[:2])
        low, high = (float(side) / 100 for side in re.findall(r"(\d+)%", interval))
        assert 0 < played <= 20
        assert low - 0.01 <= won / played <= high + 0.01
        assert won / played <= float(mean) + 0.01, "a task that is solved has a reward of at least 1"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_the_hub_publishes_each_environment() -> None:
    assert sorted(LIBRARY) == sorted(built_in())


@pytest.mark.parametrize("name", sorted(built_in()))
def test_a_secret_draws_other_test_tasks_where_the_page_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.search(r"For\s(`[^.]*`), a server with", " ".join(PAGE.read_text("utf-8").split()))
    assert said is not None
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public = built_in()[name].splits["test"].get(0)
    monkeypatch.setenv(SECRET_VARIABLE, "a long secret")
    assert (built_in()[name].splits["test"].get(0).id != public.id) == (f"`{name}`" in said[1])


def test_the_reference_and_the_readme_name_each_environment() -> None:
    root = PAGE.parents[1]
    reference = re.findall(r"^## (\w+)$", (root / "docs" / "reference" / "environments.md").read_text("utf-8"), re.M)
    assert reference == sorted(built_in())
    for readme in ("README.md", "environments/README.md"):
        text = (root / readme).read_text("utf-8")
        assert [name for name in built_in() if not re.search(rf"\b{name}\b", text)] == []
