"""The format `mcp`: what MCP servers do as environments, over real wires."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from mcp_targets import (
    CONTEXTUAL,
    command,
    counted,
    environment,
    hostile,
    node_server,
    pids_in,
    plain,
    sqlite_server,
    write_tasks,
)
from sandboxing import opened
from waiting import is_running

from ludus.client import connect
from ludus.client.episode import Episode
from ludus.formats.mcp.environment import McpHost
from ludus.protocol import text_of
from ludus.protocol.errors import AuthoringError, EnvironmentFailed, EpisodeFailed, InfrastructureFailed

STATE = {"tool": "read_cell", "arguments": {"cell": "A1"}, "equals": {"value": 3}}
ROW = {"id": "one", "prompt": "Write 3 to A1.", "expect": STATE}


@asynccontextmanager
async def episode_of(serve: Any, cls: Any, wire: Any = "channel") -> AsyncIterator[Any]:
    """An episode of an environment on a server of its own."""
    server = await serve(cls)
    async with connect(server.url, wire=wire) as client:
        split = next(iter(cls.splits))
        async with client.environment(cls.name).episode(split=split) as episode:
            yield episode


async def earned(episode: Episode, answer: str) -> float | None:
    """The reward of a final message."""
    reward = (await episode.grade(answer)).reward
    assert reward is not None
    return reward.value


# ── playing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_the_tools_of_a_command_are_played_and_its_final_state_is_scored(
    serve: Any, tmp_path: Path, wire: Any
) -> None:
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, ROW))
    async with episode_of(serve, cls, wire=wire) as episode:
        assert text_of(episode.prompt[0].content) == "Write 3 to A1."
        assert {"write_cell", "read_cell"} <= {one.name for one in episode.tools}
        assert text_of((await episode.call("write_cell", cell="A1", value=3)).content) == "written"
        empty = await episode.call("read_cell", cell="B1")
        assert (empty.error and empty.error.code, text_of(empty.content)) == ("refused", "that cell is empty")
        assert [block.type for block in (await episode.call("draw")).content] == ["text", "image"]
        assert await earned(episode, "done") == 1.0


async def test_each_episode_has_a_server_of_its_own(serve: Any, tmp_path: Path) -> None:
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, ROW), warm=2)
    server = await serve(cls)
    async with connect(server.url) as client:
        remote = client.environment(cls.name)
        async with remote.episode(split="train") as one, remote.episode(split="train") as two:
            await one.call("write_cell", cell="A1", value=3)
            assert (await two.call("read_cell", cell="A1")).error is not None
            assert await earned(two, "") == 0.0
            assert await earned(one, "") == 1.0


async def test_private_fields_of_a_task_are_not_public(serve: Any, tmp_path: Path) -> None:
    row = {**ROW, "secret": "s3cret", "public": {"level": 2}, "answer": "hidden"}
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, row))
    server = await serve(cls)
    async with connect(server.url) as client:
        (task,) = [one async for one in client.environment(cls.name).tasks("train")]
        shown = task.model_dump_json()
        assert "s3cret" not in shown
        assert "hidden" not in shown
        assert "read_cell" not in shown
        assert '"level":2' in shown.replace(" ", "")


async def test_a_task_can_prepare_the_server_and_restrict_the_tools(serve: Any, tmp_path: Path) -> None:
    setup = [{"tool": "write_cell", "arguments": {"cell": "B2", "value": 7}}]
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, {**ROW, "setup": setup, "tools": ["read_cell"]}))
    async with episode_of(serve, cls) as episode:
        assert [one.name for one in episode.tools] == ["read_cell"]
        assert json.loads(text_of((await episode.call("read_cell", cell="B2")).content)) == {"value": 7}


async def test_a_task_names_the_directory_of_its_episode(serve: Any, tmp_path: Path) -> None:
    write = {"tool": "write_cell", "arguments": {"cell": "{dir}", "value": 3}}
    read = {"tool": "read_cell", "arguments": {"cell": "{dir}"}, "includes": {"value": 3}}
    row = {"id": "one", "prompt": "Look into {dir}.", "setup": [write], "expect": read, "answer": "{dir}/cells"}
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, row))
    async with episode_of(serve, cls) as episode:
        prompt = text_of(episode.prompt[0].content)
        directory = prompt.removeprefix("Look into ").removesuffix(".")
        assert directory.startswith("/")
        assert json.loads(text_of((await episode.call("read_cell", cell=directory)).content)) == {"value": 3}
        assert await earned(episode, f"{directory}/cells") == 1.0


async def test_tools_that_appear_in_the_setup_of_a_task_are_the_agents(serve: Any, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x", "setup": [{"tool": "work"}]})
    cls = environment(hostile(tmp_path, "grows"), tasks=tasks, revision="legacy")
    async with episode_of(serve, cls) as episode:
        assert [tool.name for tool in episode.tools] == ["work", "more"]
        assert (await episode.call("more")).error is None


async def test_tools_that_appear_during_an_episode_are_reported(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    async with episode_of(serve, environment(hostile(tmp_path, "grows"), tasks=tasks, revision="legacy")) as episode:
        for _ in range(3):
            await episode.call("work")
        assert [tool.name for tool in episode.tools] == ["work"]
        assert caplog.text.count("has changed its tools; the episode keeps those with which it began") == 1


async def test_the_limits_of_a_server_are_options(serve: Any, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    many = environment(hostile(tmp_path, "many"), tasks=tasks, revision="legacy", most_tools=1000)
    async with episode_of(serve, many) as episode:
        assert len(episode.tools) == 1000
    large = environment(hostile(tmp_path, "large"), tasks=tasks, revision="legacy", answer_mib=1)
    async with episode_of(serve, large) as episode:
        assert "longer than 1,048,576 bytes" in text_of((await episode.call("work")).content)


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_stock_server_of_npm_is_played_by_a_stock_client(serve: Any, tmp_path: Path, era: Any) -> None:
    target = " ".join(node_server("server-memory"))
    expect = {"tool": "read_graph", "includes": {"entities": [{"name": "Ada", "observations": ["born 1815"]}]}}
    tasks = write_tasks(tmp_path, {"id": "ada", "prompt": "Remember Ada.", "expect": expect})
    cls = environment(target, tasks=tasks, env={"MEMORY_FILE_PATH": "{dir}/memory.jsonl"})
    async with episode_of(serve, cls) as episode:
        async with Client(episode.play_url or "", mode=era) as agent:
            assert "create_entities" in [one.name for one in (await agent.list_tools()).tools]
            ada = {"name": "Ada", "entityType": "person", "observations": ["born 1815"]}
            assert not (await agent.call_tool("create_entities", {"entities": [ada]})).is_error
        assert await earned(episode, "") == 1.0


async def test_a_stock_server_of_pypi_is_played_by_a_stock_client(serve: Any, tmp_path: Path) -> None:
    target = " ".join([*sqlite_server(), "--db-path", "{dir}/data.db"])
    setup = [{"tool": "create_table", "arguments": {"query": "CREATE TABLE t (n INTEGER)"}}]
    expect = {"tool": "read_query", "arguments": {"query": "SELECT n FROM t"}, "contains": "41"}
    row = {"id": "n", "prompt": "Insert 41.", "setup": setup, "expect": expect}
    cls = environment(target, tasks=write_tasks(tmp_path, row))
    async with episode_of(serve, cls) as episode:
        async with Client(episode.play_url or "") as agent:
            await agent.call_tool("write_query", {"query": "INSERT INTO t VALUES (41)"})
        assert await earned(episode, "") == 1.0


# ── verifiers ──────────────────────────────────────────────────────────────────────────────────────────────────────

FUNCTIONS = """
async def later(task, calls, answer, read):
    found = await read("read_cell", {"cell": "A1"})
    assert (task["id"], task["want"], answer) == ("one", 3, "done"), (task, answer)
    assert [(one.tool, dict(one.arguments), one.text, one.is_error) for one in calls] == [
        ("write_cell", {"cell": "A1", "value": 3}, "written", False),
        ("read_cell", {"cell": "Z9"}, "that cell is empty", True),
    ], calls
    return 0.25 * (found.data == {"value": task["want"]}) + 0.5 * (await read("read_cell", {"cell": "Z9"})).is_error

