"""The browser's tools as an MCP server inside a sandbox: Chromium, driven by Playwright.

Every action has a limit of time. A page that hangs or has crashed is given up, and the next `open` gets a new one.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, TypeVar

from ludus.environments.computer.inside.stdio_mcp import Image, Refused, ServedTool, serve

T = TypeVar("T")

_TREE_CHARS: Final = 20_000
_TEXT_CHARS: Final = 10_000
_TABS: Final = 8
_NOTES: Final = 8
_ELEMENT_MS: Final = 4_000
_LOAD_MS: Final = 6_000
_SETTLE_MS: Final = 80
_ACTION_SECONDS: Final = 12.0
_LOCAL: Final = re.compile(r"http://(127\.0\.0\.1|localhost)(:\d+)?(/.*)?", re.DOTALL)
_REFERENCE: Final = re.compile(r"(f\d+)?e\d+")
_MARK: Final = re.compile(r" \[ref=((?:f\d+)?e\d+)\]")
_FLAGS: Final = (
    # Chromium's own sandbox needs user namespaces, which the system-call filter refuses. The sandbox around the whole
    # browser takes its place: the page's process has no more rights than the agent's commands.
    "--no-sandbox",
    "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--disable-extensions", "--disable-breakpad",
    "--disable-background-networking", "--disable-sync", "--mute-audio", "--renderer-process-limit=4",
    "--js-flags=--max-old-space-size=256", "--disable-features=Vulkan,WebRtcHideLocalIpsWithMdns",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)  # fmt: skip


class Browser:
    """Chromium with its tabs; the methods are the tools."""

    def __init__(self, context: Any, downloads: Path) -> None:
        self._context = context
        self._downloads = downloads
        self._page: Any = None
        self._lost: str | None = None
        self._notes: list[str] = []
        self._accepts = False
        self._reply = ""
        context.set_default_timeout(_ELEMENT_MS)
        context.set_default_navigation_timeout(_LOAD_MS)
        context.on("page", self._on_page)

    async def open(self, url: str) -> str:
        """Open an address of this computer."""
        if not _LOCAL.fullmatch(url):
            raise Refused("this browser opens addresses of this computer only, such as http://127.0.0.1:8000/")
        if self._lost is not None or self._page is None or self._page.is_closed():
            await self._renew()
        try:
            await self._within(self._page.goto(url, wait_until="domcontentloaded"))
        except Refused:
            await self._renew()  # a page that hangs also holds up the way to the next one
            await self._within(self._page.goto(url, wait_until="domcontentloaded"))
        return await self._look()

    async def look(self) -> str:
        """Return the page as it is now."""
        return await self._look()

    async def click(self, ref: str) -> str:
        """Click an element."""
        await self._within(self._element(ref).click())
        return await self._look()

    async def type(self, ref: str, text: str) -> str:
        """Replace the text of a field."""
        await self._within(self._element(ref).fill(text))
        return await self._look()

    async def press(self, key: str) -> str:
        """Press a key."""
        await self._within(self._open_page().keyboard.press(key))
        return await self._look()

    async def select(self, ref: str, option: str) -> str:
        """Choose an option of a list."""
        await self._within(self._element(ref).select_option(label=option))
        return await self._look()

    async def scroll(self, pages: float = 1.0) -> str:
        """Scroll down, or up by a negative number."""
        await self._within(self._open_page().mouse.wheel(0, 700 * max(-100.0, min(100.0, pages))))
        return await self._look()

    async def back(self) -> str:
        """Return to the page before."""
        await self._within(self._open_page().go_back(wait_until="domcontentloaded"))
        return await self._look()

    async def read(self, start: int = 0) -> str:
        """Return the page's text."""
        script = "limit => document.body ? document.body.innerText.slice(0, limit) : ''"
        text = str(await self._within(self._open_page().evaluate(script, start + _TEXT_CHARS + 1)))[start:]
        if len(text) > _TEXT_CHARS:
            return f"{text[:_TEXT_CHARS]}\n[more text from start={start + _TEXT_CHARS}]"
        return text

    async def screenshot(self) -> Image:
        """Return a picture of the visible part."""
        return Image(await self._within(self._open_page().screenshot(timeout=_ELEMENT_MS)))

    async def tab(self, number: int) -> str:
        """Go to another tab."""
        pages = self._context.pages
        if not 1 <= number <= len(pages):
            raise Refused(f"there is no tab {number}; there are {len(pages)}")
        self._page, self._lost = pages[number - 1], None
        await self._within(self._page.bring_to_front())
        return await self._look()

    def dialogs(self, accept: bool, text: str = "") -> str:
        """Choose how further dialogs are answered."""
        self._accepts, self._reply = accept, text
        return "Further dialogs are " + ("accepted." if accept else "dismissed.")

    # ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _within(self, action: Awaitable[T]) -> T:
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(_ACTION_SECONDS):
                return await action
        except TimeoutError:
            self._lost = "does not respond"
            raise Refused("the page does not respond; open another") from None
        except Error as error:
            raise Refused(self._explain(error.message.partition("\n")[0])) from None

    def _explain(self, message: str) -> str:
        if self._lost is not None or "crashed" in message:
            self._lost = self._lost or "has crashed"
            return f"the page {self._lost}; open another"
        if "aria-ref" in message or "Timeout" in message:
            return f"that did not work in time; look again, since references change with the page ({message[:200]})"
        return message[:400]

    def _open_page(self) -> Any:
        if self._page is None:
            raise Refused("no page is open; open one first")
        if self._lost is not None:
            raise Refused(f"the page {self._lost}; open another")
        if self._page.is_closed():
            pages = self._context.pages
            if not pages:
                raise Refused("no page is open; open one first")
            self._page = pages[-1]
        return self._page

    def _element(self, ref: str) -> Any:
        if not _REFERENCE.fullmatch(ref):
            raise Refused(f"{ref[:40]!r} is not a reference; take one from the page, such as e12")
        return self._open_page().locator(f"aria-ref={ref}")

    async def _renew(self) -> None:
        for page in self._context.pages:
            closing = asyncio.ensure_future(page.close())
            await asyncio.wait({closing}, timeout=2)
            closing.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._lost = None
        self._page = await self._context.new_page()

    async def _look(self) -> str:
        page = self._open_page()
        await page.wait_for_timeout(_SETTLE_MS)
        page = self._open_page()
        loading = asyncio.ensure_future(page.wait_for_load_state("load", timeout=_LOAD_MS))
        await asyncio.wait({loading}, timeout=_LOAD_MS / 1000 + 1)
        if loading.done() and not loading.cancelled():
            loading.exception()  # a page that never finishes loading is shown as far as it is
        else:
            loading.cancel()
        tree = await self._within(page.aria_snapshot(mode="ai", timeout=_LOAD_MS))
        title = await self._within(page.title())
        lines = [f"{title[:200]} <{page.url[:500]}>"]
        pages = self._context.pages
        if len(pages) > 1:
            lines.append(f"[tab {pages.index(page) + 1} of {len(pages)}]")
        notes, self._notes = self._notes, []
        lines += notes
        shown = tree[:_TREE_CHARS]
        lines += [_line(line) for line in shown.split("\n")]
        if len(tree) > len(shown):
            lines.append(f"[{len(tree) - len(shown):,} more characters of the page left out; `read` shows its text]")
        return "\n".join(lines)

    # ── what pages cause by themselves ─────────────────────────────────────────────────────────────────────────────

    def _note(self, text: str) -> None:
        if len(self._notes) < _NOTES:
            self._notes.append(f"[{text}]")

    def _on_page(self, page: Any) -> None:
        if len(self._context.pages) > _TABS:
            self._note("a further tab was closed: there are too many")
            _start(page.close())
            return
        page.on("crash", self._on_crash)
        page.on("dialog", self._on_dialog)
        page.on("download", self._on_download)
        if self._page is not None and self._lost is None:
            self._note("the page opened a new tab; go to it with `tab`")

    def _on_crash(self, page: Any) -> None:
        if page is self._page:
            self._lost = "has crashed"

    def _on_dialog(self, dialog: Any) -> None:
        accepts = self._accepts or dialog.type in ("alert", "beforeunload")
        self._note(f"{dialog.type}: {dialog.message[:300]!r}, {'accepted' if accepts else 'dismissed'}")
        _start(dialog.accept(self._reply) if accepts else dialog.dismiss())

    def _on_download(self, download: Any) -> None:
        name = re.sub(r"[^\w.-]", "_", os.path.basename(download.suggested_filename))[:100].lstrip(".") or "file"
        self._note(f"downloaded to {self._downloads / name}")
        _start(download.save_as(self._downloads / name))


