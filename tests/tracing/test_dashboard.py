"""The Grafana dashboard asks for nothing but what a real server of two workers with a journal exposes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from worker_servers import WorkersServer, until

from ludus.client import connect

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "ludus.json"
MADE_BY_PROMETHEUS = frozenset({"le", "job", "instance"})
pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("tracing")]

Exposed = dict[str, set[str]]
"""The labels of each series, by its name."""


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


def exposed_by(text: str) -> Exposed:
    """The labels of each series; families without a sample have only those that their help gives."""
    found: Exposed = {}
    for family in text_string_to_metric_families(text):
        if not family.samples and family.type == "counter":
            found.setdefault(f"{family.name}_total", set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


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
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    exposed = exposed_by(await busy(server))
    for title, expression in expressions():
        for name, labels in selectors(parser, expression):
            assert name in exposed, f"{title}: no server exposes {name}"
            assert labels <= exposed[name] | MADE_BY_PROMETHEUS, f"{title}: {name} has the labels {exposed[name]}"


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
    await until(lambda: "all workers were restarted" in server.said)
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


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """The title and the expression of each query, with Grafana's own variables replaced."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], re.sub(r"\$\w+", ".*", expression)
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            yield f"variable {variable['name']}", f"sum by ({label}) ({name})"


def selectors(parser: Any, expression: str) -> Iterator[tuple[str, set[str]]]:
    """The name of each series in an expression, with the labels that are matched or grouped by."""
    yield from walk(parser, parser.parse(expression), set())


def walk(parser: Any, node: Any, grouped: set[str]) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, parser.VectorSelector):
        yield node.name, {one.name for one in node.matchers.matchers} | grouped
    elif isinstance(node, parser.MatrixSelector):
        yield from walk(parser, node.vector_selector, grouped)
    elif isinstance(node, parser.AggregateExpr):
        labels = set(node.modifier.labels) if node.modifier is not None else set()
        yield from walk(parser, node.expr, grouped | labels)
    elif isinstance(node, parser.Call):
        for argument in node.args:
            yield from walk(parser, argument, grouped)
    elif isinstance(node, parser.BinaryExpr):
        yield from walk(parser, node.lhs, grouped)
        yield from walk(parser, node.rhs, grouped)
    elif isinstance(node, parser.ParenExpr):
        yield from walk(parser, node.expr, grouped)
    else:
        assert isinstance(node, parser.NumberLiteral), f"an unexpected kind of expression: {node!r}"


def test_an_expression_with_an_unknown_series_is_found() -> None:
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    expression = 'sum by (reason) (rate(one_total{a="b"}[5m])) / (1 + histogram_quantile(0.5, two))'
    assert list(selectors(parser, expression)) == [("one_total", {"a", "reason"}), ("two", set())]


def test_the_dashboard_is_complete() -> None:
    found = dashboard()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    variables = {one["name"]: one["type"] for one in found["templating"]["list"]}
    assert variables["datasource"] == "datasource"
    for panel in found["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
            assert all(one["datasource"]["uid"] == "${datasource}" for one in panel["targets"])
    used = {name for _, text in expressions() for name in re.findall(r"\$(\w+)", text)}
    assert used <= variables.keys()
    cells = [
        (x, y)
        for panel in found["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
