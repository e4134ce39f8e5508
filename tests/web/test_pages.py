from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.routing import Route

from ludus.client import connect
from ludus.protocol import Scope
from ludus.protocol.episodes import StartParams, StepParams
from ludus.server import Environment, ServerLimits, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.auth.tokens import TokenFile, new_token

START = Callable[..., Awaitable[Any]]


async def get(server: Any, path: str, token: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
        return await client.get(path)


async def begin(server: Any, key: str) -> str:
    params = StartParams(environment="yard", split="train", key=key)
    result = await server.app.context.host.start(params, Principal.open())
    episode: str = result.episodes[0].episode
    return episode


async def test_health_answers_whatever_happens(start: START) -> None:
    server = await start()
    server.app.context.host.ready = False
    answer = await get(server, "/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_follows_capacity_and_stopping(start: START) -> None:
    server = await start(limits=ServerLimits(max_episodes=1))
    answer = await get(server, "/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "running": 0, "limit": 1, "queued": 0})
    await begin(server, "a")
    answer = await get(server, "/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "full")
    server.app.context.host.ready = False
    answer = await get(server, "/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "stopping")


async def test_ready_says_why_the_journal_cannot_be_written(start: START, tmp_path: Path) -> None:
    server = await start(journal=tmp_path / "j.db")
    journal = server.app.context.host.journal
    journal._trouble = "database or disk is full"
    answer = await get(server, "/ready")
    assert (answer.status_code, answer.json()) == (503, {
        "status": "unwritable", "reason": "the journal cannot be written: database or disk is full", "running": 0,
        "limit": 100_000, "queued": 0,
    })  # fmt: skip
    journal._trouble = None
    assert (await get(server, "/ready")).json()["status"] == "ready"


async def test_metrics_count_episodes_steps_errors_and_requests(start: START) -> None:
    server = await start()
    host = server.app.context.host
    episode = await begin(server, "a")
    await begin(server, "b")
    for number, arguments in enumerate(({"number": "many"}, {"number": 7}), 1):
        params = StepParams(episode=episode, step=number, tool="say", arguments=arguments, key=str(number))
        await host.step(params, Principal.open())
    await get(server, "/yard/tools")
    text = (await get(server, "/metrics")).text
    for line in (
        "ludus_episodes_running 1.0",
        "ludus_episodes_limit 100000.0",
        "ludus_queue_length 0.0",
        'ludus_episodes_started_total{environment="yard"} 2.0',
        'ludus_episodes_ended_total{environment="yard",reason="completed"} 1.0',
        "ludus_steps_total 2.0",
        "ludus_tool_errors_total 1.0",
        'ludus_requests_total{wire="ors"} 1.0',
    ):
        assert line in text.splitlines()
    assert re.search(r'ludus_step_seconds_bucket\{environment="yard",le="\+Inf"\} [12]\.0', text)
    counts = [float(found) for found in re.findall(r"ludus_step_seconds_bucket\S* ([\d.]+)", text)]
    assert counts == sorted(counts)


class Kept(Environment[Task]):
    """Is saved after its setup and after every step."""

    splits = {"train": [Task(id="only")]}
    durable = "snapshot"
    forkable = True

    def prompt(self) -> str:
        return "Go on."

    def snapshot(self) -> bytes:
        return b"12345"

    def restore(self, state: bytes) -> None:
        pass

    @tool
    def go(self) -> str:
        """Go on."""
        return "on"


async def test_metrics_count_snapshots(serve: Callable[..., Awaitable[Any]]) -> None:
    server = await serve(Kept)
    async with connect(server.url) as client, client.environment("kept").episode(split="train") as episode:
        await episode.call("go")
        text = (await get(server, "/metrics")).text
    assert {"ludus_snapshots_total 2.0", "ludus_snapshot_bytes_total 10.0"} <= set(text.splitlines())


async def test_metrics_need_the_admin_scope_unless_opened(start: START) -> None:
    admin, record = new_token("admin", (Scope.ADMIN,))
    trainer, other = new_token("trainer", (Scope.TASKS_READ,))
    variables = {"LUDUS_TOKENS": TokenFile(tokens=(record, other)).model_dump_json()}
    closed = await start(variables)
    assert [(await get(closed, "/metrics", token)).status_code for token in (admin, trainer, None)] == [200, 403, 401]
    assert (await get(closed, "/metrics")).headers["www-authenticate"] == "Bearer"
    opened = await start(variables, metrics_open=True)
    assert (await get(opened, "/metrics")).status_code == 200


async def test_docs_describe_every_wire(start: START) -> None:
    server = await start()
    assert (await get(server, "/docs")).status_code == 200
    document = (await get(server, "/openapi.json")).json()
    assert {"/health", "/ready", "/metrics", "/mcp", "/play/{capability}/mcp", "/{environment}/call"} <= set(
        document["paths"]
    )
    assert "/channel" in document["info"]["description"]


async def test_every_answer_forbids_sniffing_and_referrers(start: START) -> None:
    server = await start()
    for path in ("/health", "/nosuch", "/yard/tools"):
        headers = (await get(server, path)).headers
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert "server" not in headers


async def test_a_fault_of_the_server_is_one_answer_and_one_log_record(
    start: START, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Request) -> None:
        raise RuntimeError("too much detail")

    server = await start()
    server.app.api.router.routes.insert(0, Route("/broken", broken))
    answer = await get(server, "/broken")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, -32603)
    assert "too much detail" not in answer.text
    faults = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [getattr(record, "incident", None) for record in faults] == [error["data"]["incident"]]
    assert faults[0].exc_info is not None
    assert (await get(server, "/health")).status_code == 200
