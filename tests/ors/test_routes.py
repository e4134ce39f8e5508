"""Each route, byte by byte, as both published servers answer it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from waiting import wait_until
from worlds import SECRET_ANSWER, Playground, Troublesome

from ludus.server import Environment, Result, ServerLimits, Split, Task, tool

Serve = Callable[..., Awaitable[Any]]

SSE = "text/event-stream; charset=utf-8"
TASK_ID = rb"event: task_id\r\ndata: [0-9a-f]{32}\r\n\r\n"


class Echo(Environment[Task]):
    """Echoes."""

    splits = {
        "train": [Task(id=f"t{n}") for n in range(5)],
        "hard": Split([Task(id="h0")], type="validation"),
        "endless": Split.generated(lambda n: Task(id=f"e{n}"), type="train"),
    }
    gate: asyncio.Event | None = None
    runs = 0

    async def setup(self) -> None:
        if self.gate is not None:
            await self.gate.wait()

    async def prompt(self) -> str:
        return "What is 2+2?"

    @tool
    async def echo(self, text: str) -> str:
        """Say it back."""
        return text

    @tool
    async def tell(self) -> str:
        """Tell the secrets."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.secrets.items()))

    @tool
    async def win(self) -> Result:
        """Win."""
        return Result("won", reward=1, finished=True)

    @tool
    async def slow(self, seconds: float) -> str:
        """Take its time."""
        type(self).runs += 1
        await asyncio.sleep(seconds)
        return f"run {type(self).runs}"

    @tool
    async def roll(self) -> str:
        """A number that depends on the seed only."""
        return str(self.rng.randrange(10**9))


class Raw:
    """Requests without any interpretation."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(
        self, method: str, path: str, body: Any = None, *, sid: str | None = None, **headers: str
    ) -> tuple[int, bytes, aiohttp.ClientResponse]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if sid is not None:
            names["X-Session-ID"] = sid
        async with self._session.request(method, path, data=data, headers=names, allow_redirects=False) as response:
            return response.status, await response.read(), response

    async def json(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        status, content, _ = await self(method, path, body, **options)
        return status, json.loads(content)

    async def call(self, sid: str, name: str, *, where: str = "/echo", **arguments: Any) -> Any:
        """The JSON of a call's `end` event, or the text of its `error` event."""
        status, content, _ = await self("POST", f"{where}/call", {"name": name, "input": arguments}, sid=sid)
        assert status == 200, content
        return outcome(content)


def outcome(content: bytes) -> Any:
    chunks = re.findall(rb"event: (?:chunk|end)\r\ndata: (.*)\r\n", content)
    if chunks:
        return json.loads(b"".join(chunks))
    return re.findall(rb"data: (.*)\r\n", content.split(b"event: error\r\n")[1])


@pytest.fixture
async def raw(serve: Serve) -> AsyncIterator[Raw]:
    server = await serve(Echo, Playground, Troublesome)
    async with aiohttp.ClientSession(server.url) as session:
        yield Raw(session)


@pytest.fixture
async def sid(raw: Raw) -> str:
    status, _ = await raw.json("POST", "/create", {"env_name": "echo", "split": "train", "index": 0}, sid="s1")
    assert status == 200
    return "s1"


@pytest.mark.requirement("ORS-1")
async def test_health_version_and_environments(raw: Raw) -> None:
    assert (await raw("GET", "/health"))[:2] == (200, b'{"status":"ok"}')
    status, version = await raw.json("GET", "/version")
    assert status == 200
    assert isinstance(version["version"], str)
    assert version["build_sha"] is None
    assert (await raw("GET", "/list_environments"))[:2] == (200, b'["echo","playground","troublesome"]')