def now(task, calls, answer, read):
    return read("read_cell", {"cell": "A1"}).data["value"] == task["want"] and len(calls) == 2

def nothing(task, calls, answer, read): return None
def wrong(task, calls, answer, read): return "much"
def hanging(task, calls, answer, read): return read("nowhere")
def narrow(task): return 1.0
"""


@pytest.mark.parametrize(("function", "reward"), [("later", 0.75), ("now", 1.0)])
async def test_a_python_verifier_sees_the_task_the_calls_the_answer_and_the_server(
    serve: Any, tmp_path: Path, function: str, reward: float
) -> None:
    (tmp_path / f"check_{function}.py").write_text(FUNCTIONS, encoding="utf-8")
    cls = environment(
        plain(tmp_path),
        tasks=write_tasks(tmp_path, {"id": "one", "prompt": "Write.", "want": 3}),
        verifier=f"{tmp_path}/check_{function}.py:{function}",
    )
    async with episode_of(serve, cls) as episode:
        await episode.call("write_cell", cell="A1", value=3)
        await episode.call("read_cell", cell="Z9")
        assert await earned(episode, "done") == reward


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("function", ["wrong", "nothing", "hanging"])
async def test_a_verifier_that_fails_leaves_the_episode_unscored(serve: Any, tmp_path: Path, function: str) -> None:
    (tmp_path / f"bad_{function}.py").write_text(FUNCTIONS, encoding="utf-8")
    verifier = f"{tmp_path}/bad_{function}.py:{function}"
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, {"id": "one"}), verifier=verifier)
    async with episode_of(serve, cls) as episode:
        with pytest.raises(EpisodeFailed):
            await episode.grade("")


@pytest.mark.suite("formats", first=3)
@pytest.mark.parametrize(
    ("fields", "answer", "reward"),
    [
        ({"answer": "Forty Two"}, " forty  two\n", 1.0),
        ({"answer": "Forty Two"}, "42", 0.0),
        ({"answer": 42}, "42.0", 1.0),
        ({"answer": 42}, "about 42", 0.0),
        ({"answer": ["x", 7]}, "7", 1.0),
        ({"expect": {"tool": "read_cell", "arguments": {"cell": "A1"}, "equals": {"value": 4}}}, "", 0.0),
        ({"expect": {"tool": "read_cell", "arguments": {"cell": "A1"}, "includes": {"value": 3}}}, "", 1.0),
        ({"expect": {"tool": "read_cell", "arguments": {"cell": "B1"}, "error": True, "contains": "empty"}}, "", 1.0),
        ({"expect": {"tool": "read_cell", "arguments": {"cell": "B1"}, "lacks": "value"}}, "", 0.0),
        ({"answer": "x", "expect": STATE}, "y", 0.0),
        ({"answer": "x", "expect": [STATE, STATE]}, "x", 1.0),
    ],
)
async def test_the_fields_of_a_task_say_what_it_earns(
    host: Any, trainer: Any, tmp_path: Path, fields: dict[str, Any], answer: str, reward: float
) -> None:
    from ludus.formats.mcp.instances import Reading
    from ludus.formats.mcp.tasks import Row
    from ludus.formats.mcp.verifiers import read_verifier

    class Cells:
        async def read(self, tool: str, arguments: Any) -> Reading:
            return Reading("", {"value": 3}) if arguments["cell"] == "A1" else Reading("that cell is empty", None, True)

    row = Row.model_validate({"id": "one", **fields})
    verifier: Any = read_verifier(None, [row])
    assert (await verifier(row, Cells(), answer)).value == reward


async def test_a_checklist_can_check_calls_the_answer_and_the_state(serve: Any, tmp_path: Path) -> None:
    items = [
        {"id": "state", "check": "state", "arguments": STATE},
        {"id": "calls", "check": "called", "arguments": {"tool": "write_cell"}},
        {"id": "says", "check": "pattern", "arguments": {"pattern": "done"}},
        {"id": "calm", "check": "not_called", "arguments": {"tool": "draw"}},
    ]
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"name": "cells", "version": "1", "items": items}), encoding="utf-8")
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, ROW), verifier=str(path))
    async with episode_of(serve, cls) as episode:
        await episode.call("write_cell", cell="A1", value=3)
        assert await earned(episode, "no") == 0.75


# ── the pool ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_start_from_the_warm_pool_starts_no_process(serve: Any, tmp_path: Path) -> None:
    target, pids = counted(tmp_path)
    cls = environment(target, tasks=write_tasks(tmp_path, ROW), warm=3)
    server = await serve(cls)
    before = pids_in(pids)
    assert len(before) == 3
    async with connect(server.url) as client:
        remote = client.environment(cls.name)
        used = []
        for _ in range(3):
            async with remote.episode(split="train") as episode:
                used.append(int(text_of((await episode.call("pid")).content)))
        assert sorted(used) == sorted(before)  # each was running before its episode began
        assert len(set(used)) == 3


async def test_with_a_reset_tool_one_process_serves_all_episodes(serve: Any, tmp_path: Path) -> None:
    target, pids = counted(tmp_path)
    cls = environment(target, tasks=write_tasks(tmp_path, ROW), reset="clear")
    hosted: McpHost = vars(cls)["hosted"]
    server = await serve(cls)
    async with connect(server.url) as client:
        for _ in range(4):
            async with client.environment(cls.name).episode(split="train") as episode:
                assert "clear" not in [one.name for one in episode.tools]
                assert (await episode.call("read_cell", cell="A1")).error is not None
                await episode.call("write_cell", cell="A1", value=3)
                assert await earned(episode, "") == 1.0
            await hosted.pool.settle()
    assert len(pids_in(pids)) <= 2  # a start that comes before the reset is done may need a second one


async def test_no_process_is_left_when_the_server_stops(tmp_path: Path, host: Any) -> None:
    from ludus.server import EpisodeHost

    target, pids = counted(tmp_path)
    async with EpisodeHost([environment(target, tasks=write_tasks(tmp_path, ROW), warm=2)]):
        assert all(is_running(pid) for pid in pids_in(pids))
    assert not any(is_running(pid) for pid in pids_in(pids))


@pytest.mark.suite("formats")
async def test_no_process_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    target, pids = counted(tmp_path)
    spec = f"mcp:{target}#tasks={write_tasks(tmp_path, ROW)},warm=2"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ludus.cli", "serve", spec, "--port", "0", "--no-check"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    while b" at http" not in (line := await process.stdout.readline()):
        assert line, "the server did not start"
    process.kill()
    await process.wait()
    assert len(pids_in(pids)) == 2
    async with asyncio.timeout(50):
        await asyncio.gather(*map(end_of, pids_in(pids)))


async def end_of(pid: int) -> None:
    """Wait until a process, which is no child of this one, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)


