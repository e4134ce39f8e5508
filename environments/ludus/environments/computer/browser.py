"""A browser in the episode's sandbox: Chromium, driven by Playwright, as tools for the agent.

    class Shopping(Environment[Errand]):
        sandbox_settings = browser_settings()

        async def setup(self) -> None:
            await self.sandbox.spawn(["python3", "shop.py"])
            self.browser = await open_browser(self.sandbox, "http://127.0.0.1:8000/")

        def task_tools(self) -> Sequence[Any]:
            return self.browser.tools

Pages come from programs in the sandbox: it has no network but its own loopback, and Chromium's policies, which the
sandbox shows read-only, allow no other addresses, no files, no extensions and no developer tools.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ludus.environments.computer.showing import command, packages, programs
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Sandbox, SandboxSettings
from ludus.server import McpServer, ToolError, connect_mcp

_CHROMIUM: Final = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
)
"""Programs of the packages of Debian, Fedora and Google; `/usr/bin/chromium` is a script that needs more of a system."""
_POLICIES: Final = ("/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed")
_SHOWN: Final = ("/etc/fonts",)
_MIB: Final = 2**20
_NO_GROUPS: Final = (
    "if the server may create no control groups, bubblewrap refuses the shared memory that Chromium needs: see "
    '"Without control groups" in docs/sandboxes.md'
)


def missing_for_browser() -> str | None:
    """Return what this machine lacks for a browser, and how to install it; None if nothing is missing."""
    if chromium_program() is None:
        return "Chromium is not installed (apt-get install chromium)"
    try:
        packages("playwright", "greenlet")
    except ModuleNotFoundError:
        return 'Playwright is not installed (pip install "ludus-rl[browser]")'
    return None


def browser_settings(settings: SandboxSettings | None = None) -> SandboxSettings:
    """Return settings of a sandbox for a browser: those given, with what the browser needs added.

    Limits that are too small for Chromium are raised: 1.5 GiB of memory, 256 processes and threads, 512 MiB of disk,
    files of 128 MiB, and one hour of processor time. Paths of this machine are found when the episode's sandbox is
    made; `missing_for_browser` says what is not there.
    """
    settings = settings or SandboxSettings()
    asked = settings.limits
    limits = asked.but(
        memory=max(asked.memory, 1536 * _MIB), processes=max(asked.processes, 256), disk=max(asked.disk, 512 * _MIB),
        file_size=max(asked.file_size, 128 * _MIB), spawned_cpu_seconds=max(asked.spawned_cpu_seconds, 3600.0),
        spawned_output=max(asked.spawned_output, 256 * _MIB),
    )  # fmt: skip
    shown = programs()
    if missing_for_browser() is None:
        shown += packages("playwright", "greenlet")
    policies = str(Path(__file__).parent / "inside" / "policies")
    shown += tuple((policies, place) for place in _POLICIES)
    shown += tuple((place, place) for place in _SHOWN if Path(place).exists())
    return settings.model_copy(update={"limits": limits, "loopback": True, "readonly": (*settings.readonly, *shown)})


async def open_browser(
    sandbox: Sandbox, url: str | None = None, *, tools: Sequence[str] | None = None, prefix: str = "",
    downloads: str = "/box/downloads", restarts: int = 1,
) -> McpServer:  # fmt: skip
    """Start a browser in a sandbox with `browser_settings`, and return its tools. Call it in `setup`.

    Args:
        sandbox: the sandbox, for example `self.sandbox`.
        url: a page to open, served by a program in the sandbox.
        tools: the tools for the agent, by default all: open, look, click, type, press, select, scroll, back, read,
            screenshot, tab and dialogs.
        prefix: text in front of their names.
        downloads: the folder in the sandbox for downloads.
        restarts: how often it may be started again if the agent makes it end.

    Raises:
        AuthoringError: something is not installed, the browser does not start, or the page cannot be opened.
        SandboxFailed: the sandbox is gone.
    """
    program = chromium_program()
    if (missing := missing_for_browser()) is not None or program is None:
        raise AuthoringError(f"a browser in the sandbox needs more on the server's machine: {missing}")
    start = command("python3", "browser_server", program, downloads)
    try:
        server = await connect_mcp(
            sandbox, start, tools=tools, prefix=prefix, restarts=restarts, revision="legacy", seconds=60.0,
        )  # fmt: skip
    except AuthoringError as error:
        raise AuthoringError(f"{error.message[:2000]}; {_NO_GROUPS}") from None
    if url is not None:
        try:
            await server.call("open", {"url": url})
        except ToolError as error:
            await server.aclose()
            raise AuthoringError(f"the browser cannot open {url!r}: {error}") from None
    return server


def chromium_program() -> str | None:
    """Return the program, not the script that a distribution may put in front of it."""
    for place in _CHROMIUM:
        if Path(place).is_file():
            return place
    return shutil.which("chromium") or shutil.which("google-chrome")