@pytest.mark.requirement("ORS-14")
async def test_no_ludus_fields_are_sent_to_clients_that_do_not_ask(raw: Raw, sid: str) -> None:
    body = {"name": "echo", "input": {"text": "x"}}
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/version", None),
        ("GET", "/echo/tools", None),
        ("GET", "/echo/task_tools", None),
        ("POST", "/echo/task", {"split": "train", "index": 0}),
        ("POST", "/echo/call", body),
        ("POST", "/echo/task", {"split": "no", "index": 0}),
    ]
    for method, path, sent in asked:
        assert b"ludus" not in (await raw(method, path, sent, sid=sid))[1]
        assert b'"ludus":{' in (await raw(method, path, sent, sid=sid, Ludus_Extension="0.2"))[1]


@pytest.mark.requirement("ORS-13")
async def test_tools_have_exactly_three_keys_and_extensions_stand_at_the_root(raw: Raw) -> None:
    _, answer = await raw.json("GET", "/playground/tools")
    assert set(answer) == {"tools", "terminal_tool", "supports_score_group", "message_block_types"}
    assert all(set(tool) == {"name", "description", "input_schema"} for tool in answer["tools"])
    assert set(answer["terminal_tool"]) == {"name", "arg", "description"}
    assert answer["terminal_tool"]["name"] in {tool["name"] for tool in answer["tools"]}
    assert answer["supports_score_group"] is True
    _, answer = await raw.json("GET", "/echo/tools")
    assert (answer["terminal_tool"], answer["supports_score_group"]) == (None, False)


@pytest.mark.requirement("ORS-11")
async def test_splits_tasks_and_counts(raw: Raw) -> None:
    assert (await raw("GET", "/echo/splits"))[1] == (
        b'[{"name":"train","type":"train"},{"name":"hard","type":"validation"},{"name":"endless","type":"train"}]'
    )
    assert (await raw("POST", "/echo/num_tasks", {"split": "train"}))[1] == b'{"num_tasks":5}'
    assert (await raw("POST", "/echo/num_tasks", {"split": "endless"}))[1] == b'{"num_tasks":9007199254740992}'
    assert (await raw("POST", "/echo/tasks", {"split": "hard"}))[1] == (
        b'{"tasks":[{"id":"h0","split":"hard"}],"env_name":"echo"}'
    )
    status, answer = await raw.json("POST", "/echo/tasks", {"split": "endless"})
    assert (status, "not supported" in answer["detail"]) == (400, True)


@pytest.mark.parametrize("spelling", ["task", "get_task"])
async def test_one_task_in_both_spellings(raw: Raw, spelling: str) -> None:
    path = f"/echo/{spelling}"
    assert (await raw("POST", path, {"split": "train", "index": 1}))[1] == (
        b'{"task":{"id":"t1","split":"train"},"env_name":"echo"}'
    )
    for index, task in ((-1, "t4"), ("2", "t2")):
        assert (await raw.json("POST", path, {"split": "train", "index": index}))[1]["task"]["id"] == task
    for index in (5, -6, 2**60):
        assert await raw.json("POST", path, {"split": "train", "index": index}) == (400, {"detail": "Invalid index"})
    assert await raw.json("POST", path, {"split": "no", "index": 0}) == (400, {"detail": "Invalid split"})


@pytest.mark.parametrize("spelling", ["task_range", "get_task_range"])
async def test_ranges_are_python_slices_in_both_spellings(raw: Raw, spelling: str) -> None:
    for start, stop in ((None, None), (1, 3), (-2, 99), (3, 1), (0, -1), (9, 12)):
        _, answer = await raw.json("POST", f"/echo/{spelling}", {"split": "train", "start": start, "stop": stop})
        assert [task["id"] for task in answer["tasks"]] == [f"t{n}" for n in range(5)][start:stop]
        assert answer["env_name"] == "echo"
    status, _ = await raw.json("POST", f"/echo/{spelling}", {"split": "endless", "start": 0})
    assert status == 400
    _, answer = await raw.json("POST", f"/echo/{spelling}", {"split": "endless", "start": 10**9, "stop": 10**9 + 1})
    assert answer["tasks"] == [{"id": "e1000000000", "split": "endless"}]