async def test_a_deterministic_server_can_be_forked_by_repeating_its_calls(serve: Any, tmp_path: Path) -> None:
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, ROW), deterministic=True)
    async with episode_of(serve, cls) as episode:
        await episode.call("write_cell", cell="A1", value=3)
        async with await episode.fork() as twin:
            await episode.call("write_cell", cell="A1", value=4)
            assert await earned(twin, "") == 1.0
        assert await earned(episode, "") == 0.0


# ── failures ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_dies_leaves_its_episode_unscored_and_others_unaffected(serve: Any, tmp_path: Path) -> None:
    cls = environment(plain(tmp_path), tasks=write_tasks(tmp_path, ROW), warm=2)
    server = await serve(cls)
    async with connect(server.url) as client:
        remote = client.environment(cls.name)
        async with remote.episode(split="train") as one, remote.episode(split="train") as two:
            await two.call("write_cell", cell="A1", value=3)
            with pytest.raises(EnvironmentFailed):
                await one.call("die")
            assert await earned(two, "") == 1.0


async def test_a_server_that_died_before_grading_leaves_its_episode_unscored(serve: Any, tmp_path: Path) -> None:
    target, pids = counted(tmp_path)
    cls = environment(target, tasks=write_tasks(tmp_path, ROW))
    async with episode_of(serve, cls) as episode:
        os.kill(int(text_of((await episode.call("pid")).content)), signal.SIGKILL)
        with pytest.raises(InfrastructureFailed):
            await episode.grade("")


