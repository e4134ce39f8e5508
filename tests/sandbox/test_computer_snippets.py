"""The environments that docs/sandboxes.md, docs/computer.md and docs/cassettes.md show, played over a real server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sandboxing import opened
from serving import served

from ludus.client import connect
from ludus.environments.computer import missing_for_browser, missing_for_office
from ludus.protocol import text_of

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"

APP = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello")
HTTPServer(("127.0.0.1", 8000), Hello).serve_forever()
"""


async def test_a_terminal_keeps_its_shell_from_call_to_call() -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    async with served(SNIPPETS / "terminal_session.py", {}, "Shell") as server, connect(server.url) as client:
        async with client.environment("shell").episode() as episode:
            await episode.call("keys", text="COUNT=$(ls /usr/bin | wc -l)\n")
            shown = await episode.call("keys", text="echo $COUNT > count; echo wrote $COUNT\n")
            assert "wrote " in str(shown)
            graded = await episode.grade("")
    assert graded.reward is not None
    assert graded.reward.value == 1.0


@pytest.mark.suite("sandbox")
async def test_a_server_that_the_agent_writes_is_graded_by_its_answers() -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    async with served(SNIPPETS / "served_page.py", {}, "Site") as server, connect(server.url) as client:
        values = []
        for program in (APP, APP.replace("hello", "goodbye"), "exit()"):
            async with client.environment("site").episode() as episode:
                await episode.call("write", path="app.py", text=program)
                reward = (await episode.grade("")).reward
                values.append(reward and reward.value)
    assert values == [1.0, 0.0, 0.0]


@contextmanager
def web() -> Iterator[tuple[int, list[str]]]:
    """A site on this machine whose answers all differ: its port, and the paths that were asked for."""
    asked: list[str] = []

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            results = json.dumps([f"Reykjavik, result {len(asked)}"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write((results if self.path.startswith("/search") else f"hello {len(asked)}\n").encode())

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


async def observed(world: Path, variables: dict[str, str], name: str, tool: str, **arguments: str) -> tuple[str, float]:
    """What a tool shows in an episode on a server of its own, and the reward of repeating it."""
    async with served(world, variables, name) as server, connect(server.url) as client:
        async with client.environment(name.lower()).episode() as episode:
            shown = text_of((await episode.call(tool, **arguments)).content)
            reward = (await episode.grade(shown)).reward
    assert reward is not None
    assert reward.value is not None
    return shown, reward.value


@pytest.mark.suite("sandbox")
@pytest.mark.parametrize(
    ("snippet", "name", "tool", "arguments"),
    [
        ("recorded_search.py", "Research", "search", {"query": "capital of Iceland"}),
        ("recorded_web.py", "Web", "shell",
         {"command": "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8010/').read())\""}),
    ],
)  # fmt: skip
async def test_what_a_server_recorded_is_replayed_by_others_without_the_site(
    snippet: str, name: str, tool: str, arguments: dict[str, str], tmp_path: Path
) -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    with web() as (port, asked):
        world = tmp_path / snippet
        world.write_text((SNIPPETS / snippet).read_text(encoding="utf-8").replace("8010", str(port)), encoding="utf-8")
        arguments = {key: value.replace("8010", str(port)) for key, value in arguments.items()}
        recorded = await observed(world, {"LUDUS_CASSETTE": "record"}, name, tool, **arguments)
        assert recorded[1] == 1.0, recorded
        assert len(asked) == 1
    for _ in range(2):
        assert await observed(world, {}, name, tool, **arguments) == recorded


BROWSER = pytest.mark.skipif(missing_for_browser() is not None, reason=str(missing_for_browser()))
OFFICE = pytest.mark.skipif(missing_for_office() is not None, reason=str(missing_for_office()))
LETTER = {"file": "letter.odt"}


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    ("snippet", "name", "steps"),
    [
        ("mcp_inside.py", "Notes", [("add_note", {"text": "buy milk"})]),
        pytest.param(
            "browser_inside.py", "Door",
            [("type", {"ref": 'textbox "Code"', "text": "4711"}), ("click", {"ref": 'button "Open"'})], marks=BROWSER,
        ),
        pytest.param(
            "office_inside.py", "Letter",
            [("create", LETTER), ("insert_text", {**LETTER, "text": "Dear Ada"}), ("save", LETTER),
             ("export", {**LETTER, "format": "txt"})], marks=OFFICE,
        ),
    ],
)  # fmt: skip
async def test_the_tools_of_programs_in_the_sandbox_earn_the_reward(
    snippet: str, name: str, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    async with served(SNIPPETS / snippet, {}, name) as server, connect(server.url) as client:
        values = []
        for taken in ([], steps):
            async with client.environment(name.lower()).episode() as episode:
                for tool, arguments in taken:
                    if "ref" in arguments:  # elements of the page have references, which change with it
                        page = text_of((await episode.call("look")).content)
                        element = re.search(rf"\[(\w+)\] {re.escape(arguments['ref'])}", page)
                        assert element is not None, page
                        arguments = {**arguments, "ref": element[1]}
                    result = await episode.call(tool, **arguments)
                    assert result.error is None, text_of(result.content)
                reward = (await episode.grade("done")).reward
                values.append(reward and reward.value)
    assert values == [0.0, 1.0]
