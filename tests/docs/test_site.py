"""The documentation builds as a site without a warning, and a reader needs no network for it."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
INTERNAL: Final = {"checks", "cli"}
"""Packages without a page: the frame that two others share, and the command, which has docs/cli.md."""

PACKAGES: Final = sorted(
    path.parent.name
    for path in ROOT.glob("*/ludus/*/__init__.py")
    if path.parent.name not in INTERNAL and "__all__" in path.read_text(encoding="utf-8")
)
"""Packages with public names of their own."""

LOADING: Final = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements that a browser loads without a click, and the attribute with the address."""


class Loads(HTMLParser):
    """The addresses that a browser loads with a page, its ids, and its text outside of code."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.text: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values["id"]} if "id" in values else set()
        self.classes |= set(values.get("class", "").split())
        self._code += tag in ("code", "pre", "script", "style")
        if tag in LOADING and (address := values.get(LOADING[tag])) and values.get("rel") != "canonical":
            self.addresses.append(address)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("code", "pre", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command of `make docs` into a folder of the tests."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Loads]:
    """What each page of the site loads and holds, by its path."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        parser = Loads()
        parser.feed(path.read_text(encoding="utf-8"))
        found[path.relative_to(site).as_posix()] = parser
    return found


pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("site"), pytest.mark.suite("site")]


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[str, Loads]) -> None:
    remote = {f"{page}: {address}" for page, loads in pages.items() for address in loads.addresses
              if re.match(r"([a-z]+:)?//", address)}  # fmt: skip
    assert remote == set()
    missing = {f"{page}: {address}" for page, loads in pages.items() for address in loads.addresses
               if page != "404.html" and not address.startswith("data:")
               and not (site / page).parent.joinpath(re.split("[?#]", address)[0]).exists()}  # fmt: skip
    assert missing == set()


def test_no_stylesheet_loads_anything_from_elsewhere(site: Path) -> None:
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    pattern = re.compile(r"(@import|url\()\s*[\"']?(https?:)?//")
    assert [sheet.name for sheet in sheets if pattern.search(sheet.read_text(encoding="utf-8"))] == []


def test_diagrams_are_drawn_while_building(pages: dict[str, Loads]) -> None:
    """The theme would load mermaid.js from a CDN for a block of the class `mermaid`."""
    assert [page for page, loads in pages.items() if "mermaid" in loads.classes] == []
    assert "diagram" in pages["architecture.html"].classes
    assert "diagram" in pages["spec/core/4-episodes.html"].classes


def test_search_needs_no_server(site: Path) -> None:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(script.partition("=")[2])
    assert any("exactly once" in entry["text"].lower() for entry in index["docs"])
    assert "iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_of_the_repository_is_on_the_site(pages: dict[str, Loads]) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    spec = [path for part in ("core", "modules", "transcripts") for path in ROOT.glob(f"spec/{part}/*.md")]
    chapters = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in spec}
    assert len(chapters) > 20
    assert sorted((written | chapters) - set(pages)) == []


def test_no_markup_is_left_as_text(pages: dict[str, Loads]) -> None:
    left = [page for page, loads in pages.items() if re.search(r"```|^#{1,4} |\]\(", "".join(loads.text), re.MULTILINE)]
    assert left == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_shows_every_public_name(pages: dict[str, Loads], package: str) -> None:
    public = importlib.import_module(f"ludus.{package}").__all__
    ids = pages[f"reference/{package}.html"].ids
    assert sorted(name for name in public if f"ludus.{package}.{name}" not in ids) == []


def test_every_name_in_the_glossary_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    names = re.findall(r"`(ludus(?:\.\w+)+)`", text)
    assert len(names) > 20
    assert [name for name in names if not exists(name)] == []


def test_every_word_in_the_glossary_has_one_sentence_and_a_link() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    words = [row for row in rows if row[0] not in ("word", "---")]
    assert [word for word, meaning in words if not re.fullmatch(r"[A-Z].*\(.*\[.+\]\(.+\)\)\.", meaning)] == []


def exists(name: str) -> bool:
    """Whether `name` is a module, or an attribute of one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_every_decision_has_a_date_a_decision_a_reason_and_a_consequence() -> None:
    entries = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").split("\n## ")[1:]
    shape = re.compile(
        r".+\n\n\*\d{4}-\d\d-\d\d\*\n\n\* \*\*Decision\.\*\* .+\n\* \*\*Reason\.\*\* .+\n\* \*\*Consequence\.\*\* .+\n*"
    )
    assert len(entries) >= 12
    assert [entry.partition("\n")[0] for entry in entries if not shape.fullmatch(entry)] == []
