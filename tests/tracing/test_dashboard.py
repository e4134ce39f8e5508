"""The Grafana dashboard asks for nothing but what a real server of two workers with a journal exposes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from dashboards import FOLDER, check_asked, check_complete, exposed_by, selectors
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until
from worker_servers import PATIENCE, WorkersServer

from ludus.client import connect

DASHBOARD = FOLDER / "ludus.json"
pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("tracing")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WorkersServer]:
    found = WorkersServer(tmp_path, "--metrics-open", "--limit", "requests_per_second=5", journal=True)
    try:
        await found.start()
        yield found
    finally:
        await found.end()


async def text_of_metrics(server: WorkersServer) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as answer:
        assert answer.status == 200
        return await answer.text()


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of a name that have these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def busy(server: WorkersServer) -> str:
    """Play on a server until it has something to show of everything, and return its metrics."""
    async with connect(server.url, wire="mcp") as client:
        ledger = client.environment("ledger")
        for _ in range(8):
            async with ledger.episode(split="train") as episode:
                await episode.call("add", number=1)
        async with ledger.episode(split="train") as episode:
            pid = await server.kill("w0")
            await server.replaced("w0", pid)
            await episode.call("add", number=1)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}/mcp", headers={"Origin": "https://evil.example"}) as refused:
            assert refused.status == 403
    return await text_of_metrics(server)


async def test_the_dashboard_asks_for_what_a_server_exposes(server: WorkersServer) -> None:
    check_asked(DASHBOARD, exposed_by(await busy(server)))


async def test_metrics_count_what_happened(server: WorkersServer) -> None:
    before = await text_of_metrics(server)
    assert value(before, "ludus_worker_up") == 2
    assert value(before, "ludus_worker_restarts_total") == 0
    async with connect(server.url, wire="mcp") as client:
        ledger = client.environment("ledger")
        async with ledger.group(4, split="train") as group:
            for episode in group:
                await episode.call("add", number=1)
            worker = group[0].id[2:4]
            pid = await server.kill(worker)
            await server.replaced(worker, pid)
            for episode in group:
                await episode.call("add", number=1)
            text = await text_of_metrics(server)
    assert value(text, "ludus_worker_restarts_total", worker=worker, reason="died") == 1
    assert value(text, "ludus_worker_restarts_total") == 1
    assert value(text, "ludus_recovery_rebuilt_total", worker=worker) == 4
    assert value(text, "ludus_recovery_departed_total") == 0
    assert value(text, "ludus_recovery_running") == 0
    commits = value(text, "ludus_journal_commit_seconds_count", worker=worker)
    assert commits >= 1
    assert value(text, "ludus_journal_commit_seconds_bucket", worker=worker, le="+Inf") == commits
    assert value(text, "ludus_journal_bytes_total", worker=worker) > 100
    assert value(text, "ludus_journal_broken") == 0
    assert value(text, "ludus_gateway_requests_total", wire="mcp") >= 9
    assert value(text, "ludus_gateway_requests_total", wire="page") == 2
    assert value(text, "ludus_gateway_connections_total") >= value(text, "ludus_gateway_connections_open") >= 1


async def test_a_rolling_restart_is_counted_as_one_restart_of_each_worker(server: WorkersServer) -> None:
    pids = {name: server.pid_of(name) for name in ("w0", "w1")}
    os.kill(server.pid, signal.SIGHUP)
    for name, pid in pids.items():
        await server.replaced(name, pid)
    await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)
    text = await text_of_metrics(server)
    for name in pids:
        assert value(text, "ludus_worker_restarts_total", worker=name, reason="restart") == 1
    assert value(text, "ludus_worker_restarts_total") == 2


async def test_an_episode_that_departs_is_counted(server: WorkersServer) -> None:
    async with connect(server.url, wire="mcp") as client:
        episode = await client.environment("drifting").start(split="train")
        await episode.call("who")
        worker = episode.id[2:4]
        pid = await server.kill(worker)
        await server.replaced(worker, pid)
        assert (await episode.close()).end_reason == "infrastructure_error"
    text = await text_of_metrics(server)
    assert value(text, "ludus_recovery_departed_total", worker=worker) == 1


def test_an_expression_with_an_unknown_series_is_found() -> None:
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    expression = 'sum by (reason) (rate(one_total{a="b"}[5m])) / (1 + histogram_quantile(0.5, two))'
    assert list(selectors(parser, expression)) == [("one_total", {"a", "reason"}), ("two", set())]


def test_the_dashboard_is_complete() -> None:
    check_complete(DASHBOARD)
