"""Golden episodes of MCP servers: the same calls by the MCP SDK and over Ludus's wires show the same."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_targets import environment, node_server, plain, sqlite_server, write_tasks
from peer_clients import peer_variables, python_of

from ludus.client import connect
from ludus.client.episode import Episode
from ludus.protocol import ImageBlock
from ludus.server import Environment

pytestmark = pytest.mark.suite("formats")

Script = list[tuple[str, dict[str, Any]]]
HERE = Path(__file__).parent
LENGTH = 6
AT_ONCE = 4


def cells(rng: random.Random) -> Script:
    """Calls of the server with cells, some of which it refuses."""
    script: Script = []
    options: Script
    for _ in range(LENGTH):
        cell = f"{rng.choice('ABC')}{rng.randrange(1, 4)}"
        value = rng.choice([rng.randrange(-9, 9), round(rng.random(), 3)])
        options = [("write_cell", {"cell": cell, "value": value}), ("read_cell", {"cell": cell}), ("draw", {})]
        script.append(rng.choice(options))
    return script


def memory(rng: random.Random) -> Script:
    """Calls of the knowledge graph of npm's `server-memory`, some of which it refuses."""
    script: Script = []
    for _ in range(LENGTH):
        one, other = rng.choice("abcd"), rng.choice("abcd")
        entity = {
            "name": one,
            "entityType": rng.choice(["person", "Größe 😀"]),
            "observations": [f"o{rng.randrange(5)}"],
        }
        options: Script = [
            ("create_entities", {"entities": [entity]}),
            ("create_relations", {"relations": [{"from": one, "to": other, "relationType": "knows"}]}),
            ("add_observations", {"observations": [{"entityName": one, "contents": ["new"]}]}),
            ("delete_entities", {"entityNames": [one]}),
            ("search_nodes", {"query": one}),
            ("open_nodes", {"names": [one, other]}),
            ("read_graph", {}),
        ]
        script.append(rng.choice(options))
    return script


