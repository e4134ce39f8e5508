"""The pages of training runs in a real Chromium: they renew themselves, and are accessible in both themes.

Needs Playwright and Chromium; with the peer axe, each page is checked.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from axe import AXE
from hubs import HubProcess
from training_hub import TrainingRun, opened

sync_api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.suite("hub"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


@pytest.fixture
def page(plain_hub: HubProcess) -> Iterator[Any]:
    """A narrow page; what the console reports fails the test."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            base_url=plain_hub.url, viewport={"width": 420, "height": 900}, bypass_csp=bool(AXE)
        )
        page, problems = context.new_page(), list[str]()
        page.set_default_timeout(60_000)
        page.on("console", lambda one: problems.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield page
        browser.close()
    assert problems == []


def filled(client: Any, name: str, factor: float) -> TrainingRun:
    """A run with curves of several kinds."""
    run = opened(client, name=name, steps=200, config={"learning_rate": 1e-6})
    names = ("reward/mean", "loss/total", "loss/entropy", "evaluation/toss/pass@1", "evaluation/toss/pass@2")
    for start in (1, 101):
        run.send(
            [
                (step, {
                    **{one: math.sin(step / (9 + n)) * factor for n, one in enumerate(names)},
                    "ends/completed": step / 200, "ends/step_limit": 1 - step / 200, "constant": 1.0,
                })
                for step in range(start, start + 100)
            ]
        )  # fmt: skip
    return run.again("attempt-2", 150)


def test_pages_renew_themselves_and_are_accessible(plain_hub: HubProcess, page: Any) -> None:
    with plain_hub.client() as client:
        first, second = filled(client, "first", 1.0), filled(client, "second", 2.0)
        pages = (
            "/training", f"/training/{first.key}", f"/training/{first.key}?chart=loss/total",
            f"/training/compare?run={first.key}&run={second.key}",
        )  # fmt: skip
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for path in pages:
                page.goto(path)
                page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
                assert page.evaluate("() => document.documentElement.scrollWidth") <= 420, path
                if folder := os.environ.get("LUDUS_SCREENSHOTS"):
                    page.screenshot(path=f"{folder}/{theme}{pages.index(path)}.png", full_page=True)
                if AXE:
                    page.add_script_tag(path=AXE)
                    run = "() => axe.run().then(all => all.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
                    assert page.evaluate(run) == [], path
        page.goto(f"/training/{first.key}")
        assert "step 150" in page.inner_text("#live")
        first.steps(151, 177)
        page.get_by_text("step 177").wait_for()
        client.post(f"{first.path}/end", json={"attempt": first.attempt})
        page.locator("#live").get_by_text("finished").wait_for()
        assert page.locator("[hx-get]").count() == 0, "an ended run is not asked for again"