async def test_a_call_that_hangs_is_refused_and_the_verifier_does_not_score_it(serve: Any, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "expect": {"tool": "work", "contains": "done"}})
    cls = environment(hostile(tmp_path, "hang"), tasks=tasks, call_seconds=0.5, revision="legacy")
    async with episode_of(serve, cls) as episode:
        hung = await episode.call("work")
        assert hung.error is not None
        assert text_of(hung.content) == "work did not answer within 0.5 s"
        with pytest.raises(InfrastructureFailed):
            await episode.grade("")


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("mode", ["garbage", "wrong-id", "twice", "stderr"])
async def test_lines_that_are_no_mcp_do_not_disturb_an_episode(serve: Any, tmp_path: Path, mode: str) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    cls = environment(hostile(tmp_path, mode), tasks=tasks, revision="legacy")
    async with episode_of(serve, cls) as episode:
        assert text_of((await episode.call("work")).content) == "done"


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("mode", ["huge", "huge-last", "chatty"])
async def test_a_call_with_a_large_result_or_much_progress_leaves_the_episode_scored(
    serve: Any, tmp_path: Path, mode: str
) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    cls = environment(hostile(tmp_path, mode), tasks=tasks, revision="legacy")
    async with episode_of(serve, cls) as episode:
        for _ in range(2):
            result = await episode.call("work")
            if mode == "chatty":
                assert (text_of(result.content), result.error) == ("done", None)
            else:
                assert result.error is not None
                assert text_of(result.content) == "work failed: the answer is longer than 8,388,608 bytes"
        assert (await episode.grade("x")).reward is not None


