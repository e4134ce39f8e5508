"""Each line on stdin that is not a message is answered, and no line fills the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stdio import serving_stdio

from ludus.protocol.bounds import MAX_BODY_VALUES
from ludus.server.runtime.limits import ServerLimits

WORLDS = Path(__file__).parents[1] / "support" / "worlds.py"
LINE_BYTES: int = ServerLimits().body_bytes


async def test_a_line_that_is_no_message_is_answered_with_a_null_id() -> None:
    async with serving_stdio(f"{WORLDS}:Playground") as server:
        for line, code in (
            (b"this is no JSON", -32700),
            (b'{"jsonrpc": "2.0", "id": 1', -32700),
            (b"\xff\xfe", -32700),
            (b"[1, 2]", -32600),
            (b'{"a": 1}', -32600),
            (b"7", -32600),
            (b"[" + b"[]," * MAX_BODY_VALUES + b"[]]", 4130),
            (b'"' + b"x" * (LINE_BYTES + 10) + b'"', 4130),
        ):
            answer = await server.ask(line)
            assert (answer["id"], answer["error"]["code"]) == (None, code), line[:40]
        hello = {
            "jsonrpc": "2.0", "id": 7, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
            },
        }  # fmt: skip
        assert (await server.ask(b"\n  \n" + json.dumps(hello).encode()))["id"] == 7


SLOW = """
import asyncio

from ludus.server import Environment, Task, tool


class Slow(Environment[Task]):
    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return "go"

    @tool
    async def wait(self, text: str = "") -> str:
        await asyncio.Event().wait()
        return "never"
"""


@pytest.mark.suite("breadth")
@pytest.mark.requirement("LIM-13")
async def test_a_full_queue_is_refused_on_stdio(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    text = "x" * (LINE_BYTES * 3 // 4)
    assert 2 * len(text) < ServerLimits().queue_bytes < 3 * len(text)
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    async with serving_stdio(f"{tmp_path / 'slow.py'}:Slow", "--environment", "slow") as server:
        for number, arguments in enumerate([{}, *[{"text": text}] * 3]):
            params = {"name": "wait", "arguments": arguments, "_meta": meta}
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            await server.write(json.dumps(call).encode())
        answer = await server.read()
        assert answer["id"] in (1, 2, 3), answer
        assert "as many unfinished calls as it may" in json.dumps(answer)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_longest_line_is_read(extra: int) -> None:
    from io import BytesIO

    from ludus.server.transports.mcp.stdio_lines import _Lines

    lines = _Lines(BytesIO(b'"' + b"x" * (8 + extra) + b'"\nnext\n'), 10)
    assert lines.readline() == ('"xxxxxxxx"\n' if not extra else "refused: is longer than 10 bytes\n")
    assert [lines.readline(), lines.readline()] == ["next\n", ""]