def everything(rng: random.Random) -> Script:
    """Calls of npm's `server-everything`, with images and structured results."""
    kinds = ["error", "success", "debug"]
    script: Script = []
    for _ in range(LENGTH):
        options: Script = [
            ("echo", {"message": rng.choice(["hi", "ä\n😀", ""])}),
            ("get-sum", {"a": rng.randrange(99), "b": rng.random()}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": rng.choice(["New York", "Chicago"])}),
            ("get-annotated-message", {"messageType": rng.choice(kinds), "includeImage": rng.random() < 0.5}),
        ]
        script.append(rng.choice(options))
    return script


def sqlite(rng: random.Random) -> Script:
    """Calls of PyPI's `mcp-server-sqlite`, some of which it refuses."""
    script: Script = [("create_table", {"query": "CREATE TABLE t (n INTEGER, s TEXT)"})]
    for _ in range(LENGTH):
        number = rng.randrange(9)
        script.append(
            rng.choice(
                [
                    ("write_query", {"query": f"INSERT INTO t VALUES ({number}, 'x{number}')"}),
                    ("write_query", {"query": f"UPDATE t SET s = 'ü' WHERE n > {number}"}),
                    ("read_query", {"query": "SELECT * FROM t ORDER BY n"}),
                    ("read_query", {"query": f"SELECT * FROM missing{number}"}),
                    ("read_query", {"query": "DELETE FROM t"}),
                    ("list_tables", {}),
                    ("describe_table", {"table_name": "t"}),
                ]
            )
        )
    return script


class Golden:
    """A server with what is played on it."""

    def __init__(self, command: Sequence[str], make: Callable[[random.Random], Script], state: Any, **env: str) -> None:
        self.command = list(command)
        self.make = make
        self.state = state
        self.env = env


def golden(name: str, folder: Path) -> Golden:
    """The server of a name, or a skip with the reason."""
    if name == "cells":
        return Golden(plain(folder).split(), cells, ("read_cell", {"cell": "A1"}))
    if name == "memory":
        return Golden(node_server("server-memory"), memory, ("read_graph", {}), MEMORY_FILE_PATH="{dir}/memory.jsonl")
    if name == "everything":
        return Golden(node_server("server-everything"), everything, ("get-sum", {"a": 1, "b": 2}))
    query = {"query": "SELECT * FROM t ORDER BY n, s"}
    return Golden([*sqlite_server(), "--db-path", "{dir}/data.db"], sqlite, ("read_query", query))


def record(one: Golden, scripts: Sequence[Script]) -> list[dict[str, Any]]:
    """What the SDK's own client shows, in the interpreter of the peer with MCP's earlier SDK."""
    orders = {"command": one.command, "env": one.env, "scripts": scripts, "state": one.state}
    done = subprocess.run(
        [python_of("mcp-servers"), str(HERE / "peers" / "mcp_golden.py")],
        input=json.dumps(orders), capture_output=True, text=True, check=True, env=peer_variables(),
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def shown(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What an agent sees of a recorded result: its blocks, and its structured content unless a text says the same."""
    blocks = [(one["type"], one["text"] if one["type"] == "text" else one["data"]) for one in result["content"]]
    if result["is_error"]:
        return [("text", "\n".join(text for kind, text in blocks if kind == "text"))]
    structured = result["structured"]
    if structured is None:
        return blocks
    same = [structured, *structured.values()] if len(structured) == 1 else [structured]
    if any(text in same or json_of(text) in same for kind, text in blocks if kind == "text"):
        return blocks
    return [*blocks, ("text", json.dumps(structured, ensure_ascii=False))]


def json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def play(episode: Episode, script: Script) -> list[tuple[list[tuple[str, str]], bool]]:
    """What the same calls show over a wire."""
    found = []
    for tool, arguments in script:
        result = await episode.call(tool, **arguments)
        blocks: list[tuple[str, str]] = [
            (one.type, one.data) if isinstance(one, ImageBlock) else (one.type, one.text) for one in result.content
        ]
        found.append((blocks, result.error is not None))
    return found


async def compare(serve: Any, tmp_path: Path, name: str, count: int, wire: Any) -> None:
    """Play episodes both ways, and count the differences in observations, errors and final states."""
    one = golden(name, tmp_path)
    scripts = [one.make(random.Random(f"{name} {number}")) for number in range(count)]
    recorded = record(one, scripts)
    tool, arguments = one.state
    rows = []
    for number, episode in enumerate(recorded):
        state = episode["state"]
        expect: dict[str, Any] = {"tool": tool, "arguments": arguments, "error": state["is_error"]}
        texts = [block["text"] for block in state["content"] if block["type"] == "text"]
        expect["equals"] = "\n".join(texts) if state["content"] else state["structured"]
        rows.append({"id": f"{number}", "prompt": name, "split": "test", "expect": expect})
    cls: type[Environment[Any]] = environment(
        " ".join(one.command), tasks=write_tasks(tmp_path, *rows), env=one.env, warm=AT_ONCE
    )
    server = await serve(cls)
    gate = asyncio.Semaphore(AT_ONCE)
    async with connect(server.url, wire=wire) as client:

        async def differences(number: int) -> int:
            async with gate, client.environment(cls.name).episode(split="test", task=str(number)) as episode:
                found = await play(episode, scripts[number])
                wanted = [(shown(call), call["is_error"]) for call in recorded[number]["calls"]]
                reward = (await episode.grade("")).reward
                assert reward is not None
                return sum(a != b for a, b in zip(found, wanted, strict=True)) + (reward.value != 1.0)

        counts = await asyncio.gather(*map(differences, range(count)))
    assert len(counts) == count
    assert sum(counts) == 0


async def test_a_hundred_episodes_equal_direct_calls_of_the_sdk(serve: Any, tmp_path: Path) -> None:
    await compare(serve, tmp_path, "cells", 100, "channel")


@pytest.mark.parametrize("name", ["memory", "everything", "sqlite"])
async def test_episodes_of_stock_servers_equal_direct_calls_of_the_sdk(serve: Any, tmp_path: Path, name: str) -> None:
    await compare(serve, tmp_path, name, 4, "mcp")


@pytest.mark.suite("formats")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["memory", "everything", "sqlite"])
async def test_a_hundred_episodes_of_stock_servers_equal_direct_calls_of_the_sdk(
    serve: Any, tmp_path: Path, name: str
) -> None:
    await compare(serve, tmp_path, name, 100, "channel")