async def test_a_call_that_reports_progress_without_end_is_out_of_time(serve: Any, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    cls = environment(hostile(tmp_path, "flood"), tasks=tasks, revision="legacy", call_seconds=0.5)
    async with episode_of(serve, cls) as episode:
        result = await episode.call("work")
        assert text_of(result.content) == "work did not answer within 0.5 s"


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("mode", ["closed", "crash"])
async def test_a_server_that_ends_is_the_environments_failure(serve: Any, tmp_path: Path, mode: str) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    cls = environment(hostile(tmp_path, mode), tasks=tasks, revision="legacy")
    async with episode_of(serve, cls) as episode:
        with pytest.raises(EnvironmentFailed):
            await episode.call("work")


@pytest.mark.suite("formats", first=2)
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("silent", "did not answer within 1 s"),
        ("early-exit", "it has ended: exit code 4; it wrote to standard error: no display"),
        ("duplicate", "two tools called 'work'"),
        ("long", "at most 16,384 are shown"),
        ("deep-schema", "nested more than"),
        ("no-object", "does not list its tools"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused_when_it_is_started(
    tmp_path: Path, mode: str, message: str
) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    seconds = 1 if mode == "silent" else 60
    cls = environment(hostile(tmp_path, mode), tasks=tasks, start_seconds=seconds, revision="legacy")
    await refused(cls, message)


async def refused(cls: Any, message: str) -> None:
    from ludus.server import EpisodeHost

    with pytest.raises(AuthoringError) as caught:
        async with EpisodeHost([cls]):
            pass
    assert message in caught.value.message


@pytest.mark.suite("formats", first=4)
@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (
            {"tools": ["read_cel"]},
            {},
            "`tools` of the task 'one' names the tool 'read_cel', which no server has; did you",
        ),
        ({"setup": [{"tool": "x"}]}, {}, "`setup` of the task 'one' names the tool 'x'"),
        ({"solution": [{"tool": "x"}]}, {}, "`solution` of the task 'one' names the tool 'x'"),
        ({"expect": {"tool": "x", "equals": 1}}, {}, "`expect` of the task 'one' names the tool 'x'"),
        ({}, {"reset": "x"}, "the option reset names the tool 'x'"),
        ({}, {"tools": "read_cell x"}, "the option tools names the tool 'x'"),
        ({}, {"resources": "a://b"}, "the option resources names a://b, which cannot be read"),
        ({}, {"prompt": "p"}, "the prompt 'p' cannot be read"),
        ({}, {"sandbox": "nowhere"}, "nowhere"),
        ({"solution": [{"tool": "read_cell", "arguments": {"cell": "{dir}"}}]}, {}, "names {dir} in `solution`"),
        ({"public": {"folder": "{dir}"}}, {}, "names {dir} in `public`"),
        ({"prompt": "{dir}"}, {"deterministic": True}, "differs from episode to episode"),
    ],
)
async def test_tasks_and_options_that_do_not_fit_the_server_are_refused(
    tmp_path: Path, fields: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x", **fields})
    await refused(environment(plain(tmp_path), tasks=tasks, **options), message)


@pytest.mark.parametrize(
    ("target", "rows", "options", "message"),
    [
        ("true", None, {}, "name a file with them: #tasks=FILE.jsonl"),
        ("true", [], {}, "has no tasks"),
        ("true", [{"prompt": "x"}], {}, "tasks.jsonl:1: id: "),
        ("true", [{"id": "a", "answer": 1}, {"id": "a", "answer": 1}], {}, "'train' have the id 'a'"),
        ("true", [{"id": "a"}], {}, "the task 'a' has neither `answer` nor `expect`"),
        ("true", [{"id": "a", "answer": 1}], {"verifier": "state"}, "the task 'a' lacks `expect`"),
        ("true", [{"id": "a", "expect": {"tool": "x"}}], {}, "give `equals`, `includes`"),
        ("true", [{"id": "a", "expect": {"equals": 1}}], {}, "give either `tool` or `resource`"),
        ("true", [{"id": "a"}], {"verifier": "grades"}, "the verifier 'grades' is none of"),
        ("true", [{"id": "a"}], {"verifier": "{dir}/check.py:latr"}, "has no function 'latr'; did you mean 'later'?"),
        ("true", [{"id": "a"}], {"verifier": "{dir}/check.py:narrow"}, "must take (task, calls, answer, read)"),
        ("true", [{"id": "a"}], {"verifier": "no_such_module:f"}, "needs the module 'no_such_module'"),
        ("true", [{"id": "a", "answer": 1}], {"wram": "1"}, "no option 'wram'; did you mean 'warm'?"),
        ("true", [{"id": "a", "answer": 1}], {"warm": "many"}, "option warm"),
        ("", [{"id": "a", "answer": 1}], {}, 'write mcp:"COMMAND ARGUMENTS"'),
        ("'open", [{"id": "a", "answer": 1}], {}, "cannot be read: No closing quotation"),
        ("no-such-program-x", [{"id": "a", "answer": 1}], {}, "there is no program 'no-such-program-x'; install it"),
        ("./no/program", [{"id": "a", "answer": 1}], {}, "./no/program is no program"),
        ("true ++ b=true", [{"id": "a", "answer": 1}], {}, "'true' has no name"),
        ("b=true ++ b=true", [{"id": "a", "answer": 1}], {}, "two servers are called 'b'"),
        ("missing.json", [{"id": "a", "answer": 1}], {}, "the file of servers missing.json cannot be read"),
        ("{dir}/bad.toml", [{"id": "a", "answer": 1}], {}, "is no TOML"),
        ("{dir}/none.json", [{"id": "a", "answer": 1}], {}, "lists no server"),
        ("{dir}/both.json", [{"id": "a", "answer": 1}], {}, "needs either `command` or `url`"),
        ("{dir}/secret.json", [{"id": "a", "answer": 1}], {}, "needs the environment variable LUDUS_TEST_NO_SUCH"),
    ],
)  # fmt: skip
def test_wrong_targets_tasks_and_options_are_refused_with_what_to_do(
    tmp_path: Path, target: str, rows: Any, options: dict[str, str], message: str
) -> None:
    (tmp_path / "check.py").write_text(FUNCTIONS, encoding="utf-8")
    (tmp_path / "bad.toml").write_text("= x", encoding="utf-8")
    (tmp_path / "none.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    (tmp_path / "both.json").write_text('{"mcpServers": {"a": {}}}', encoding="utf-8")
    secret = {"mcpServers": {"a": {"command": "true", "env": {"KEY": "${LUDUS_TEST_NO_SUCH}"}}}}
    (tmp_path / "secret.json").write_text(json.dumps(secret), encoding="utf-8")
    given = {name: value.replace("{dir}", str(tmp_path)) for name, value in options.items()}
    if rows is not None:
        given["tasks"] = write_tasks(tmp_path, *rows)
    with pytest.raises(AuthoringError) as caught:
        environment(target.replace("{dir}", str(tmp_path)), **given)
    assert message in caught.value.message


def test_a_file_of_tasks_may_have_a_byte_order_mark_and_separators_of_unicode(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    prompt = "One\u2028two\u2029three\u0085four"
    path.write_text("\ufeff" + json.dumps({"id": "one", "prompt": prompt, "answer": "x"}, ensure_ascii=False), "utf-8")
    cls = environment(plain(tmp_path), tasks=str(path))
    split: Any = cls.splits["train"]
    assert split.get(0).row["prompt"] == prompt


async def test_a_server_without_tools_is_refused(tmp_path: Path) -> None:
    source = "from mcp.server.mcpserver import MCPServer\nMCPServer('none').run('stdio')\n"
    cls = environment(command(tmp_path, source), tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}))
    await refused(cls, "has no tools")


# ── HTTP, composition, context ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def http_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A stock server at a URL, and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = folder / "http_server.py"
    file.write_text(CONTEXTUAL, encoding="utf-8")
    process = subprocess.Popen([sys.executable, str(file), str(port)], stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        while b"running on" not in (line := process.stderr.readline()):
            assert line, "the server did not start"
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


async def test_episodes_over_http_have_sessions_composed_with_commands(serve: Any, tmp_path: Path) -> None:
    rows = {
        "id": "one",
        "prompt": "Note.",
        "expect": {"tool": "web_add", "arguments": {"text": "x"}, "equals": "milk x"},
    }
    with http_server(tmp_path) as (url, process):
        cls = environment(f"web={url} ++ cells={plain(tmp_path)}", tasks=write_tasks(tmp_path, rows))
        server = await serve(cls)
        async with connect(server.url) as client:
            remote = client.environment(cls.name)
            async with remote.episode(split="train") as one, remote.episode(split="train") as two:
                names = [tool.name for tool in one.tools]
                assert {"web_add", "web_total", "cells_write_cell", "cells_die"} <= set(names)
                assert text_of((await one.call("web_add", text="milk")).content) == "milk"
                assert text_of((await two.call("web_add", text="eggs")).content) == "eggs"
                assert text_of((await one.call("cells_write_cell", cell="A1", value=1)).content) == "written"
                assert await earned(one, "") == 1.0
                process.kill()
                process.wait()
                with pytest.raises(EnvironmentFailed):
                    await two.call("web_total")


async def test_a_reset_tool_clears_what_an_http_server_keeps(serve: Any, tmp_path: Path) -> None:
    rows = {"id": "one", "expect": {"tool": "total", "equals": 0}}
    with http_server(tmp_path) as (url, _):
        cls = environment(url, tasks=write_tasks(tmp_path, rows), reset="clear")
        server = await serve(cls)
        async with connect(server.url) as client:
            for _ in range(2):
                async with client.environment(cls.name).episode(split="train") as episode:
                    assert text_of((await episode.call("total")).content) == "0"
                    await episode.call("add", text="milk")
                    assert await earned(episode, "") == 0.0


async def test_a_url_without_a_server_is_refused(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    await refused(environment("http://127.0.0.1:9/mcp", tasks=tasks), "it cannot be reached")


class WebServer:
    """An MCP server over HTTP whose one tool does what its argument says."""

    def __init__(self) -> None:
        self.gone: int | None = None
        """The status of every answer from now on."""
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return web.Response(status=202)
        if method == "tools/call":
            how = params["arguments"]["how"]
            if how == "gone":
                self.gone = 503
            elif how.isdigit():
                return web.Response(status=int(how), text="no")
            elif how == "large":
                return web.json_response(self._reply(message, self._text("x" * 9_000_000)))
            elif how == "large stream":
                body = f"event: message\ndata: {json.dumps(self._reply(message, self._text('x' * 9_000_000)))}\n\n"
                return web.Response(text=body, content_type="text/event-stream")
        if self.gone is not None:
            return web.Response(status=self.gone)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]},
            "tools/call": self._text("done"), "ping": {},
        }  # fmt: skip
        if method not in results:
            return web.json_response(
                {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
            )
        return web.json_response(self._reply(message, results[method]))

    def _text(self, text: str) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}]}

    def _reply(self, message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@pytest.fixture
async def web_server() -> AsyncIterator[WebServer]:
    server = WebServer()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    yield server
    await runner.cleanup()


@pytest.mark.suite("formats", first=2)
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("500", "do failed: the server answered with HTTP status 500"),
        ("503", "do failed: the server answered with HTTP status 503"),
        ("403", "do failed: the server answered with HTTP status 403"),
        ("large", "do failed: the answer is longer than 8,388,608 bytes"),
        ("large stream", "do failed: the answer is longer than 8,388,608 bytes"),
    ],
)
async def test_one_call_that_fails_over_http_is_the_agents_error_to_see(
    serve: Any, tmp_path: Path, web_server: WebServer, how: str, text: str
) -> None:
    cls = environment(web_server.url, tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}))
    async with episode_of(serve, cls) as episode:
        failed = await episode.call("do", how=how)
        assert failed.error is not None
        assert text_of(failed.content) == text
        assert text_of((await episode.call("do", how="well")).content) == "done"
        assert (await episode.grade("x")).reward is not None


