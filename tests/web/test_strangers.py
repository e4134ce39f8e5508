"""A client without a token learns from a server that has tokens only that it runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ludus.protocol.episodes import StartParams
from ludus.server.auth.principal import Principal
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.durability.sqlite_journal import SqliteJournal

Start = Callable[..., Awaitable[Any]]
SCOPES = ("tasks:read", "episodes:run", "rewards:read")

PATHS = ["/docs", "/openapi.json", "/ready", "/health", "/metrics", "/version", "/list_environments"]
PATHS += ["/mcp", "/channel", "/nosuch", "/redoc", "/.well-known/oauth-protected-resource", "/play/play_x/mcp"]
PATHS += [f"/{name}/{route}" for name in ("yard", "nosuch") for route in ("tools", "splits", "prompt", "tasks")]
PATHS += ["/tools", "/splits", "/prompt", "/task_tools", "/yard", "/yard/", "/YARD/tools", "/yard/tools/"]
POSTS = [
    "/create_session",
    "/create",
    "/call",
    "/num_tasks",
    "/ping",
    "/delete",
    "/yard/num_tasks",
    "/nosuch/num_tasks",
]


@pytest.fixture
async def guarded(start: Start) -> tuple[Any, str]:
    """A server of the yard with a token, one of whose episodes runs."""
    token, record = new_token("trainer", SCOPES)
    server = await start({"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
    await server.app.context.host.start(StartParams(environment="yard", split="train", key="k"), Principal.open())
    return server, token


async def answers(url: str, **headers: str) -> dict[str, httpx.Response]:
    """The answer to each of the requests that need no knowledge."""
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        found = {f"GET {path}": await client.get(path) for path in PATHS}
        for path in [*POSTS, "/mcp"]:
            found[f"POST {path}"] = await client.post(path, json={"env_name": "yard", "split": "train"})
    return found


def text_of(answer: httpx.Response) -> str:
    return json.dumps(dict(answer.headers)) + answer.text


@pytest.mark.requirement("CRED-16")
async def test_nothing_names_an_environment_to_a_client_without_a_token(guarded: tuple[Any, str]) -> None:
    server, token = guarded
    for request, answer in (await answers(server.url)).items():
        shown = text_of(answer).lower().replace(request.split()[1].lower(), "")
        assert "yard" not in shown, (request, answer.status_code, answer.text)
        assert "errand" not in shown, (request, answer.status_code, answer.text)
    named = await answers(server.url, Authorization=f"Bearer {token}")
    assert "yard" in named["GET /openapi.json"].text
    assert "yard" in named["GET /list_environments"].text


@pytest.mark.requirement("CRED-16")
async def test_nothing_counts_to_a_client_without_a_token(guarded: tuple[Any, str]) -> None:
    server, token = guarded
    found = await answers(server.url)
    assert (found["GET /ready"].status_code, found["GET /ready"].json()) == (200, {"status": "ready"})
    assert found["GET /metrics"].status_code == 401
    named = await answers(server.url, Authorization=f"Bearer {token}")
    assert named["GET /ready"].json() == {"status": "ready", "running": 1, "limit": 100_000, "queued": 0}


async def test_what_a_journal_suffers_from_is_shown_to_holders_of_a_token_only(
    guarded: tuple[Any, str], tmp_path: Path
) -> None:
    server, token = guarded
    journal = server.app.context.host.journal = SqliteJournal(tmp_path / "j.db")
    journal._trouble = "connection to db.example.org failed"
    found = (await answers(server.url))["GET /ready"]
    assert found.json() == {"status": "unwritable", "reason": "the journal cannot be written"}
    named = (await answers(server.url, Authorization=f"Bearer {token}"))["GET /ready"]
    assert named.json()["reason"].endswith("connection to db.example.org failed")


async def test_a_name_that_exists_is_answered_like_one_that_does_not(guarded: tuple[Any, str]) -> None:
    server, _ = guarded
    found = await answers(server.url)
    for route in ("GET /{}/tools", "GET /{}/splits", "GET /{}/prompt", "POST /{}/num_tasks"):
        real, invented = found[route.format("yard")], found[route.format("nosuch")]
        assert (real.status_code, real.text) == (invented.status_code, invented.text), route
        assert real.status_code == 401


async def test_an_invented_name_is_not_found_by_a_client_with_a_token(guarded: tuple[Any, str]) -> None:
    server, token = guarded
    found = await answers(server.url, Authorization=f"Bearer {token}")
    assert found["GET /nosuch/tools"].status_code == 404
    assert found["GET /yard/tools"].status_code == 200


async def test_a_wrong_token_is_refused_where_none_is_needed(guarded: tuple[Any, str]) -> None:
    server, _ = guarded
    found = await answers(server.url, Authorization="Bearer ludus_wrong")
    assert (found["GET /ready"].status_code, found["GET /openapi.json"].status_code) == (401, 401)
    assert found["GET /health"].status_code == 200


async def test_without_tokens_the_pages_name_and_count(start: Start) -> None:
    server = await start()
    found = await answers(server.url)
    assert "yard" in found["GET /openapi.json"].text
    assert found["GET /ready"].json() == {"status": "ready", "running": 0, "limit": 100_000, "queued": 0}
