"""Ordinary values reach MCP clients as structured content, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from mcp import Client
from pydantic import BaseModel

from ludus.client import connect
from ludus.server import Environment, EpisodeLimits, ImageBlock, Noise, Result, Task, TextBlock, ToolError, tool
from ludus.server.authoring.output_schema import OutputSchema
from ludus.server.authoring.returns import output_of

MODES = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


@dataclasses.dataclass
class Point:
    x: int
    label: str = "p"


class Node(BaseModel):
    size: float | None = None
    children: list[Node] = []


class Tray(Environment[Task]):
    """Returns values of every kind."""

    blocking = False
    splits = {"train": [Task(id="only")]}
    limits = EpisodeLimits(observation_chars=100)

    def prompt(self) -> str:
        return "Look."

    @tool
    def number(self) -> int:
        """Return a number."""
        return 7

    @tool
    def mapping(self) -> dict[str, Any]:
        """Return an object."""
        return {"reply": "é", "deep": [None, 1.5]}

    @tool
    def point(self) -> Point:
        """Return a dataclass."""
        return Point(3)

    @tool
    def numbers(self) -> list[int]:
        """Return a list."""
        return [1, 2]

    @tool
    def nothing(self) -> None:
        """Return nothing."""

    @tool
    def node(self) -> Node:
        """Return a model that refers to itself."""
        return Node(children=[Node(size=0.5)])

    @tool
    def text(self) -> str:
        """Return text that is JSON."""
        return '{"a": 1}'

    @tool
    def earn(self) -> Result:
        """Return a result."""
        return Result("5", reward=0.5, metadata={"secret": 1})

    @tool
    def long(self) -> dict[str, str]:
        """Return more than is shown."""
        return {"a": "b" * 200}

    @tool
    def refuse(self) -> int:
        """Refuse."""
        raise ToolError("no")

    @tool
    def wrong(self) -> dict[str, int]:
        """Return another value than the annotation says."""
        return [1]  # type: ignore[return-value]

    @tool(ends=True)
    def last(self) -> int:
        """Return a number and end the episode."""
        return 9


class NoisyTray(Tray):
    """The same with noise."""

    noise = Noise(rate=1.0, kinds={"truncation": 1.0})


BARE: Any = dict

STRUCTURED: dict[str, Any] = {
    "number": {"result": 7},
    "mapping": {"reply": "é", "deep": [None, 1.5]},
    "point": {"x": 3, "label": "p"},
    "numbers": {"result": [1, 2]},
    "nothing": {"result": None},
    "node": {"size": None, "children": [{"size": 0.5, "children": []}]},
}


@MODES
@pytest.mark.requirement("PLAY-5", "PLAY-18")
async def test_a_stock_client_gets_valid_structured_content_for_ordinary_values_and_nothing_else(
    mode: Any, serve: Any, start_episode: Any
) -> None:
    server = await serve(Tray)
    episode = await start_episode(server, "tray", index=0)
    async with Client(server.url + episode.play.path, mode=mode) as agent:
        listed = {each.name: each.output_schema for each in (await agent.list_tools()).tools}
        plain = {"text", "earn"}
        assert {name for name, schema in listed.items() if schema is None} == plain
        assert all(schema is None or schema["type"] == "object" for schema in listed.values())
        for name, structured in STRUCTURED.items():
            result = await agent.call_tool(name, {})
            [shown] = result.content
            assert result.structured_content == structured
            value = json.loads(shown.text)  # type: ignore[union-attr]
            assert structured in (value, {"result": value})
        for name in plain:
            assert (await agent.call_tool(name, {})).structured_content is None
        for name in ("long", "refuse", "wrong"):
            result = await agent.call_tool(name, {})
            assert (result.is_error, result.structured_content) == (True, None)
        last = await agent.call_tool("last", {})
        assert (last.structured_content, len(last.content)) == ({"result": 9}, 2)


@pytest.mark.suite("peers")
@pytest.mark.requirement("PLAY-5", "PLAY-18")
@pytest.mark.parametrize("over", ["http", "stdio"])
async def test_a_peer_gets_structured_content_that_it_accepts_over_http_and_stdio(
    over: str, player: Any, serve: Any, start_episode: Any
) -> None:
    if over == "http":
        server = await serve(Tray)
        episode = await start_episode(server, "tray", index=0)
        peer = await player("http", server.url + episode.play.path)
    else:
        ludus = str(Path(sys.executable).with_name("ludus"))
        peer = await player("stdio", ludus, "serve", f"{__file__}:Tray", "--stdio", "--index", "0", "--play-only")
    for name, structured in STRUCTURED.items():
        result = await peer.call(name, {})
        assert "failure" not in result, result
        assert result["structuredContent"] == structured
        [block] = result["content"]
        assert structured in (json.loads(block["text"]), {"result": json.loads(block["text"])})
    for name in ("text", "earn"):
        assert not (await peer.call(name, {})).get("structuredContent")
    for name in ("long", "refuse", "wrong"):
        result = await peer.call(name, {})
        assert result["isError"] is True, result
        assert not result.get("structuredContent")
    last = await peer.call("last", {})
    assert last["structuredContent"] == {"result": 9}


@MODES
async def test_results_and_listings_of_text_tools_are_byte_for_byte_as_without_output_schemas(
    mode: str, serve: Any, start_episode: Any, post: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    structured = OutputSchema.structured

    def noted(self: OutputSchema, text: str) -> dict[str, Any] | None:
        parsed.append(text)
        return structured(self, text)

    monkeypatch.setattr(OutputSchema, "structured", noted)
    server = await serve(Tray)
    episode = await start_episode(server, "tray", index=0)
    era = "2025-11-25" if mode == "legacy" else mode
    url = server.url + episode.play.path
    reply = (await post(url, era, "tools/call", {"name": "text", "arguments": {}})).text
    assert '"result":{"content":[{"text":"{\\"a\\": 1}","type":"text"}],"isError":false' in reply.replace(
        '"type":"text","text":"{\\"a\\": 1}"', '"text":"{\\"a\\": 1}","type":"text"'
    )
    assert "structuredContent" not in reply
    assert parsed == []
    tools = (await post(url, era, "tools/list")).json()["result"]["tools"]
    assert next(set(each) for each in tools if each["name"] == "text") == {"name", "description", "inputSchema"}


async def test_noise_leaves_no_output_schemas(serve: Any, start_episode: Any) -> None:
    server = await serve(NoisyTray)
    episode = await start_episode(server, "noisy_tray", index=0)
    async with Client(server.url + episode.play.path) as agent:
        assert all(each.output_schema is None for each in (await agent.list_tools()).tools)
        assert not (await agent.call_tool("mapping", {})).is_error


async def test_the_trainers_channel_has_neither_output_schemas_nor_structured_content(serve: Any) -> None:
    server = await serve(Tray)
    async with connect(server.url) as trainer, trainer.environment("tray").episode(index=0) as episode:
        assert all("output" not in each.model_dump_json(by_alias=True).lower() for each in episode.tools)
        step = await episode.call("number")
        assert [block.text for block in step.content if isinstance(block, TextBlock)] == ["7"]


@pytest.mark.parametrize(
    ("annotation", "wrapped"),
    [
        (bool, True), (Literal[1, 2], True), (int | None, True), (BARE | None, True), (list[dict[str, int]], True),
        (list[tuple[str, str]], True), (BARE, False), (Annotated[dict[str, float], "seconds"], False),
        (str | int, None), (list[Any], None), (list[int | str], None), (BARE | TextBlock, None), (Result | int, None),
        (list[BARE | ImageBlock], None), (Literal["a", 1], None),
    ],
)  # fmt: skip
def test_only_annotations_of_which_every_value_is_shown_as_json_have_an_output_schema(
    annotation: Any, wrapped: bool | None
) -> None:
    output = output_of({"return": annotation})
    assert (None if output is None else output.wrapped) == wrapped