async def test_a_web_server_that_answers_nothing_any_more_is_the_environments_failure(
    serve: Any, tmp_path: Path, web_server: WebServer
) -> None:
    cls = environment(web_server.url, tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}))
    async with episode_of(serve, cls) as episode:
        with pytest.raises(EnvironmentFailed):
            await episode.call("do", how="gone")


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("status", [401, 503])
async def test_a_web_server_that_refuses_the_handshake_is_named_with_its_status(
    tmp_path: Path, web_server: WebServer, status: int
) -> None:
    web_server.gone = status
    cls = environment(web_server.url, tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}))
    await refused(cls, f"HTTP status {status}")


async def test_resources_prompts_and_instructions_are_shown(serve: Any, tmp_path: Path) -> None:
    row = {"id": "one", "prompt": "Add a note.", "answer": "x", "prompt_arguments": {"name": "Kit"}}
    options = {"resources": "notes://rules", "prompt": "greet", "instructions": "true"}
    cls = environment(command(tmp_path, CONTEXTUAL), tasks=write_tasks(tmp_path, row), **options)
    async with episode_of(serve, cls) as episode:
        shown = [(one.role, text_of(one.content)) for one in episode.prompt]
        assert shown == [
            ("system", "Notes are lines."),
            ("user", "You are Kit."),
            ("user", "Add a note.\n\nnotes://rules:\nOnly short notes."),
        ]


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("ending", ["json", "toml"])
async def test_a_file_lists_servers_with_variables(serve: Any, tmp_path: Path, ending: str) -> None:
    server = tmp_path / "server.py"
    plain(tmp_path)
    one = {"command": sys.executable, "args": ["-S", str(server)], "env": {"KEY": "${HOME}"}}
    path = tmp_path / f"servers.{ending}"
    if ending == "json":
        path.write_text(json.dumps({"mcpServers": {"a": one, "b": one}}), encoding="utf-8")
    else:
        text = f"command = {json.dumps(one['command'])}\nargs = {json.dumps(one['args'])}\n"
        path.write_text(f"[mcpServers.a]\n{text}[mcpServers.b]\n{text}", encoding="utf-8")
    cls = environment(str(path), tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}))
    async with episode_of(serve, cls) as episode:
        await episode.call("a_write_cell", cell="A1", value=1)
        assert (await episode.call("b_read_cell", cell="A1")).error is not None
        assert (await episode.call("a_read_cell", cell="A1")).error is None