async def test_names_are_matched_without_case_and_bare_paths_are_served_directly(raw: Raw, sid: str) -> None:
    tools = (await raw("GET", "/echo/tools"))[1]
    for path in ("/ECHO/tools", "/tools"):
        assert (await raw("GET", path))[:2] == (200, tools)
    deployed = await raw("GET", "/tools", X_Deployment="somebody/Playground")
    assert deployed[1] == (await raw("GET", "/playground/tools"))[1]
    assert (await raw("GET", "/prompt", sid=sid))[0] == 200
    assert (await raw.call(sid, "echo", where="", text="hi"))["ok"] is True
    assert (await raw("GET", "/nosuch/tools"))[:2] == (404, b'{"detail":"Not Found"}')
    assert (await raw("GET", "/echo/nosuch"))[:2] == (404, b'{"detail":"Not Found"}')


async def test_a_wrong_method_is_405(raw: Raw) -> None:
    status, body, response = await raw("GET", "/echo/call")
    assert (status, body, response.headers["allow"]) == (405, b'{"detail":"Method Not Allowed"}', "POST")
    assert (await raw("OPTIONS", "/create"))[0] == 405


async def test_create_session_answers_events_unless_json_is_asked_for(raw: Raw) -> None:
    for headers in ({}, {"Accept": "text/event-stream"}, {"Accept": "*/*"}):
        for body in (None, {}, {"env": {"A": "b"}}):
            status, content, response = await raw("POST", "/create_session", body, **headers)
            assert (status, response.headers["content-type"]) == (200, SSE)
            assert re.fullmatch(
                rb"event: task_id\r\ndata: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\r\n\r\n"
                rb"event: end\r\ndata: \r\n\r\n",
                content,
            )
    status, answer = await raw.json("POST", "/create_session", Accept="application/json")
    assert (status, list(answer)) == (200, ["sid"])


@pytest.mark.requirement("ORS-4")
async def test_create_by_index_and_by_task_spec(raw: Raw) -> None:
    by_index = {"env_name": "Echo", "split": "train", "index": -1}
    assert (await raw("POST", "/create", by_index, sid="a"))[:2] == (200, b'{"sid":"a"}')
    spec = (await raw.json("POST", "/playground/task", {"split": "train", "index": 3}))[1]["task"]
    assert SECRET_ANSWER not in json.dumps(spec)
    assert (await raw("POST", "/create", {"env_name": "playground", "task_spec": spec}, sid="b"))[0] == 200
    assert (await raw.json("GET", "/playground/prompt", sid="b"))[1][0]["text"] == "Say word 3."
    won = await raw.call("b", "finish", where="/playground", word=f"{SECRET_ANSWER}-3")
    assert won["output"]["reward"] == 1.0


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"env_name": "zz", "split": "train", "index": 0}, 404, "unknown environment 'zz'"),
        ({"env_name": "echo", "split": "no", "index": 0}, 400, "Invalid split"),
        ({"env_name": "echo", "split": "train", "index": 99}, 400, "Invalid index"),
        ({"env_name": "echo", "task_spec": {"id": "nosuch", "split": "train"}}, 400, "Unknown task"),
        ({"env_name": "echo", "task_spec": {"question": "?"}}, 400, "task_spec must hold"),
        ({"env_name": "echo", "split": "train", "index": 0, "toolset_name": "cli"}, 400, "unknown toolset 'cli'"),
    ],
)
async def test_create_refuses_what_does_not_exist(raw: Raw, body: Any, status: int, detail: str) -> None:
    answer = await raw.json("POST", "/create", body, sid="x")
    assert answer[0] == status
    assert answer[1]["detail"].startswith(detail)
    assert (await raw.json("POST", "/ping", sid="x"))[0] == 404


