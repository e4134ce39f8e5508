"""Forms of tools with arrays, objects, enums, optional and other parameters, and results with images."""

from __future__ import annotations

import asyncio
import base64
import enum
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from hub_sites import Page, as_page
from hubs import WheelParts, publish, release
from rollout_lines import PIXEL, SCRIPT

from ludus.hub.app import create_hub
from ludus.hub.serve import HubServer
from ludus.hub.settings.hub import HubSettings
from ludus.hub.site.forms import read_arguments, tool_form
from ludus.protocol.content import ImageBlock, TextBlock
from ludus.protocol.episodes import SplitInfo, ToolSpec
from ludus.registry.types.packages import EnvironmentEntry
from ludus.server import Environment, Result, Task, tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    label: str


class Shapes(Environment[Task]):
    """Draw shapes."""

    version = "1.0"
    splits = {"train": [Task(id="one")]}

    def prompt(self) -> str:
        return "Draw."

    @tool
    def draw(
        self, points: list[Point], weights: list[float], color: Color, size: Literal[1, 2] = 1, filled: bool = False,
        title: str | None = None, angle: float | None = None, style: dict[str, Color] | None = None,
    ) -> str:  # fmt: skip
        """Draw a shape."""
        given = {
            "points": [asdict(one) for one in points], "weights": weights, "color": color.value, "size": size,
            "filled": filled, "title": title, "angle": angle, "style": {k: v.value for k, v in (style or {}).items()},
        }  # fmt: skip
        return "drawn: " + json.dumps(given, sort_keys=True)

    @tool
    def show(self) -> Result:
        """Show the picture."""
        return Result([TextBlock(text=SCRIPT), ImageBlock(data=PIXEL, mime_type="image/png")])


