"""A rollout is one trace, from the client through the gateway and a worker to the author's own spans."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from trace_collector import Collector, Span, path_of
from worker_servers import WorkersServer

HERE = Path(__file__).parent
PATIENCE = 60.0
pytestmark = [pytest.mark.timeout(180), pytest.mark.suite("tracing")]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture
async def server(tmp_path: Path, collector: Collector) -> AsyncIterator[WorkersServer]:
    """A server of two workers, which sends its spans to the collector."""
    found = WorkersServer(tmp_path, journal=False, specs=(f"{HERE / 'traced_world.py'}:Spans",))
    found.variables = {**collector.variables, "OTEL_SERVICE_NAME": "server"}
    try:
        await found.start()
        yield found
    finally:
        await found.end()


async def play(url: str, wire: str, variables: dict[str, str]) -> tuple[list[str], str]:
    """Play one episode in a process of its own; return what it observed, and what it logged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "traced_player.py"), url, wire, env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, errors.decode()
    seen: list[str] = json.loads(output)
    return seen, errors.decode()


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def author_of(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.name.startswith("author ")]


def complete(spans: list[Span]) -> bool:
    return len(author_of(spans)) == 3 and bool(named(spans, "grade")) and bool(named(spans, "episode"))


def connected(spans: list[Span]) -> bool:
    """Whether the spans between the client's and the author's have come, which other processes send."""
    return complete(spans) and all(path_of(span, spans)[0] == "episode" for span in author_of(spans))


REQUESTS: dict[str, dict[str, list[str]]] = {
    "channel": {
        "author inline": ["episode", "dev.ludus/episodes/step", "dev.ludus/episodes/step", "tool inline"],
        "author threaded": ["episode", "dev.ludus/episodes/step", "dev.ludus/episodes/step", "tool threaded"],
    },
    "mcp": {
        "author inline": [
            "episode", "dev.ludus/episodes/step", "gateway POST /mcp", "POST /mcp", "dev.ludus/episodes/step",
            "tool inline",
        ],
        "author threaded": [
            "episode", "dev.ludus/episodes/step", "gateway POST /mcp", "POST /mcp", "dev.ludus/episodes/step",
            "tool threaded",
        ],
    },
    "ors": {
        "author inline": [
            "episode", "dev.ludus/episodes/step", "gateway POST /{environment}/call", "POST /{environment}/call",
            "tool inline",
        ],
        "author threaded": [
            "episode", "dev.ludus/episodes/step", "gateway POST /{environment}/call", "POST /{environment}/call",
            "tool threaded",
        ],
    },
}  # fmt: skip


@pytest.mark.requirement("CHAN-27")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_rollout_through_workers_is_one_trace(server: WorkersServer, collector: Collector, wire: str) -> None:
    await play(server.url, wire, collector.variables)
    spans = collector.wait_for(connected)
    (episode,) = named(spans, "episode")
    trace = [span for span in spans if span.trace == episode.trace]
    assert {span.service for span in trace} == {"ludus-client", "server"}
    for span in author_of(spans):
        assert path_of(span, spans) == [*REQUESTS[wire][span.name], span.name]
    assert [span.attributes.get("ludus.step") for span in named(spans, "tool threaded")] == [2]
    (grade,) = named(spans, "grade")
    assert grade.trace == episode.trace
    (threaded,) = named(spans, "tool threaded")
    identifier = threaded.attributes["ludus.episode"]
    assert threaded.attributes == {
        "ludus.environment": "spans", "ludus.split": "train", "ludus.episode": identifier, "ludus.step": 2,
        "ludus.tool": "threaded",
    }  # fmt: skip
    for words in (b"7c1e8f", b"play_w"):
        assert words not in collector.bodies
    assert all(one.began <= span.began for span in trace for one in trace if one.id == span.parent)


async def test_the_start_is_part_of_the_trace_of_the_episode(server: WorkersServer, collector: Collector) -> None:
    await play(server.url, "channel", collector.variables)
    spans = collector.wait_for(lambda found: complete(found) and len(named(found, "dev.ludus/episodes/start")) == 2)
    starts = sorted(path_of(span, spans) for span in named(spans, "dev.ludus/episodes/start"))
    assert starts == [["episode", "dev.ludus/episodes/start"], ["episode", *["dev.ludus/episodes/start"] * 2]]


async def test_a_client_without_tracing_sends_no_context(server: WorkersServer, collector: Collector) -> None:
    await play(server.url, "channel", {})
    spans = collector.wait_for(lambda found: len(author_of(found)) == 3 and bool(named(found, "grade")))
    assert not named(spans, "episode")
    for span in author_of(spans):
        assert path_of(span, spans)[:-1] == ["dev.ludus/episodes/step", span.name.replace("author", "tool")]


async def test_a_stock_mcp_client_names_its_span_in_meta(server: WorkersServer, collector: Collector) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    meta = {"traceparent": f"00-{trace}-{parent}-01"}
    params = {"name": "list_environments", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.post(f"{server.url}/mcp", json=body) as answer:
            assert "result" in await answer.json()
    (call,) = named(collector.wait_for(lambda found: bool(named(found, "tools/call"))), "tools/call")
    assert (call.trace, call.parent) == (trace, parent)


@pytest.mark.requirement("CHAN-28")
async def test_a_server_without_tracing_serves_clients_with_it_and_gets_no_meta(
    tmp_path: Path, collector: Collector
) -> None:
    server = WorkersServer(tmp_path, journal=False, specs=(f"{HERE / 'traced_world.py'}:Spans",))
    try:
        await server.start()
        seen, _ = await play(server.url, "channel", collector.variables)
        spans = collector.wait_for(lambda found: bool(named(found, "episode")))
    finally:
        await server.end()
    assert len(seen) == 3
    assert {span.service for span in spans} == {"ludus-client"}


async def test_an_absent_collector_disturbs_nothing_and_is_logged_once(tmp_path: Path) -> None:
    nowhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "20"}
    quick: dict[str, str] = {**nowhere, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    server = WorkersServer(tmp_path, journal=False, specs=(f"{HERE / 'traced_world.py'}:Spans",))
    server.variables = quick
    try:
        await server.start()
        for _ in range(3):
            seen, said = await play(server.url, "channel", quick)
            assert len(seen) == 3
            assert said.count("spans cannot be sent") <= 1
            assert "Traceback" not in said
        assert await server.end(15) == 0
    finally:
        await server.end()
    lines = [line for line in server.said.splitlines() if "spans cannot be sent" in line]
    assert 1 <= len(lines) <= 2, "once in each worker that played"
    assert "Traceback" not in server.said


async def test_the_sampler_of_opentelemetry_decides(server: WorkersServer, collector: Collector) -> None:
    """The client samples nothing, so the server samples nothing of its rollout; a client without tracing follows."""
    never: dict[str, Any] = {**collector.variables, "OTEL_TRACES_SAMPLER": "always_off"}
    await play(server.url, "channel", never)
    await play(server.url, "channel", {})
    spans = collector.wait_for(lambda found: len(author_of(found)) == 3)
    assert {span.service for span in spans} == {"server"}
    assert len(author_of(spans)) == 3