async def test_create_wants_exactly_one_way_to_a_task_and_a_fresh_session_id(raw: Raw, sid: str) -> None:
    for body in (
        {"env_name": "echo"},
        {"split": "train"},
        {"index": 0},
        {"split": "train", "index": 0, "task_spec": {"id": "t0", "split": "train"}},
    ):
        status, answer = await raw.json("POST", "/create", body, sid="x")
        assert status == 422
        assert answer["detail"] == [
            {
                "type": "value_error",
                "loc": ["body"],
                "msg": "Value error, Provide either task_spec or both split and index, not both/neither",
                "input": body,
                "ctx": {"error": {}},
            }
        ]
    good = {"split": "train", "index": 0}
    assert await raw.json("POST", "/create", good) == (400, {"detail": "X-Session-ID header is required"})
    assert await raw.json("POST", "/create", good, sid=sid) == (400, {"detail": "Session already exists"})
    assert (await raw("POST", "/delete", sid=sid))[0] == 200
    assert (await raw("POST", "/create", good, sid=sid))[0] == 200


async def test_a_create_under_the_same_key_is_the_same_create(raw: Raw) -> None:
    for _ in range(2):
        good = {"env_name": "echo", "split": "train", "index": 0}
        assert (await raw("POST", "/create", good, sid="k", Idempotency_Key="one"))[:2] == (200, b'{"sid":"k"}')


async def test_a_seed_is_taken_from_header_or_body(raw: Raw) -> None:
    good = {"env_name": "echo", "split": "train", "index": 0}
    await raw("POST", "/create", good, sid="a", X_Seed="12")
    await raw("POST", "/create", {**good, "seed": 12}, sid="b")
    await raw("POST", "/create", {**good, "seed": 13}, sid="c")
    rolls = [(await raw.call(one, "roll"))["output"]["blocks"][0]["text"] for one in "abc"]
    assert rolls[0] == rolls[1] != rolls[2]
    for wrong in ("-1", "x", "1.5", str(2**53), "²"):
        assert (await raw("POST", "/create", good, sid="d", X_Seed=wrong.encode().decode("latin-1")))[0] == 400


async def test_secrets_arrive_from_the_body_and_from_both_forms_of_the_header(raw: Raw) -> None:
    good = {"env_name": "echo", "split": "train", "index": 0}
    plain = base64.b64encode(json.dumps({"a": "1"}).encode()).decode()
    wrapped = base64.b64encode(json.dumps({"a": {"value": "1", "allowed_domains": ["x"]}}).encode()).decode()
    assert (await raw("POST", "/create", {**good, "secrets": {"a": "1"}}, sid="a"))[0] == 200
    assert (await raw("POST", "/create", good, sid="b", X_Secrets=plain))[0] == 200
    assert (await raw("POST", "/create", good, sid="c", X_Secrets=wrapped))[0] == 200
    for one in "abc":
        assert (await raw.call(one, "tell"))["output"]["blocks"][0]["text"] == "a=1"
    for wrong in ("%%%", base64.b64encode(b"[1]").decode(), base64.b64encode(b'{"a":{"v":1}}').decode()):
        status, body, _ = await raw("POST", "/create", good, sid="d", X_Secrets=wrong)
        assert status == 400
        assert b"X-Secrets" in body


async def test_prompt_and_messages(raw: Raw, sid: str) -> None:
    block = b'{"text":"What is 2+2?","detail":null,"type":"text"}'
    assert (await raw("GET", "/echo/prompt", sid=sid))[:2] == (200, b"[%b]" % block)
    assert (await raw("GET", "/echo/messages", sid=sid))[:2] == (
        200,
        b'[{"role":"user","blocks":[%b],"detail":null}]' % block,
    )
    assert (await raw("GET", "/echo/task_tools", sid=sid))[1] == (await raw("GET", "/echo/tools"))[1]