@pytest.fixture
async def browser(serve: Any, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without JavaScript at a hub with `Shapes`."""
    ludus = await serve(Shapes)
    settings = HubSettings(data=tmp_path / "data", port=0, seed=False)
    app = create_hub(settings, play_address=lambda *version: ludus.url)
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = HubServer(app, settings, up.set_result)
    serving = asyncio.create_task(server.serve())
    url = await asyncio.wait_for(up, 60)
    parts = WheelParts("ada-shapes", entry_points="[ludus.environments]\nshapes = ada_shapes:Toss\n")
    splits = (SplitInfo(name="train", type="train", count=1),)
    entry = EnvironmentEntry(name="shapes", source="ada_shapes:Toss", version="1.0", splits=splits)
    one = release("ada/shapes", parts=parts, environments=(entry,))
    with httpx.Client(base_url=url, timeout=60) as client:
        answer = await asyncio.to_thread(publish, client, one)
        assert answer.status_code == 201, answer.text
    html = {"accept": "text/html"}
    async with httpx.AsyncClient(base_url=url, headers=html, timeout=60, follow_redirects=True) as found:
        yield found
    server.should_exit = True
    await serving


async def started(browser: httpx.AsyncClient) -> tuple[str, Page]:
    first = as_page(await browser.get("/ada/shapes/play"))
    fields = {name: first.hidden(name) for name in ("form_key", "version")}
    answer = await browser.post("/ada/shapes/play", data={**fields, "what": "shapes/train", "index": "0"})
    return answer.url.path, as_page(answer)


async def sent(browser: httpx.AsyncClient, at: str, shown: Page, tool: str, **entries: str) -> httpx.Response:
    fields = {name: shown.hidden(name) for name in ("form_key", "turn")}
    return await browser.post(at, data={**fields, "tool": tool, **{f"a.{key}": one for key, one in entries.items()}})


NEEDED = {"points": '[{"x": 2, "label": "a"}]', "weights": "[0.5, 1]", "color": '"blue"'}


async def test_every_kind_of_parameter_is_entered_in_a_form_and_reaches_the_tool(browser: httpx.AsyncClient) -> None:
    at, shown = await started(browser)
    kinds = {one["name"]: tag for tag, one in shown.elements if one.get("name", "").startswith("a.")}
    assert kinds == {
        "a.points": "textarea", "a.weights": "textarea", "a.color": "select", "a.size": "select", "a.filled": "select",
        "a.title": "input", "a.angle": "input", "a.style": "textarea",
    }  # fmt: skip
    assert '[{"x": 1, "label": "text"}]' in shown.text
    assert "[1.5]" in shown.text
    entries = {**NEEDED, "size": "2", "filled": "true", "title": f"quoted: {SCRIPT}", "angle": "-1.5e1",
               "style": '{"line": "red"}'}  # fmt: skip
    page = as_page(await sent(browser, at, shown, "draw", **entries))
    drawn = json.dumps({"points": [{"x": 2, "label": "a"}], "weights": [0.5, 1.0], "color": "blue", "size": 2,
                        "filled": True, "title": f"quoted: {SCRIPT}", "angle": -15.0, "style": {"line": "red"}},
                       sort_keys=True)  # fmt: skip
    assert drawn in page.text
    assert len(list(page.all("script"))) == 2
    page = as_page(await sent(browser, at, page, "draw", **NEEDED, size="1", filled="false"))
    assert '"title": null' in page.text.rsplit("drawn:", 1)[1], "an empty optional entry leaves the argument out"


async def test_wrong_entries_of_every_kind_are_shown_again_next_to_their_problem(browser: httpx.AsyncClient) -> None:
    at, shown = await started(browser)
    wrong = {"points": "[{]", "weights": "NaN", "color": '"green"', "size": "3", "filled": "maybe", "angle": "far",
             "style": "[" * 5000}  # fmt: skip
    page = as_page(await sent(browser, at, shown, "draw", **wrong), 422)
    bad = {one["name"] for _, one in page.elements if one.get("aria-invalid") == "true"}
    assert bad == {f"a.{name}" for name in wrong}
    assert page.hidden("turn") == shown.hidden("turn"), "nothing was called"
    refused = as_page(await sent(browser, at, page, "draw", **{**NEEDED, "points": '[{"x": "no"}]'}))
    assert "Your turn" in refused.text, "the environment says what it does not take, as to any agent"
    assert "drawn" not in refused.text


async def test_an_image_in_a_result_is_shown_as_an_image_and_kept_with_the_demonstration(
    browser: httpx.AsyncClient,
) -> None:
    at, shown = await started(browser)
    page = as_page(await sent(browser, at, shown, "show"))
    (source,) = [one["src"] for one in page.all("img")]
    answer = await browser.get(source)
    assert answer.content == base64.b64decode(PIXEL)
    assert answer.headers["content-type"] == "image/png"
    assert SCRIPT in page.text
    ended = as_page(await browser.post(at, data={"form_key": page.hidden("form_key"), "give_up": "1"}))
    assert "The episode has ended" in ended.text
    saved = await browser.get(f"{at}/demonstration")
    assert PIXEL in saved.text


@pytest.mark.suite("hub")
async def test_a_person_in_a_browser_fills_in_the_form_and_sees_the_picture(browser: httpx.AsyncClient) -> None:
    playwright: Any = pytest.importorskip("playwright.async_api", reason="needs playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs chromium")
    problems: list[str] = []
    async with playwright.async_playwright() as started:
        program = await started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await program.new_page(base_url=str(browser.base_url))
        page.set_default_timeout(30_000)
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto("/ada/shapes/play")
        await page.get_by_role("button", name="Start").click()
        form = page.get_by_role("form", name="draw")
        await form.get_by_label("points").fill("[{]")
        await form.get_by_label("weights").fill("[1]")
        await form.get_by_label("color").select_option(label='"red"')
        await form.get_by_label("filled").select_option(label="yes")
        await form.get_by_label("angle").fill("7.5")
        await form.get_by_role("button", name="draw").click()
        form = page.get_by_role("form", name="draw")
        await form.get_by_text("This is not JSON").wait_for()
        await form.get_by_label("points").fill('[{"x": 1, "label": "b"}]')
        problems.clear()  # the answer 422 to the wrong entry
        await form.get_by_role("button", name="draw").click()
        await page.get_by_text('"angle": 7.5').wait_for()
        await page.get_by_text('"filled": true').wait_for()
        await page.get_by_role("form", name="show").get_by_role("button", name="show").click()
        picture = page.locator("section img").first
        await picture.wait_for()
        assert await picture.evaluate("async (one) => { await one.decode(); return one.naturalWidth; }") == 1
        await program.close()
    assert problems == []


def spec(**properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties), "$defs": {
        "Loop": {"$ref": "#/$defs/Loop"}, "Pair": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Pair"}}},
        "Wide": {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/Wide"} for n in range(50)}},
    }}  # fmt: skip
    return ToolSpec(name="t", description="", input_schema=schema)


def test_schemas_that_refer_to_themselves_or_to_nothing_still_give_a_form() -> None:
    tool = spec(
        a={"$ref": "#/$defs/Loop"}, b={"$ref": "#/$defs/Pair"}, c={"$ref": "#/$defs/Absent"}, d=True, e={"anyOf": []},
        f={"anyOf": [{"type": "null"}]}, g={"$ref": "https://evil.example/x"}, h={"type": ["integer", "null"]},
        i={"const": "only"}, j={"$ref": "#/$defs/Wide"}, k={"anyOf": [{"type": "integer"}, {"type": "string"}]},
    )  # fmt: skip
    form = {field.name: field for field in tool_form(tool).fields}
    assert {name: field.kind for name, field in form.items()} == {
        **dict.fromkeys("abcdefgjk", "json"), "h": "integer", "i": "choice",
    }  # fmt: skip
    assert all(len(field.example) <= 300 for field in form.values())
    arguments, problems = read_arguments(tool, {"a.h": "", "a.i": '"only"', "a.k": "3"})
    assert (arguments["h"], arguments["i"], arguments["k"]) == (None, "only", 3)
    assert "h" not in problems