def _start(action: Any) -> None:
    task = asyncio.ensure_future(action)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _line(line: str) -> str:
    """Put the reference of an element in front: `[e7] button "Buy"`."""
    found = _MARK.search(line)
    if found is None:
        return line
    rest = (line[: found.start()] + line[found.end() :]).replace(" [cursor=pointer]", "")
    indent = len(rest) - len(rest.lstrip(" "))
    return f"{rest[:indent]}- [{found[1]}] {rest[indent:].removeprefix('- ')}"


def _tools(browser: Browser) -> list[ServedTool]:
    text, ref = {"type": "string"}, {"type": "string", "description": "the element's reference, such as e12"}
    return [
        ServedTool("open", "Open a web page of this computer.", {"url": text}, browser.open),
        ServedTool("look", "Show the page as it is now, with a reference for each element.", {}, browser.look),
        ServedTool("click", "Click an element.", {"ref": ref}, browser.click),
        ServedTool("type", "Replace the text of a field.", {"ref": ref, "text": text}, browser.type),
        ServedTool("press", "Press a key, such as Enter, Tab or Control+A.", {"key": text}, browser.press),
        ServedTool("select", "Choose an option of a list by its text.", {"ref": ref, "option": text}, browser.select),
        ServedTool("scroll", "Scroll down by a number of screens; a negative number scrolls up.",
                   {"pages": {"type": "number", "default": 1}}, browser.scroll, ()),
        ServedTool("back", "Return to the page before.", {}, browser.back),
        ServedTool("read", "Show the page's text.",
                   {"start": {"type": "integer", "minimum": 0, "maximum": 100_000_000, "default": 0,
                              "description": "the first character to show"}}, browser.read, ()),
        ServedTool("screenshot", "Show a picture of the visible part of the page.", {}, browser.screenshot),
        ServedTool("tab", "Go to another tab.", {"number": {"type": "integer", "description": "from 1"}}, browser.tab),
        ServedTool("dialogs", "Choose how further dialogs of pages are answered; by default they are dismissed.",
                   {"accept": {"type": "boolean"}, "text": {"type": "string", "default": ""}}, browser.dialogs,
                   ("accept",)),
    ]  # fmt: skip


async def main(program: str, downloads: str) -> None:
    """Start Chromium and serve its tools."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=program, args=list(_FLAGS), timeout=25_000)
        context = await chromium.new_context(viewport={"width": 1024, "height": 768}, accept_downloads=True)
        await serve("browser", _tools(Browser(context, Path(downloads))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
