"""Every page of the site in a real Chromium: accessible in both themes, by keyboard only, narrow, small and quiet.

The list of pages comes from the routes of the application: a new page fails the first test until it has a visit in
`whole_site.py`. Needs Playwright, Chromium and the peer axe.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from axe import AXE
from openid_provider import openid_provider
from starlette.routing import Match, Route
from whole_site import ROUTES_WITHOUT_A_PAGE, Visit, WholeSite, whole_site

async_api: Any = pytest.importorskip("playwright.async_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE_SOURCE = Path(AXE).read_text(encoding="utf-8") if AXE else ""
SCREENSHOTS = os.environ.get("LUDUS_SCREENSHOTS", "")

Cookies = Callable[[str], dict[str, str]]
"""Returns the cookies of the browser of a person."""

LARGEST_PAGE = 60_000
WIDTHS = (1100, 420)
THEMES = ("light", "dark")

pytestmark = [
    pytest.mark.suite("hub"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

WEIGHT = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter(one => !one.name.includes("/images/")).reduce((sum, one) => sum + one.encodedBodySize, 0)"""

VIOLATIONS = "() => axe.run().then(all => all.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"

WATCH_THE_FOCUS = """() => {
  window.reached = new Set();
  window.unmarked = [];
  document.addEventListener("focusin", event => {
    window.reached.add(event.target);
    if (getComputedStyle(event.target).outlineStyle === "none") window.unmarked.push(event.target.outerHTML);
  });
}"""

INTERACTIVE = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']"
  )].filter(one => one.type !== "hidden" && one.checkVisibility({visibilityProperty: true}))"""

NOT_REACHED = f"() => ({INTERACTIVE})().filter(one => !window.reached.has(one)).map(one => one.outerHTML)"


@pytest.fixture
async def site(tmp_path: Path, serve: Any) -> AsyncIterator[WholeSite]:
    with openid_provider() as provider:
        async with whole_site(tmp_path, serve, provider) as found:
            yield found


def page_routes(site: WholeSite) -> dict[str, Route]:
    """The routes of the application that answer GET and belong to the site, by their path."""
    return {
        route.path: route
        for route in site.hub.app.router.routes
        if isinstance(route, Route) and "GET" in (route.methods or ()) and "ludus.hub.site" in route.endpoint.__module__
    }


class Looker:
    """Opens pages, and collects what is wrong with them."""

    def __init__(self, browser: Any, url: str, cookies: Cookies) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._url = url
        self._cookies = cookies
        self._contexts: dict[str | None, Any] = {}

    async def visit(self, visit: Visit) -> None:
        """Open a page and check it."""
        page = await (await self._context(visit.who)).new_page()
        page.set_default_timeout(30_000)
        said: list[str] = []
        page.on("console", lambda one: said.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        answer = await page.goto(visit.path)
        if answer.status != visit.status:
            self._note(visit, f"answers with {answer.status}")
        if visit.button:
            for name, value in visit.entries:
                await page.locator(f"[name='{name}']").fill(value)
            await page.get_by_role("button", name=visit.button, exact=True).click()
            await page.wait_for_load_state()
        if (size := await page.evaluate(WEIGHT)) > LARGEST_PAGE:
            self._note(visit, f"has {size} bytes with its files")
        await page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
        await self._check_keyboard(page, visit)
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("() => document.documentElement.scrollWidth")
            if wide > width:
                self._note(visit, f"is {wide} pixels wide on a screen of {width}")
            for theme in THEMES:
                await page.emulate_media(color_scheme=theme)
                if SCREENSHOTS:
                    await page.screenshot(path=f"{SCREENSHOTS}/{visit.name}-{width}-{theme}.png", full_page=True)
                if AXE:
                    await page.evaluate(AXE_SOURCE)
                    for problem in await page.evaluate(VIOLATIONS):
                        self._note(visit, f"axe, {theme}, {width} pixels: {problem}")
        if visit.status >= 400 or visit.button:  # the browser notes that a page is one of an error
            said = [one for one in said if "the server responded with a status of 4" not in one]
        if said:
            self._note(visit, f"the console has {said}")
        await page.close()

    async def _check_keyboard(self, page: Any, visit: Visit) -> None:
        await page.evaluate(WATCH_THE_FOCUS)
        count = await page.evaluate(f"() => ({INTERACTIVE})().length")
        for _ in range(count + 2):
            await page.keyboard.press("Tab")
        if missed := await page.evaluate(NOT_REACHED):
            self._note(visit, f"Tab does not reach {missed}")
        if unmarked := await page.evaluate("() => window.unmarked"):
            self._note(visit, f"the focus is not visible at {unmarked}")
        await page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0); }")

    async def _context(self, who: str | None) -> Any:
        if who not in self._contexts:
            context = self._contexts[who] = await self._browser.new_context(base_url=self._url)
            if who is not None:
                cookies = self._cookies(who).items()
                await context.add_cookies([{"name": name, "value": value, "url": self._url} for name, value in cookies])
        return self._contexts[who]

    def _note(self, visit: Visit, problem: str) -> None:
        self.problems.append(f"{visit.name} ({visit.path}) {problem}")


async def test_every_page_is_accessible_reachable_by_keyboard_narrow_small_and_quiet(site: WholeSite) -> None:
    routes = page_routes(site)
    visited, excepted = set(site.visits), set(ROUTES_WITHOUT_A_PAGE)
    assert visited | excepted == set(routes), "each page has a visit, or a reason why it has none"
    assert not visited & excepted
    visits = [visit for some in site.visits.values() for visit in some]
    assert len({visit.name for visit in visits}) == len(visits)
    for path, some in site.visits.items():
        for visit in some:
            scope = {"type": "http", "method": "GET", "path": visit.path.partition("?")[0], "headers": []}
            first = next(one for one in site.hub.app.router.routes if one.matches(scope)[0] is Match.FULL)
            assert first is routes[path] or visit.status == 404, f"{visit.path} is a page of {path}"
    visits.sort(key=lambda visit: not visit.name.startswith(("play", "device")))  # they end after some minutes
    await look_at(visits, site.hub.url, site.cookies)


async def look_at(visits: Iterable[Visit], url: str, cookies: Cookies) -> None:
    """Open pages of a hub in a browser; all that is wrong with any of them fails the test."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        looker = Looker(browser, url, cookies)
        for visit in visits:
            await looker.visit(visit)
        await browser.close()
    assert not looker.problems, "\n".join(looker.problems)
    if not AXE:
        pytest.skip("the peer axe is not installed (scripts/peers.py axe); the rest of this test has passed")


async def test_a_page_with_faults_is_found_out() -> None:
    """The checks of this file can fail."""
    page = (
        "<!doctype html><html lang=en><title>x</title><main><h1>x</h1><p style='color:#bbb;background:#fff'>pale</p>"
        "<div style='width:1900px'>wide</div><a href=/ tabindex=-1>missed</a><button style='outline:none'>a</button>"
        f"<script>console.error('loud')</script>{'x ' * LARGEST_PAGE}</main>"
    )

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        with pytest.raises(AssertionError) as failed:
            await look_at([Visit("faulty", "/", None)], f"http://127.0.0.1:{runner.addresses[0][1]}", lambda who: {})
    finally:
        await runner.cleanup()
    found = str(failed.value)
    for problem in ("bytes with its files", "pixels wide", "Tab does not reach", "focus is not visible", "loud"):
        assert problem in found, problem
    assert not AXE or "color-contrast" in found