@pytest.mark.requirement("ORS-6", "ORS-8")
async def test_a_call_is_a_task_id_and_an_end(raw: Raw, sid: str) -> None:
    status, content, response = await raw("POST", "/echo/call", {"name": "echo", "input": {"text": "hi"}}, sid=sid)
    assert (status, response.headers["content-type"]) == (200, SSE)
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert re.fullmatch(
        TASK_ID + rb'event: end\r\ndata: {"ok":true,"output":{"blocks":\[{"text":"hi","detail":null,"type":"text"}\],'
        rb'"metadata":null,"reward":null,"finished":false}}\r\n\r\n',
        content,
    )
    win = {"name": "win", "input": {}}
    _, content, _ = await raw("POST", "/echo/call", win, sid=sid)
    assert b'"reward":1.0,"finished":true}}' in content
    _, content, _ = await raw("POST", "/echo/call", win, sid=sid)
    assert outcome(content) == {
        "ok": False,
        "error": "'win' was not run: the episode has finished, so no further tool calls are accepted.",
        "reason": "episode_finished",
    }


@pytest.mark.requirement("ORS-9")
async def test_mistakes_in_calls_are_results_with_the_known_beginnings(raw: Raw, sid: str) -> None:
    assert await raw.call(sid, "zzz") == {"ok": False, "error": "'zzz' is not a valid tool", "reason": "not_found"}
    wrong = await raw.call(sid, "echo", text=3)
    assert (wrong["ok"], wrong["reason"]) == (False, "input_validation")
    assert wrong["error"].startswith("Tool input validation error: ")
    assert (await raw.call(sid, "echo", text="x"))["ok"] is True


@pytest.mark.requirement("ORS-9")
async def test_a_broken_tool_is_an_error_event_without_its_text(raw: Raw) -> None:
    for number, fault in enumerate(("crash", "not_a_number", "infinite", "cancel", "wrong_type")):
        sid = f"t{number}"
        await raw("POST", "/create", {"env_name": "troublesome", "split": "train", "index": 0}, sid=sid)
        lines = await raw.call(sid, fault, where="/troublesome")
        assert len(lines) == 1
        assert lines[0].startswith(b"EnvironmentFailed: ")
        assert b"incident" in lines[0]
        assert SECRET_ANSWER.encode() not in lines[0]
        again = await raw.call(sid, "crash", where="/troublesome")
        assert b"environment_error" in again[0]


async def test_large_results_come_in_chunks_of_4096_characters(raw: Raw, sid: str) -> None:
    text = "é" * 9000
    _, content, _ = await raw("POST", "/echo/call", {"name": "echo", "input": {"text": text}}, sid=sid)
    names = re.findall(rb"event: (\w+)\r\n", content)
    assert names == [b"task_id", b"chunk", b"chunk", b"end"]
    data = re.findall(rb"event: (?:chunk|end)\r\ndata: (.*)\r\n", content)
    assert [len(piece.decode()) for piece in data][:2] == [4096, 4096]
    assert outcome(content)["output"]["blocks"][0]["text"] == text


@pytest.mark.requirement("ORS-10")
async def test_a_slow_call_sends_its_task_id_first_and_can_be_resumed(raw: Raw, sid: str, serve: Serve) -> None:
    Echo.runs = 0
    body = {"name": "slow", "input": {"seconds": 0.3}}
    async with raw._session.post("/echo/call", data=json.dumps(body), headers={"X-Session-ID": sid}) as response:
        assert response.headers["transfer-encoding"] == "chunked"
        first = await response.content.readuntil(b"\r\n\r\n")
        assert re.fullmatch(TASK_ID, first)
        response.close()
    task_id = first.split()[3].decode()
    again = {"name": "ignored", "input": {}, "task_id": task_id}
    for _ in range(2):
        _, content, _ = await raw("POST", "/echo/call", again, sid=sid)
        assert content.startswith(first)
        assert outcome(content)["output"]["blocks"][0]["text"] == "run 1"
    await raw("POST", "/create", {"env_name": "echo", "split": "train", "index": 0}, sid="other")
    _, content, _ = await raw("POST", "/echo/call", again, sid="other")
    assert content == b"event: error\r\ndata: unknown task_id\r\n\r\n"
    assert Echo.runs == 1


