"""The one tab of an episode's browser: it opens addresses of the sites, shows the page, and acts on its elements.

Each request of the browser is intercepted: the sites answer those to their own addresses, and all others fail. Chromium
that ends or hangs is started again at the same address; the sites and their state are not in it.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from ludus.environments.browser.driver.chromium import chromium_command
from ludus.environments.browser.driver.devtools import BrowserGone, Devtools, DevtoolsError
from ludus.environments.browser.driver.snapshot import Snapshot
from ludus.environments.browser.sites.web import Request, Response
from ludus.protocol.errors import InfrastructureFailed
from ludus.sandbox import Process, Sandbox
from ludus.server import ToolError

T = TypeVar("T")

LOAD_SECONDS: Final = 20.0
_RESTARTS: Final = 3
_SAFE: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; form-action http://shop.test http://wiki.test "
    "http://issues.test; base-uri 'none'; frame-ancestors 'none'"
)
KEYS: Final[dict[str, tuple[str, int, str]]] = {
    "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, ""), "Space": (" ", 32, " "),
    "Backspace": ("Backspace", 8, ""), "Delete": ("Delete", 46, ""), "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowDown": ("ArrowDown", 40, ""), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, ""),
    "Home": ("Home", 36, ""), "End": ("End", 35, ""), "PageUp": ("PageUp", 33, ""), "PageDown": ("PageDown", 34, ""),
}  # fmt: skip
"""The keys that can be pressed: key, code of Windows, and text."""
_NEXT_FRAME: Final = "new Promise(done => requestAnimationFrame(() => setTimeout(() => setTimeout(done, 0), 0)))"
_FILL: Final = """function(text) {
  if (this.disabled || this.readOnly) return "disabled";
  if (!(this instanceof HTMLInputElement || this instanceof HTMLTextAreaElement)) return "no field";
  if (["checkbox", "radio", "submit", "button", "hidden", "file"].includes(this.type)) return "no field";
  this.focus();
  const kind = this instanceof HTMLInputElement ? HTMLInputElement : HTMLTextAreaElement;
  Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(this, text);
  this.dispatchEvent(new Event("input", {bubbles: true}));
  this.dispatchEvent(new Event("change", {bubbles: true}));
  return this.value === text ? "" : "kept " + this.value;
}"""
_SELECT: Final = """function(wanted) {
  if (!(this instanceof HTMLSelectElement)) return "no list";
  if (this.disabled) return "disabled";
  const options = Array.from(this.options), plain = one => one.text.trim();
  const found = options.find(one => plain(one) === wanted) || options.find(one => one.value === wanted);
  if (!found) return "no option " + options.map(plain).join("; ");
  this.focus();
  this.value = found.value;
  this.dispatchEvent(new Event("input", {bubbles: true}));
  this.dispatchEvent(new Event("change", {bubbles: true}));
  return "";
}"""
_KIND: Final = "function() { return this.isConnected ? this.tagName : ''; }"


class Tab:
    """The tab.

    Args:
        sandbox: where Chromium runs.
        answer: the sites.
        hosts: the names of the sites.
    """

    def __init__(self, sandbox: Sandbox, answer: Callable[[Request], Response], hosts: tuple[str, ...]) -> None:
        self._sandbox, self._answer, self._hosts = sandbox, answer, hosts
        self._process: Process | None = None
        self._devtools: Devtools | None = None
        self._session = ""
        self._target = ""
        self._url = "about:blank"
        self._navigating = False
        self._fault: Exception | None = None
        self._moved = asyncio.Event()
        self._references: dict[int, str] = {}
        self._elements: dict[str, int] = {}
        self._last = 0
        self._starts = 0
        self._notes: list[str] = []

    # ── what the tools do ──────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, url: str) -> None:
        """Open an address.

        Raises:
            ToolError: it is none of the sites'.
        """
        self._check(url)
        await self._guarded(lambda: self._goto(url), lost=url)

    async def snapshot(self, page: int = 1) -> str:
        """Return a part of the page as text."""
        return await self._guarded(lambda: self._snapshot(page))

    async def click(self, ref: str) -> None:
        """Click an element."""
        await self._guarded(lambda: self._click(ref))

    async def fill(self, ref: str, text: str, submit: bool) -> None:
        """Replace the text of a field, and press Enter if asked."""
        await self._guarded(lambda: self._fill(ref, text, submit))

    async def select(self, ref: str, option: str) -> None:
        """Choose an option of a list."""
        await self._guarded(lambda: self._select(ref, option))

    async def press(self, key: str) -> None:
        """Press a key."""
        if key not in KEYS:
            raise ToolError(f"The key {key[:20]!r} is none of {', '.join(KEYS)}.")
        await self._guarded(lambda: self._press(key))

    async def go_back(self) -> None:
        """Return to the page before."""
        await self._guarded(self._back)

    async def screenshot(self) -> bytes:
        """Return a picture of the visible part of the page."""
        result = await self._guarded(lambda: self._call("Page.captureScreenshot", format="png"))
        return base64.b64decode(result["data"])

    async def aclose(self) -> None:
        """Stop listening to Chromium."""
        if self._devtools is not None:
            await self._devtools.aclose()

    # ── starting, and starting again ───────────────────────────────────────────────────────────────────────────────

    async def _guarded(self, action: Callable[[], Awaitable[T]], lost: str = "") -> T:
        """Do something; if Chromium is gone, start it again, and tell the agent.

        Raises:
            ToolError: the action was refused, or the browser had to be started again.
            InfrastructureFailed: Chromium cannot be started.
        """
        try:
            await self._connect()
            return await action()
        except DevtoolsError as error:
            raise ToolError(f"The browser could not do that: {error.message[:200]} Take a new snapshot.") from None
        except BrowserGone as error:
            await self._restart(lost or self._url, error)
        raise ToolError("The browser ended and was started again at the same address. Take a new snapshot.")

    async def _restart(self, url: str, error: BrowserGone) -> None:
        if self._devtools is not None:
            await self._devtools.aclose()
            self._devtools = None
        if self._process is not None:
            await self._process.aclose()
        try:
            await self._connect()
            if url != "about:blank":
                await self._goto(url)
        except (BrowserGone, DevtoolsError) as again:
            raise InfrastructureFailed(f"Chromium ended ({error.message}) and cannot go on: {again.message}") from None

    async def _connect(self) -> None:
        if self._devtools is not None:
            return
        process = self._sandbox.background
        if process is None or process.end is not None or self._starts:
            if self._starts > _RESTARTS:
                raise InfrastructureFailed(f"Chromium has ended {self._starts} times in this episode")
            process = await self._sandbox.spawn(chromium_command())
        self._starts += 1
        self._process = process
        self._forget()
        devtools = self._devtools = Devtools(process, self._on_event)
        targets = (await devtools.call("Target.getTargets"))["targetInfos"]
        self._target = next((target["targetId"] for target in targets if _is_tab(target)), "")
        attached = await devtools.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        await asyncio.gather(
            devtools.call("Target.setDiscoverTargets", discover=True),
            devtools.call("Browser.setDownloadBehavior", behavior="deny"),
            self._call("Page.enable"),
            self._call("DOM.enable"),
            self._call("Fetch.enable", patterns=[{"urlPattern": "*"}]),
        )

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        if self._devtools is None:
            raise BrowserGone("Chromium is not connected")
        return await self._devtools.call(method, self._session, **params)

    def _on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Fetch.requestPaused":
            self._on_request(params)
        elif method == "Page.frameRequestedNavigation" or method == "Page.frameStartedNavigating":
            self._navigating = True
        elif method == "Page.frameNavigated" and "parentId" not in params["frame"]:
            self._url = params["frame"]["url"]
            self._navigating = True
            self._forget()
        elif method == "Page.loadEventFired":
            self._navigating = False
            self._moved.set()
        elif method == "Page.javascriptDialogOpening":
            self._notes.append(f"[dialog dismissed: {str(params.get('message'))[:200]}]")
            self._post("Page.handleJavaScriptDialog", accept=False)
        elif method == "Target.targetCrashed" and params["targetId"] == self._target and self._devtools is not None:
            self._devtools.lose("the page has crashed")
        elif method == "Devtools.lost":
            self._moved.set()
        elif method == "Target.targetCreated":
            info = params["targetInfo"]
            if _is_tab(info) and info["targetId"] != self._target and self._devtools is not None:
                self._devtools.post("Target.closeTarget", targetId=info["targetId"])

    def _post(self, method: str, **params: Any) -> None:
        if self._devtools is not None:
            self._devtools.post(method, self._session, **params)

    def _on_request(self, params: dict[str, Any]) -> None:
        request, id = params["request"], params["requestId"]
        parts = urlsplit(request["url"])
        if parts.scheme != "http" or parts.netloc not in self._hosts or request["method"] not in ("GET", "POST"):
            self._post("Fetch.failRequest", requestId=id, errorReason="BlockedByClient")
            return
        try:
            response = self._answer(Request.of(request["method"], request["url"], request.get("postData", "")))
        except Exception as error:  # a fault of a site, which the step that caused it raises
            self._fault = error
            response = Response(500, "")
        headers = [("Content-Type", response.kind), ("Cache-Control", "no-store"), ("Content-Security-Policy", _SAFE)]
        if response.location:
            headers.append(("Location", response.location))
        self._post(
            "Fetch.fulfillRequest", requestId=id, responseCode=response.status,
            responseHeaders=[{"name": name, "value": value} for name, value in headers],
            body=base64.b64encode(response.body.encode()).decode("ascii"),
        )  # fmt: skip

    # ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, url: str) -> None:
        plain = re.fullmatch(r"http://([a-z.]+)(/[!-~]*)?", url) if len(url) <= 500 else None
        if plain is None or plain[1] not in self._hosts:
            shown = f"{url[:60]!r} is none of its addresses" if url.isascii() and url.isprintable() else "This is none"
            sites = ", ".join(f"http://{host}/" for host in self._hosts)
            raise ToolError(f"This browser opens {sites} and their pages only. {shown}.")

    async def _goto(self, url: str) -> None:
        self._moved.clear()
        self._navigating = True
        result = await self._call("Page.navigate", url=url)
        if "errorText" in result:
            self._navigating = False
            raise ToolError(f"The browser cannot open this address: {result['errorText']}.")
        if "loaderId" not in result:  # only the part after # differs
            self._navigating = False
        await self._settle()

    async def _settle(self) -> None:
        """Wait until a navigation that has begun is done.

        Raises:
            BrowserGone: the page does not come to an end.
        """
        try:
            await self._call("Runtime.evaluate", expression=_NEXT_FRAME, awaitPromise=True)
        except DevtoolsError:
            self._navigating = True  # the page was replaced while it waited
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                while self._navigating:
                    self._moved.clear()
                    await self._moved.wait()
                    if self._devtools is not None and self._devtools.gone:
                        raise BrowserGone(self._devtools.gone)
        except TimeoutError:
            raise BrowserGone(f"the page was not loaded within {LOAD_SECONDS:g} s") from None
        if self._fault is not None:
            raise self._fault

    def _forget(self) -> None:
        self._references.clear()
        self._elements.clear()

    def _reference(self, element: int) -> str:
        if element not in self._references:
            self._last += 1
            self._references[element] = f"e{self._last}"
            self._elements[f"e{self._last}"] = element
        return self._references[element]

    async def _snapshot(self, page: int) -> str:
        nodes = (await self._call("Accessibility.getFullAXTree"))["nodes"]
        title = next((node.get("name", {}).get("value", "") for node in nodes[:1]), "")
        pages = Snapshot(nodes, self._reference).pages()
        if not 1 <= page <= len(pages):
            raise ToolError(f"This page of the site is shown in {len(pages)} parts, so there is none at {page}.")
        lines = [f"Page URL: {self._url}", f"Page title: {str(title)[:200]}", *self._notes, pages[page - 1]]
        self._notes.clear()
        if len(pages) > 1:
            lines.append(f"[part {page} of {len(pages)}; `snapshot` with another `page` shows the others]")
        return "\n".join(lines)

    async def _object(self, ref: str) -> tuple[int, str]:
        """Return the browser's numbers of an element.

        Raises:
            ToolError: the reference is none, or of an earlier page.
        """
        found = re.fullmatch(r"e([1-9]\d{0,8})", ref.strip(), re.ASCII)
        if found is None:
            raise ToolError(f"{ref[:20]!a} is not a reference. Use one from the snapshot, such as e12.")
        element = self._elements.get(found[0])
        if element is None and int(found[1]) <= self._last:
            raise ToolError(f"{found[0]} was on an earlier page. Use a reference from the newest snapshot.")
        if element is None:
            raise ToolError(f"There is no element {found[0]}. Use a reference from the newest snapshot.")
        try:
            resolved = await self._call("DOM.resolveNode", backendNodeId=element)
        except DevtoolsError:
            raise ToolError(f"{found[0]} is no longer on the page. Take a new snapshot.") from None
        return element, str(resolved["object"]["objectId"])

    async def _run(self, object: str, function: str, *arguments: str) -> str:
        result = await self._call(
            "Runtime.callFunctionOn", functionDeclaration=function, objectId=object, returnByValue=True,
            arguments=[{"value": argument} for argument in arguments],
        )  # fmt: skip
        return str(result["result"].get("value", ""))

    async def _click(self, ref: str) -> None:
        element, object = await self._object(ref)
        kind = await self._run(object, _KIND)
        if kind == "SELECT":
            raise ToolError(f"{ref} is a list. Use `select` with one of its options.")
        try:
            await self._call("DOM.scrollIntoViewIfNeeded", backendNodeId=element)
            quads = (await self._call("DOM.getContentQuads", backendNodeId=element))["quads"]
        except DevtoolsError:
            quads = []
        if not quads or not kind:
            raise ToolError(f"{ref} is not visible. Take a new snapshot.")
        x, y = sum(quads[0][0::2]) / 4, sum(quads[0][1::2]) / 4
        for event in ("mousePressed", "mouseReleased"):
            await self._call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
        await self._settle()

    async def _fill(self, ref: str, text: str, submit: bool) -> None:
        _, object = await self._object(ref)
        told = await self._run(object, _FILL, text)
        if told == "disabled":
            raise ToolError(f"{ref} cannot be changed.")
        if told == "no field":
            raise ToolError(f"{ref} is not a field for text. Use `click` or `select`.")
        if told:
            raise ToolError(f"The field {ref} does not take this text; it holds {told.removeprefix('kept ')[:80]!r}.")
        if submit:
            await self._press("Enter")
        else:
            await self._settle()

    async def _select(self, ref: str, option: str) -> None:
        _, object = await self._object(ref)
        told = await self._run(object, _SELECT, option.strip())
        if told == "no list":
            raise ToolError(f"{ref} is not a list of options. Use `click` or `type`.")
        if told == "disabled":
            raise ToolError(f"{ref} cannot be changed.")
        if told:
            raise ToolError(f"There is no option {option[:40]!r}. There are: {told.removeprefix('no option ')[:300]}.")
        await self._settle()

    async def _press(self, key: str) -> None:
        name, code, text = KEYS[key]
        more = {"text": text} if text else {}
        kind = "keyDown" if text else "rawKeyDown"
        await self._call("Input.dispatchKeyEvent", type=kind, key=name, code=key, windowsVirtualKeyCode=code, **more)
        await self._call("Input.dispatchKeyEvent", type="keyUp", key=name, code=key, windowsVirtualKeyCode=code)
        await self._settle()

    async def _back(self) -> None:
        history = await self._call("Page.getNavigationHistory")
        place = history["currentIndex"]
        if place < 1 or history["entries"][place - 1]["url"] == "about:blank":
            raise ToolError("There is no page before this one.")
        self._navigating = True
        await self._call("Page.navigateToHistoryEntry", entryId=history["entries"][place - 1]["id"])
        await self._settle()


def _is_tab(target: Mapping[str, Any]) -> bool:
    """Return whether a target is a page, and not a part of Chromium's own window."""
    return target["type"] == "page" and not str(target["url"]).startswith("chrome://")
