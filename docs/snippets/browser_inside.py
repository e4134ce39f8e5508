from collections.abc import Sequence
from typing import Any

from ludus.environments.computer import browser_settings, open_browser
from ludus.server import Environment, Task

PAGE = b"<title>Door</title><form action='/open'><label>Code <input name=code></label><button>Open</button></form>"


class Door(Environment[Task]):
    """Pages in a browser; both run in the sandbox."""

    splits = {"train": [Task(id="door")]}
    sandbox_settings = browser_settings()

    async def setup(self) -> None:
        await self.sandbox.write("site/index.html", PAGE)
        site = ["python3", "-m", "http.server", "8000", "--directory", "site", "--bind", "127.0.0.1"]
        self.site = await self.sandbox.spawn(site)
        await (await self.sandbox.expose(8000)).aclose()  # it answers from here on
        self.browser = await open_browser(self.sandbox, "http://127.0.0.1:8000/")

    def task_tools(self) -> Sequence[Any]:
        return self.browser.tools

    def prompt(self) -> str:
        return "Type 4711 as the code of the door, and open it."

    async def grade(self, answer: str) -> float:
        await self.site.kill()
        return float(b"GET /open?code=4711 " in await self.site.stderr.read_all())
