"""Bad input gets one typed answer in ORS's form, never a traceback, and the server continues to serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from worlds import Playground

from ludus.protocol.methods import Scope
from ludus.server import ServerLimits
from ludus.server.auth.tokens import TokenFile, new_token

Serve = Callable[..., Awaitable[Any]]

SESSION_ROUTES = (("POST", "/create"), ("POST", "/playground/call"), ("POST", "/playground/score_group"))
BODY_ROUTES = (
    *SESSION_ROUTES,
    *(("POST", f"/playground/{name}") for name in ("tasks", "num_tasks", "task", "task_range")),
)
UNKNOWN = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}


@pytest.fixture
async def session(serve: Serve) -> AsyncIterator[aiohttp.ClientSession]:
    server = await serve(Playground, limits=ServerLimits(body_bytes=100_000, grace_seconds=0.5))
    async with aiohttp.ClientSession(server.url, headers={"X-Session-ID": "s"}) as session:
        async with session.post("/create", json={"split": "train", "index": 0}) as response:
            assert response.status == 200
        yield session
        async with session.post("/call", json={"name": "say", "input": {"text": "well"}}) as response:
            assert b'"text":"well"' in await response.read()


async def answer(session: aiohttp.ClientSession, method: str, path: str, body: bytes | str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else body.encode()
    async with session.request(method, path, data=data) as response:
        assert response.content_type == "application/json"
        text = await response.text()
        assert "Traceback" not in text
        assert 'File "' not in text
        return response.status, json.loads(text)["detail"]


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
async def test_what_is_not_a_json_object_is_422_or_400(session: aiohttp.ClientSession, method: str, path: str) -> None:
    for body in ("{bad", '{"a":', "nul", "\x00", '{"a":NaN}', '{"a":Infinity}', '{"name":"\\ud800","input":{}}'):
        status, detail = await answer(session, method, path, body)
        assert (status, detail[0]["type"], detail[0]["loc"][0]) == (422, "json_invalid", "body"), body
    for body in ("[]", '"x"', "3", "null", "true"):
        status, detail = await answer(session, method, path, body)
        assert (status, detail[0]["loc"]) == (422, ["body"]), body
    assert await answer(session, method, path, "") == (
        422,
        [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}],
    )
    for bad in (b'{"split":"\xff"}', b"\xff\xfe", b"[" * 100_000):
        status, detail = await answer(session, method, path, bad)
        assert (status, detail) == (400, "There was an error parsing the body")


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
async def test_unknown_fields_are_named(session: aiohttp.ClientSession, method: str, path: str) -> None:
    full: dict[str, dict[str, Any]] = {
        "/create": {"split": "train", "index": 0},
        "/playground/call": {"name": "say", "input": {}},
        "/playground/score_group": {"candidates": []},
        "/playground/task": {"split": "train", "index": 0},
    }
    body = {**full.get(path, {"split": "train"}), "zzz": 1}
    status, detail = await answer(session, method, path, json.dumps(body))
    assert (status, detail) == (422, [{**UNKNOWN, "loc": ["body", "zzz"], "input": 1}])


@pytest.mark.parametrize(
    ("path", "body", "where", "kind"),
    [
        ("/playground/call", {"name": 3, "input": {}}, ["name"], "string_type"),
        ("/playground/call", {"name": "say", "input": []}, ["input"], "dict_type"),
        ("/playground/call", {"name": "say"}, ["input"], "missing"),
        ("/playground/call", {"name": "say", "input": {}, "task_id": 3}, ["task_id"], "string_type"),
        ("/playground/task", {"split": "train", "index": 1.5}, ["index"], "int_from_float"),
        ("/playground/task", {"split": "train"}, ["index"], "missing"),
        ("/playground/tasks", {"split": 3}, ["split"], "string_type"),
        ("/create", {"split": "train", "index": "x"}, ["index"], "int_parsing"),
        ("/create", {"split": "train", "index": 0, "seed": -1}, ["seed"], "greater_than_equal"),
        ("/playground/score_group", {"candidates": [{"messages": [{"role": "x", "blocks": []}]}]},
         ["candidates", 0, "messages", 0, "role"], "literal_error"),
    ],
)  # fmt: skip
async def test_wrong_types_are_located(
    session: aiohttp.ClientSession, path: str, body: Any, where: list[Any], kind: str
) -> None:
    status, detail = await answer(session, "POST", path, json.dumps(body))
    assert (status, detail[0]["type"], detail[0]["loc"]) == (422, kind, ["body", *where])


async def test_secrets_are_never_said_back(session: aiohttp.ClientSession) -> None:
    for secrets in ({"key": 12345678}, {"key": ["hunter2-hunter2"]}, "hunter2-hunter2"):
        body = {"split": "train", "secrets": secrets, "index": "zzz"}
        status, detail = await answer(session, "POST", "/create", json.dumps(body))
        assert status == 422
        assert "hunter2" not in json.dumps(detail)
        assert "12345678" not in json.dumps(detail)


async def test_oversized_bodies_are_413(session: aiohttp.ClientSession) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10_000

    for data in (b"x" * 100_001, stream()):
        async with session.post("/call", data=data) as response:
            assert response.status == 413
            assert "larger" in (await response.json())["detail"]


async def test_a_deep_input_is_a_mistake_like_any_other(session: aiohttp.ClientSession) -> None:
    deep = '{"name":"say","input":{"text":' + "[" * 500 + "]" * 500 + "}}"
    async with session.post("/call", data=deep.encode()) as response:
        assert response.status in (200, 400)
        assert b"Traceback" not in await response.read()


async def test_connections_cut_in_the_middle_harm_no_other(session: aiohttp.ClientSession) -> None:
    host, port = str(session._base_url.host), int(session._base_url.port or 0)  # type: ignore[union-attr]
    body = b'{"name":"add","input":{"amount":1}}'
    head = b"POST /call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: s\r\nContent-Length: %d\r\n\r\n" % len(body)
    request = head + body
    for cut in range(1, len(request), 7):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(request[:cut])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with session.post("/call", json={"name": "add", "input": {"amount": 1}}) as response:
        assert b"count 1" in await response.read()


@pytest.mark.requirement("ORS-2", "ORS-3", "ORS-5")
async def test_tokens_guard_everything_but_health_and_version(serve: Serve) -> None:
    full, first = new_token("trainer", [Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ])
    blind, second = new_token("blind", [Scope.TASKS_READ, Scope.EPISODES_RUN])
    other, third = new_token("other", [Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ])
    file = TokenFile(tokens=(first, second, third)).model_dump_json()
    server = await serve(Playground, variables={"LUDUS_TOKENS": file})
    good = {"split": "train", "index": 0}
    async with aiohttp.ClientSession(server.url, headers={"X-Session-ID": "s"}) as session:

        async def status(method: str, path: str, body: Any = None, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            async with session.request(method, path, json=body, headers=named) as response:
                if response.status >= 400:
                    assert isinstance((await response.json())["detail"], str)
                return response.status

        for method, path in (("GET", "/list_environments"), ("GET", "/playground/tools"), ("POST", "/create_session")):
            assert await status(method, path) == 401
            assert await status(method, path, X_API_Key="") == 401
            assert await status(method, path, X_API_Key="ludus_wrong") == 401
            assert await status(method, path, X_API_Key=full) == 200
            assert await status(method, path, Authorization=f"Bearer {full}") == 200
        assert await status("GET", "/version") == 200
        assert await status("POST", "/create", good) == 401
        assert await status("POST", "/create", good, X_API_Key=blind) == 403
        assert await status("POST", "/create", {"split": "test", "index": 0}, X_API_Key=full) == 403
        assert await status("POST", "/create", good, X_API_Key=full) == 200
        assert await status("GET", "/prompt", X_API_Key=full) == 200
        assert await status("GET", "/prompt", X_API_Key=other) == 404
        assert await status("POST", "/delete", X_API_Key=other) == 200
        assert await status("GET", "/prompt", X_API_Key=full) == 200
        assert await status("POST", "/create", good, X_API_Key=other) == 200


@pytest.mark.requirement("ORS-11")
async def test_test_tasks_are_rows_of_id_and_split_only(session: aiohttp.ClientSession) -> None:
    async with session.post("/playground/tasks", json={"split": "test"}) as response:
        tasks = (await response.json())["tasks"]
    assert tasks == [{"id": f"r-{n}", "split": "test"} for n in range(100, 103)]