async def start_and_leave(raw: Raw, sid: str, **arguments: Any) -> None:
    """Call a tool and cut the connection before its reply."""
    body = json.dumps({"name": "slow", "input": arguments})
    async with raw._session.post("/echo/call", data=body, headers={"X-Session-ID": sid}) as response:
        await response.content.readany()
        response.close()


async def test_an_equal_call_right_after_a_lost_reply_is_that_call(raw: Raw, sid: str) -> None:
    Echo.runs = 0
    await start_and_leave(raw, sid, seconds=0.5)
    assert (await raw.call(sid, "slow", seconds=0.5))["output"]["blocks"][0]["text"] == "run 1"
    assert (await raw.call(sid, "slow", seconds=0.01))["output"]["blocks"][0]["text"] == "run 2"
    assert Echo.runs == 2


async def test_an_equal_call_after_another_call_is_a_new_one(raw: Raw, sid: str) -> None:
    Echo.runs = 0
    await start_and_leave(raw, sid, seconds=0.2)
    assert (await raw.call(sid, "echo", text="x"))["ok"]
    assert (await raw.call(sid, "slow", seconds=0.2))["output"]["blocks"][0]["text"] == "run 2"


async def test_a_key_runs_a_call_once(raw: Raw, sid: str) -> None:
    Echo.runs = 0
    body = {"name": "slow", "input": {"seconds": 0}}
    answers = [await raw("POST", "/echo/call", body, sid=sid, Idempotency_Key="k") for _ in range(3)]
    assert len({answer[1] for answer in answers}) == 1
    assert Echo.runs == 1
    other = {"name": "slow", "input": {"seconds": 1}}
    assert (await raw("POST", "/echo/call", other, sid=sid, Idempotency_Key="k"))[0] == 409


@pytest.mark.requirement("ORS-4")
async def test_ping_delete_and_delete_session(raw: Raw, sid: str) -> None:
    assert (await raw("POST", "/ping", sid=sid))[:2] == (200, b'{"status":"ok"}')
    for path in ("/ping", "/delete", "/delete_session"):
        assert await raw.json("POST", path) == (400, {"detail": "X-Session-ID header is required"})
    assert await raw.json("POST", "/ping", sid="nope") == (404, {"detail": "Active environment not found"})
    for path in ("/delete", "/delete", "/delete_session", "/delete_session"):
        assert (await raw("POST", path, sid=sid))[:2] == (200, b'{"sid":"s1"}')
    for method, path in (
        ("POST", "/ping"),
        ("GET", "/echo/prompt"),
        ("GET", "/echo/task_tools"),
        ("POST", "/echo/call"),
    ):
        body = {"name": "echo", "input": {"text": ""}} if path.endswith("call") else None
        assert await raw.json(method, path, body, sid=sid) == (404, {"detail": "Active environment not found"})
        assert await raw.json(method, path, body) == (400, {"detail": "X-Session-ID header is required"})


async def test_score_group(raw: Raw, sid: str) -> None:
    await raw("POST", "/create", {"env_name": "playground", "split": "train", "index": 0}, sid="p")
    text = {"text": "x", "detail": None, "type": "text"}
    call = {"type": "tool_call", "id": "1", "name": "t", "input": {"a": 1}, "detail": None}
    result = {"type": "tool_result", "tool_call_id": "1", "blocks": [text], "is_error": False, "detail": None}
    one = {"messages": [{"role": "user", "blocks": [text], "detail": None}]}
    two = {"messages": [*one["messages"], {"role": "assistant", "blocks": [call, result]}], "metadata": {"k": 1}}
    status, content, _ = await raw("POST", "/playground/score_group", {"candidates": [one, two]}, sid="p")
    assert status == 200
    assert outcome(content) == {"scores": [{"reward": 1.0, "metadata": None}, {"reward": 2.0, "metadata": None}]}
    task_id = content.split()[3].decode()
    again = await raw("POST", "/playground/score_group", {"candidates": [], "task_id": task_id}, sid="p")
    assert again[1] == content
    assert await raw.json("POST", "/echo/score_group", {"candidates": []}, sid=sid) == (
        404,
        {"detail": "Environment 'echo' does not implement score_group"},
    )


