"""TRL's `OpenRewardSpec` plays stock MCP servers, which the format `mcp` hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_targets import environment, node_server, sqlite_server, write_tasks

pytestmark = pytest.mark.suite("formats")

Serve = Callable[..., Awaitable[Any]]
SitPeer = Callable[..., Awaitable[Any]]


async def test_trl_plays_a_stock_server_of_npm(serve: Serve, sit_peer: SitPeer, tmp_path: Path) -> None:
    expect = {"tool": "read_graph", "includes": {"entities": [{"name": "Ada", "observations": ["born 1815"]}]}}
    cls: Any = environment(
        " ".join(node_server("server-memory")),
        tasks=write_tasks(tmp_path, {"id": "ada", "prompt": "Remember Ada.", "expect": expect}),
        env={"MEMORY_FILE_PATH": "{dir}/memory.jsonl"},
    )
    server = await serve(cls)
    seat = await sit_peer("trl", server.url, environment=cls.name, split="train", index=0)
    assert "create_entities" in seat.seen["tools"]
    ada = {"name": "Ada", "entityType": "person", "observations": ["born 1815"]}
    assert not (await seat.call("create_entities", entities=[ada]))["finished"]
    done = await seat.call("submit_answer", answer="She is in the graph.")
    assert (done["finished"], done["reward"]) == (True, 1.0)


@pytest.mark.parametrize(("value", "reward"), [(41, 1.0), (40, 0.0)])
async def test_trl_plays_a_stock_server_of_pypi(
    serve: Serve, sit_peer: SitPeer, tmp_path: Path, value: int, reward: float
) -> None:
    setup = [{"tool": "create_table", "arguments": {"query": "CREATE TABLE t (n INTEGER)"}}]
    expect = {"tool": "read_query", "arguments": {"query": "SELECT n FROM t"}, "contains": "41"}
    cls: Any = environment(
        " ".join([*sqlite_server(), "--db-path", "{dir}/data.db"]),
        tasks=write_tasks(tmp_path, {"id": "n", "prompt": "Insert 41.", "setup": setup, "expect": expect}),
    )
    server = await serve(cls)
    seat = await sit_peer("trl", server.url, environment=cls.name, split="train", index=0)
    await seat.call("write_query", query=f"INSERT INTO t VALUES ({value})")
    done = await seat.call("submit_answer", answer="done")
    assert (done["finished"], done["reward"]) == (True, reward)
