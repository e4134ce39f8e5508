"""`ludus export --form harbor` writes task folders without a token, and with answers in `solution/` only."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import riddles
import worlds
from mcp import Client
from peer_clients import ROOT
from terminal import run_ludus_here
from threaded import server_in_thread
from worlds import SECRET_ANSWER, Playground

from ludus.client import Answer, Call, ServerAddress, connect
from ludus.integrations import harbor_program
from ludus.integrations.harbor_program import ANSWER_BYTES, Relay, read_answer
from ludus.integrations.harbor_tasks import HarborTask, task_files
from ludus.protocol.content import ImageBlock, Message
from ludus.protocol.errors import Unsupported
from ludus.protocol.items import text_message

ADDRESS = "http://10.0.0.5:8000"
RIDDLES = f"{riddles.__file__}:Riddles"


def export(target: str, out: Path, *options: object) -> str:
    done = run_ludus_here("export", target, "--form", "harbor", "--out", out, *options, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()
    }


def test_a_task_without_tools_asks_for_an_answer_in_a_file(tmp_path: Path) -> None:
    assert "2 task folders" in export(RIDDLES, tmp_path / "out", "--address", ADDRESS, "--token", "zq-token-zq")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["red-blue", "red-blue-1"]
    found = files(tmp_path / "out" / "red-blue")
    assert "zq-token-zq" not in "".join(found.values())
    assert [name for name, text in found.items() if "red\n" in text] == ["solution/answer.txt"]
    assert found["solution/answer.txt"] == "red\n\n"
    assert found["instruction.md"].startswith("Which color?\n")
    assert "/app/answer.txt" in found["instruction.md"]
    config = tomllib.loads(found["task.toml"])
    assert config["verifier"]["environment_mode"] == "separate"
    assert config["verifier"]["env"]["LUDUS_TOKEN"] == "${LUDUS_TOKEN}"
    assert config["artifacts"] == [{"source": "/app/answer.txt"}]
    assert config["metadata"]["ludus"]["oracle_reward"] == 1.0
    played = json.loads(found["tests/task.json"])
    assert (played["url"], played["task"]) == (ADDRESS, "Red / Blue?")
    assert played["seed"] == config["metadata"]["ludus"]["seed"]
    assert found["tests/test.sh"].startswith("#!/bin/sh\n")


def test_the_agents_container_of_a_task_with_tools_has_neither_the_token_nor_the_answer() -> None:
    solution: list[Call | Answer] = [Call("add", {"amount": 2}), Answer(SECRET_ANSWER)]
    found = task_files(replace(task(text_message("user", "Do."), tools=("add",)), solution=solution))
    assert {name for name, text in found.items() if SECRET_ANSWER in text} == {"solution/actions.json"}
    assert json.loads(found["solution/actions.json"])["calls"] == [
        {"tool": "add", "arguments": {"amount": 2}},
        {"tool": "submit_answer", "arguments": {"answer": SECRET_ANSWER}},
    ]
    assert "TOKEN" not in found["environment/Dockerfile"] + found["instruction.md"]
    assert "`add`" in found["instruction.md"]
    assert "`submit_answer`" in found["instruction.md"]
    config = tomllib.loads(found["task.toml"])
    assert config["environment"] == {
        "mcp_servers": [{"name": "ludus", "transport": "streamable-http", "url": "http://ludus:8000/mcp"}]
    }
    assert config["artifacts"] == [{"source": "/ludus/episode.json", "service": "ludus"}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_in_thread(Playground) as server:
        yield server.url


def test_the_address_of_a_server_gives_folders_without_solutions_and_says_so(url: str, tmp_path: Path) -> None:
    assert "no solutions" in export(url, tmp_path / "out", "-n", 2, "--seed", 7)
    for name in ("r-0", "r-1"):
        found = files(tmp_path / "out" / name)
        assert not [path for path in found if path.startswith("solution/")]
        assert json.loads(found["tests/task.json"])["seed"] == 7


def test_existing_folders_are_replaced_only_if_asked_and_only_if_they_are_tasks(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "mine").mkdir(parents=True)
    (out / "r-0").mkdir()
    options = ("--form", "harbor", "--out", out, "-n", 1)
    refused = run_ludus_here("export", url, *options, cwd=ROOT)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    foreign = run_ludus_here("export", url, *options, "--overwrite", cwd=ROOT)
    assert foreign.returncode == 2
    assert "no task folder" in " ".join(foreign.stderr.replace("│", " ").split())
    (out / "r-0" / "task.toml").write_text("old = true\n")
    export(url, out, "-n", 1, "--overwrite")
    assert sorted(path.name for path in out.iterdir()) == ["mine", "r-0"]
    assert "metadata.ludus" in (out / "r-0" / "task.toml").read_text()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--address", ADDRESS, "--to", "jsonl"), "leave out --to"),
        ((), "--address URL"),
        (("--out", __file__), "is a file"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    given = options if "--out" not in options else (*options, "--address", ADDRESS)
    done = run_ludus_here("export", RIDDLES, "--form", "harbor", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def task(*prompt: Message, tools: tuple[str, ...] = (), gradable: bool = True) -> HarborTask:
    return HarborTask(ServerAddress(ADDRESS).task("toys", "train", "t-1"), prompt, tools, gradable, 0)


def test_what_a_folder_cannot_say_is_refused() -> None:
    picture = Message(role="user", content=(ImageBlock.of(worlds.PIXEL),))
    with pytest.raises(Unsupported, match="has an image"):
        task_files(task(picture))
    with pytest.raises(Unsupported, match="neither tools nor a graded answer"):
        task_files(task(text_message("user", "Do."), gradable=False))
    assert (
        "submit_answer"
        not in task_files(task(text_message("user", "Do."), tools=("a",), gradable=False))["instruction.md"]
    )


@contextmanager
def relay(target: str) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("R", (Relay,), {"target": target})) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()


async def test_a_stock_mcp_client_plays_through_the_relay(serve: object) -> None:
    server = await serve(Playground)  # type: ignore[operator]
    async with connect(server.url) as client, client.environment("playground").episode(index=3) as episode:
        assert episode.play_url is not None
        with relay(episode.play_url) as url:
            async with Client(f"{url}/mcp") as agent:
                names = {tool.name for tool in (await agent.list_tools()).tools}
                assert {"add", "submit_answer"} <= names
                await agent.call_tool("add", {"amount": 2})
                await agent.call_tool("submit_answer", {"answer": f"{SECRET_ANSWER}-3"})
        assert (await episode.rewards()).total.value == 1.25


@contextmanager
def answering(*replies: dict[str, Any] | None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server with these replies, one after another; None is a connection that breaks. Yields what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            reply = replies[len(asked) - 1]
            if reply is not None:
                body = json.dumps({"jsonrpc": "2.0", "id": 1, **reply}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}", asked
        finally:
            listener.shutdown()
            thread.join()


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "a-token")
    monkeypatch.setattr(harbor_program, "PAUSES", (0.0, 0.0))


@pytest.mark.usefixtures("no_waiting")
def test_a_lost_or_refused_request_is_sent_again_with_its_key() -> None:
    busy = {"error": {"code": 4290, "message": "full"}}
    with answering(None, busy, {"result": {"graded": True}}) as (url, asked):
        found = harbor_program.Server({"url": url}).call("grade", {"key": "k"})
    assert found == {"graded": True}
    assert [one["params"] for one in asked] == [{"key": "k"}] * 3


@pytest.mark.usefixtures("no_waiting")
def test_requests_end_after_some_tries_and_other_refusals_at_once() -> None:
    with answering(*[None] * 9) as (url, asked), pytest.raises(harbor_program.TaskError, match="did not answer grade"):
        harbor_program.Server({"url": url}).call("grade", {"key": "k"})
    assert len(asked) == 3
    wrong = {"error": {"code": 4044, "message": "no such episode"}}
    with answering(wrong) as (url, asked), pytest.raises(harbor_program.Refused, match="no such episode"):
        harbor_program.Server({"url": url}).call("get", {})


def test_nothing_is_asked_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    with pytest.raises(harbor_program.TaskError, match="LUDUS_TOKEN is not set"):
        harbor_program.Server({"url": ADDRESS})


@pytest.mark.usefixtures("no_waiting")
def test_an_episode_is_kept_alive_and_an_error_does_not_end_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harbor_program, "KEEP_ALIVE_SECONDS", 0.0)
    wrong = {"error": {"code": 4044, "message": "no such episode"}}
    enough = threading.Event()
    with answering({"result": {}}, wrong, *[{"result": {}}] * 1000) as (url, asked):
        server = harbor_program.Server({"url": url})
        thread = threading.Thread(target=harbor_program.keep_alive, args=(server, "e_1", enough))
        thread.start()
        while len(asked) < 3:
            assert thread.is_alive()
        enough.set()
        thread.join()
    assert {(one["method"], one["params"]["episode"]) for one in asked} == {("dev.ludus/episodes/get", "e_1")}


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), (b"a", "a"), (b"\n", ""), (b"\xff", "\ufffd"),
        (b"x" * (ANSWER_BYTES + 9), "x" * ANSWER_BYTES),
    ],
)  # fmt: skip
def test_the_text_of_the_answers_file_is_the_answer(tmp_path: Path, content: bytes, answer: str) -> None:
    (tmp_path / "answer.txt").write_bytes(content)
    assert read_answer(tmp_path / "answer.txt") == answer
    (tmp_path / "link").symlink_to(tmp_path / "answer.txt")
    assert read_answer(tmp_path / "link") == read_answer(tmp_path) == read_answer(tmp_path / "none") == ""
