"""The environments that docs/sandboxes.md shows, played over a real server."""

from __future__ import annotations

from pathlib import Path

from sandboxing import opened
from serving import served

from ludus.client import connect

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