# ── isolation ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_command_gets_no_secrets_of_the_server(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_TEST_SECRET", "s3cret")
    target = " ".join(node_server("server-everything"))
    cls = environment(target, tasks=write_tasks(tmp_path, {"id": "one", "answer": "x"}), env={"SHOWN": "yes"})
    async with episode_of(serve, cls) as episode:
        shown = json.loads(text_of((await episode.call("get-env")).content))
        assert shown["SHOWN"] == "yes"
        assert shown["PATH"] == os.environ["PATH"]
        assert "LUDUS_TEST_SECRET" not in shown


async def test_a_command_can_run_in_a_sandbox(serve: Any, tmp_path: Path) -> None:
    await (await opened("bubblewrap-rlimits")).aclose()
    folder = tmp_path / "shown"
    folder.mkdir()
    plain(folder)
    target = "python3 /shown/server.py"
    cls = environment(target, tasks=write_tasks(tmp_path, ROW), sandbox="bubblewrap", readonly=f"{folder}:/shown")
    async with episode_of(serve, cls) as episode:
        await episode.call("write_cell", cell="A1", value=3)
        assert await earned(episode, "") == 1.0


@pytest.fixture(scope="module")
def engine_address() -> Iterator[str]:
    from engine import engine

    with engine() as address:
        yield address