async def test_calls_wait_for_setup_and_a_deleted_session_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    monkeypatch.setattr(Echo, "gate", gate)
    server = await serve(Echo)
    async with aiohttp.ClientSession(server.url) as session:
        raw = Raw(session)
        for sid in ("a", "b"):
            good = {"split": "train", "index": 0}
            assert (await raw("POST", "/create", good, sid=sid))[:2] == (200, b'{"sid":"%b"}' % sid.encode())
            assert (await raw("POST", "/ping", sid=sid))[0] == 200
        waiting = [asyncio.create_task(raw("GET", "/prompt", sid=sid)) for sid in ("a", "b")]
        done, _ = await asyncio.wait(waiting, timeout=0.2)
        assert not done
        assert (await raw("POST", "/delete", sid="b"))[0] == 200
        assert (await waiting[1])[:2] == (410, b'{"detail":"Session deleted"}')
        gate.set()
        assert (await waiting[0])[0] == 200
        await wait_until(lambda: server.app.context.host.stats().running == 1)


class Unlucky(Environment[Task]):
    """Cannot be set up."""

    splits = {"train": [Task(id="only")]}

    def setup(self) -> None:
        raise RuntimeError("setup exploded")

    def prompt(self) -> str:
        return ""

    @tool
    def go(self) -> str:
        """Go."""
        return ""


async def test_a_failed_setup_is_a_500_on_every_later_request(serve: Serve) -> None:
    server = await serve(Unlucky)
    async with aiohttp.ClientSession(server.url) as session:
        raw = Raw(session)
        assert (await raw("POST", "/create", {"split": "train", "index": 0}, sid="a"))[0] == 200
        for method, path in (("GET", "/prompt"), ("GET", "/task_tools"), ("POST", "/call")):
            body = {"name": "go", "input": {}} if path == "/call" else None
            status, answer = await raw.json(method, path, body, sid="a")
            assert status == 500
            assert answer["detail"].startswith("EnvironmentFailed: setup of environment 'unlucky' failed")
            assert "exploded" not in answer["detail"]
        assert (await raw("POST", "/delete", sid="a"))[0] == 200


async def test_a_full_server_says_when_to_come_back_and_the_session_starts_then(serve: Serve) -> None:
    server = await serve(Echo, limits=ServerLimits(max_episodes=1, queue_seconds=0.05, grace_seconds=0.5))
    async with aiohttp.ClientSession(server.url) as session:
        raw = Raw(session)
        for sid in ("a", "b"):
            assert (await raw("POST", "/create", {"split": "train", "index": 0}, sid=sid))[0] == 200
            status, _, response = await raw("GET", "/prompt", sid=sid)
        assert status == 429
        assert int(response.headers["retry-after"]) >= 1
        await raw("POST", "/delete", sid="a")
        assert (await raw("GET", "/prompt", sid="b"))[0] == 200


async def test_idle_sessions_expire(serve: Serve) -> None:
    server = await serve(Echo, limits=ServerLimits(idle_seconds=0.3, grace_seconds=0.5))
    async with aiohttp.ClientSession(server.url) as session:
        raw = Raw(session)
        await raw("POST", "/create", {"split": "train", "index": 0}, sid="a")
        assert (await raw.call("a", "slow", where="", seconds=0.8))["ok"] is True
        await wait_until(lambda: server.app.context.host.stats().running == 0)
        for method, path in (("POST", "/ping"), ("GET", "/prompt")):
            assert await raw.json(method, path, sid="a") == (404, {"detail": "Active environment not found"})
