"""The documentation opens with four doors, every page is two clicks away, and pages of one kind have one frame."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DOORS: Final = ("write.md", "play.md", "train.md", "publish.md")


def links(page: str) -> set[str]:
    """Return the pages of docs/ that a page of docs/ links to."""
    text = (DOCS / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", text)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_short_and_on_the_first_page(door: str) -> None:
    assert len((DOCS / door).read_text(encoding="utf-8").splitlines()) <= 120
    assert door in links("index.md")


def test_every_page_is_at_most_two_clicks_from_the_first_one() -> None:
    near = {"index.md", *links("index.md")}
    near |= {target for page in near if (DOCS / page).exists() for target in links(page)}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(pages - near) == []


@pytest.mark.parametrize("page", sorted((DOCS / "formats").glob("*.md")), ids=lambda page: page.stem)
def test_the_page_of_a_format_says_what_is_promised_and_what_is_not(page: Path) -> None:
    if page.stem == "benchmarks":
        return  # it is about several formats
    text = page.read_text(encoding="utf-8")
    assert re.match(rf"# `{page.stem}:`", text)
    assert [mark for mark in ("**Promised.**", "**Not promised.**") if text.count(f"\n\n{mark}") != 1] == []


@pytest.mark.parametrize("page", sorted((DOCS / "integrations").glob("*.md")), ids=lambda page: page.stem)
def test_the_page_of_a_trainer_has_the_parts_of_the_others(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert "Unscored episodes" in headings
    if page.stem != "endpoint":  # it has a part for each of five systems
        assert headings[:2] == ["Install", "Run"]
        assert any(heading.startswith("Traps of ") for heading in headings)