@pytest.mark.suite("formats")
async def test_the_entry_point_of_an_image_is_played(
    serve: Any, tmp_path: Path, engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = pytest.importorskip("docker")
    from engine import BARE, IMAGE

    monkeypatch.setenv("DOCKER_HOST", engine_address)
    context = tmp_path / "image"
    context.mkdir()
    plain(context)
    text = f'FROM {IMAGE}\nCOPY server.py /srv/server.py\nWORKDIR /srv\nENTRYPOINT ["python3"]\nCMD ["server.py"]\n'
    (context / "Dockerfile").write_text(text, encoding="utf-8")
    client = docker.DockerClient(base_url=engine_address)
    client.images.build(path=str(context), tag="cells:1")
    client.close()
    tasks = write_tasks(tmp_path, ROW)
    cls = environment("cells:1", "docker", tasks=tasks)
    async with episode_of(serve, cls) as episode:
        await episode.call("write_cell", cell="A1", value=3)
        assert await earned(episode, "") == 1.0
    await refused(environment("no-such-image:1", "docker", tasks=tasks), "no-such-image:1")
    await refused(environment(BARE, "docker", tasks=tasks), "neither an entry point nor a command")


def build_memory_server(engine_address: str, context: Path, tag: str) -> None:
    """Build an image of npm's `server-memory`, with Node and its libraries next to busybox."""
    docker = pytest.importorskip("docker")
    from engine import BARE, libraries_of

    node, script = node_server("server-memory")
    modules = next(folder for folder in Path(script).parents if folder.name == "node_modules")
    shutil.copytree(modules, context / "srv" / "node_modules", symlinks=True)
    shutil.copy(node, context / "srv" / "node")
    for library in libraries_of([node]):
        place = context / "root" / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), place)
    inside = "/srv/node_modules/" + str(Path(script).relative_to(modules))
    lines = [
        f"FROM {BARE}", "COPY root /", "COPY srv /srv", "ENV MEMORY_FILE_PATH=/tmp/memory.jsonl",
        f"ENTRYPOINT {json.dumps(['/srv/node', inside])}",
    ]  # fmt: skip
    (context / "Dockerfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
    client = docker.DockerClient(base_url=engine_address, timeout=300)
    client.images.build(path=str(context), tag=tag)
    client.close()


@pytest.mark.suite("formats")
async def test_a_server_of_npm_is_played_in_an_image_that_has_node_and_no_python(
    serve: Any, tmp_path: Path, engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    build_memory_server(engine_address, tmp_path / "image", "memory:1")
    row = {"id": "ada", "expect": {"tool": "read_graph", "contains": "Ada"}}
    cls = environment("memory:1", "docker", tasks=write_tasks(tmp_path, row))
    async with episode_of(serve, cls) as episode:
        entity = {"name": "Ada", "entityType": "person", "observations": []}
        await episode.call("create_entities", entities=[entity])
        assert await earned(episode, "") == 1.0
    async with episode_of(serve, cls) as other:
        assert await earned(other, "") == 0.0


async def test_docker_is_needed_for_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    tasks = write_tasks(tmp_path, {"id": "one", "answer": "x"})
    await refused(environment("cells:1", "docker", tasks=tasks), "docker sandboxes need a Docker engine")
    with pytest.raises(AuthoringError, match="option sandbox"):
        environment("cells:1", "docker", tasks=tasks, sandbox="none")
    assert shutil.which("true")
