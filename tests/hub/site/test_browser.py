"""A walk through the site in a real Chromium: by keyboard only, in both themes, and on a narrow screen.

Needs Playwright, Chromium and the peer axe.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import AXE
from hub_sites import SiteHub

sync_api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.suite("hub"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def problems() -> list[str]:
    """What the console has reported."""
    return []


def opened(
    chromium: Any, site: SiteHub, problems: list[str], theme: str = "light", width: int = 1100, bypass_csp: bool = False
) -> Any:
    context = chromium.new_context(
        base_url=site.url, color_scheme=theme, viewport={"width": width, "height": 900}, bypass_csp=bypass_csp
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return page


def tab_to(page: Any, name: str) -> None:
    """Press Tab until the element with this text or name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        shown = page.evaluate("() => document.activeElement.innerText || document.activeElement.name || ''")
        if name == shown.strip():
            return
    raise AssertionError(f"the keyboard does not reach {name!r}")


def test_a_person_finds_plays_and_saves_by_keyboard_only(
    chromium: Any, site: SiteHub, problems: list[str], tmp_path: Path
) -> None:
    page = opened(chromium, site, problems)
    page.goto("/")
    tab_to(page, "q")
    page.keyboard.type("hidden number")
    page.wait_for_url(re.compile("q=hidden"))
    page.locator("#results h2").first.wait_for()
    assert page.locator("#results h2").count() == 1
    tab_to(page, "ludus/guess-number")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/ludus/guess-number$"))
    tab_to(page, "Play by hand")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/play"))
    tab_to(page, "Start")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/play/"))
    low, high = map(int, re.findall(r"from (\d+) to (\d+)", page.inner_text("main"))[0])
    for turn in range(1, 30):
        if page.locator("text=The episode has ended").count():
            break
        number = (low + high) // 2
        tab_to(page, "a.number")
        page.keyboard.type(str(number))
        page.keyboard.press("Enter")
        page.locator(f"#turn-{turn}").wait_for()
        last = page.locator(".said").last.inner_text()
        low, high = (number + 1, high) if "is higher" in last else (low, number - 1)
    assert "reward" in page.inner_text("#now")
    tab_to(page, "Save as a demonstration")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "demonstration.jsonl")
    assert (tmp_path / "demonstration.jsonl").read_bytes().startswith(b"{")
    assert problems == []
    page.context.close()


PATHS = ("/", "/ludus/wordle", "/ludus/wordle/versions/0.1.0/diff", "/ludus/wordle/play", "/rollouts", "/nope/nope")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_is_accessible_and_fits_a_narrow_screen(
    chromium: Any, site: SiteHub, problems: list[str], theme: str, path: str
) -> None:
    page = opened(chromium, site, problems, theme, width=420, bypass_csp=bool(AXE))
    page.goto(path)
    page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 420
    folder = os.environ.get("LUDUS_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{theme}{path.replace('/', '_')}.png", full_page=True)
    assert [problem for problem in problems if "404" not in problem] == []
    if not AXE:
        page.context.close()
        pytest.skip("the peer axe is not installed (scripts/peers.py axe); the rest of this test has passed")
    page.add_script_tag(path=AXE)
    found = page.evaluate("() => axe.run().then(all => all.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == []
    page.context.close()
