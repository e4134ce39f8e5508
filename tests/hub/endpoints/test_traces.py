"""A rollout at an endpoint of a hub is one trace, and hosted code can write spans under the name of its endpoint only.

The collector, the hub, the client and the endpoint are processes of their own; the endpoint is in its sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hubs import HubProcess, WheelParts, published, release
from trace_collector import Collector, Span, path_of

from ludus.client import connect, text_of
from ludus.hub.endpoints import span_relay
from ludus.hub.endpoints.span_lines import LINE_BYTES, read_span
from ludus.registry.types.packages import EnvironmentEntry

TRACING = Path(__file__).parents[2] / "tracing"
PATIENCE = 60.0
SPANS_A_SECOND = 40
pytestmark = [pytest.mark.timeout(120)]

FORGER = '''
"""Writes what it likes to the descriptors of its process."""

import fcntl, os, socket

from ludus.server import Environment, Task, tool


class Forger(Environment[Task]):
    """Writes lines where the hub reads spans."""

    splits = {"train": [Task(id="only")]}

    def prompt(self):
        """Say what to do."""
        return "Write."

    @tool
    def write(self, line: str, times: int = 1) -> str:
        """Write a line to the only pipe that this process can write to through two descriptors: its output."""
        ends = []
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            try:
                if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY and descriptor > 2:
                    ends.append((os.readlink(f"/proc/self/fd/{descriptor}"), descriptor))
            except OSError:
                continue
        names = [name for name, _ in ends if name.startswith("pipe:")]
        (descriptor, *_) = [one for name, one in ends if names.count(name) == 2]
        for _ in range(times):
            os.write(descriptor, line.encode() + b"\\n")
        return "written"

    @tool
    def variables(self) -> str:
        """Return the environment variables of this process."""
        return "\\n".join(f"{name}={value}" for name, value in os.environ.items())

    @tool
    def reach(self, port: int) -> str:
        """Connect to a port of the machine."""
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError as error:
            return f"not reached: {error}"
        return "reached"
'''


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture(scope="module")
def hub(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that sends its spans to the collector, with the package of the tracing tests and that of a forger."""
    folder = tmp_path_factory.mktemp("traced")
    settings = folder / "endpoints.toml"
    settings.write_text(f"spares = false\n[limits]\nspans = {SPANS_A_SECOND}\n")
    variables = {**collector.variables, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-the-collector"}
    process = HubProcess(folder / "data", "--no-seed", "--endpoints", str(settings), variables=variables)
    with process.client() as client:
        for name, cls, source in (
            ("spans", "Spans", (TRACING / "traced_world.py").read_text()), ("forger", "Forger", FORGER)
        ):  # fmt: skip
            parts = WheelParts(f"local-{name}", module=source)
            parts.entry_points = f"[ludus.environments]\n{name} = {parts.package}:{cls}\n"
            entry = EnvironmentEntry(name=name, source=f"{parts.package}:{cls}")
            published(client, release(f"local/{name}", parts=parts, environments=(entry,)))
    yield process
    assert process.stop() == 0
    assert "Traceback" not in process.log()


async def play(hub: HubProcess, wire: str, variables: dict[str, str]) -> None:
    """Play one episode in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TRACING / "traced_player.py"), f"{hub.url}/e/local/spans", wire,
        env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, errors.decode()
    assert len(json.loads(output)) == 3


def trace_of(spans: list[Span], known: set[str]) -> list[Span]:
    """Return the spans of the newest rollout, whose trace is not known yet."""
    episodes = [span for span in spans if span.name == "episode" and span.trace not in known]
    return [span for span in spans if episodes and span.trace == episodes[-1].trace]


def is_whole(spans: list[Span]) -> bool:
    return len([span for span in spans if span.name.startswith("author ")]) == 3 and any(
        span.name == "grade" for span in spans
    )


STEP = "dev.ludus/episodes/step"
PATHS = {
    "channel": ["episode", STEP, STEP, "tool threaded", "author threaded"],
    "mcp": ["episode", STEP, "POST /e/{endpoint}", "POST /mcp", STEP, "tool threaded", "author threaded"],
}


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_rollout_at_an_endpoint_is_one_trace(hub: HubProcess, collector: Collector, wire: str) -> None:
    known = {span.trace for span in collector.spans}
    await play(hub, wire, collector.variables)
    trace = trace_of(collector.wait_for(lambda found: is_whole(trace_of(found, known))), known)
    (threaded,) = [span for span in trace if span.name == "author threaded"]
    assert path_of(threaded, trace) == PATHS[wire]
    services = {span.service for span in trace if span.name in (PATHS[wire][2], PATHS[wire][-1], "grade")}
    assert services == ({"ludus-client", "ludus-endpoint"} if wire == "channel" else {"ludus-hub", "ludus-endpoint"})
    (tool,) = [span for span in trace if span.name == "tool threaded"]
    assert tool.attributes["ludus.endpoint"] == "local/spans@1.0.0"
    assert tool.attributes["ludus.step"] == 2
    for words in (b"7c1e8f", b"play_r"):
        assert words not in collector.bodies, "spans hold no arguments, no observations and no play URLs"


@pytest.mark.suite("hub-endpoints")
async def test_requests_without_a_trace_begin_one_at_the_hub(hub: HubProcess, collector: Collector) -> None:
    known = {span.trace for span in collector.spans}
    await play(hub, "mcp", {})

    def tools(found: list[Span]) -> list[Span]:
        return [span for span in found if span.name == "tool threaded" and span.trace not in known]

    spans = collector.wait_for(lambda found: bool(tools(found)) and path_of(tools(found)[0], found)[0][:4] == "POST")
    assert path_of(tools(spans)[0], spans) == ["POST /e/{endpoint}", "POST /mcp", STEP, "tool threaded"]


@pytest.mark.suite("hub-endpoints")
async def test_a_client_that_samples_nothing_gets_no_spans_of_an_endpoint(
    hub: HubProcess, collector: Collector
) -> None:
    known = {span.trace for span in collector.spans}
    await play(hub, "channel", {**collector.variables, "OTEL_TRACES_SAMPLER": "always_off"})
    await play(hub, "channel", collector.variables)
    spans = collector.wait_for(lambda found: is_whole(trace_of(found, known)))
    sampled = {span.trace for span in trace_of(spans, known)}
    assert {span.trace for span in spans if span.name.startswith("tool ")} - known == sampled


def span_line(**changes: Any) -> str:
    """Return a line that the hub accepts, if nothing in it is changed."""
    now = time.time_ns()
    fields = {"trace": "ab" * 16, "id": "cd" * 8, "name": "forged", "began": now, "ended": now}
    return json.dumps({**fields, **changes})


REFUSED = [
    "no JSON", "[]", "null", "{}", "[" * 4000, span_line(trace="AB" * 16), span_line(trace="0" * 32), span_line(id=7),
    span_line(name=""), span_line(name="n" * 129), span_line(service="ludus-hub"), span_line(resource={"a": "b"}),
    span_line(kind="OTHER"), span_line(ended=0), span_line(began=2**70), span_line(began=-1),
    span_line(parent="cd" * 8), span_line(attributes={"a": {"b": "c"}}), span_line(attributes={"a": "v" * 257}),
    span_line(attributes={"": 1}), span_line(attributes={str(number): 1 for number in range(25)}),
    span_line(attributes={"a": [1]}), span_line(events=[{"name": "e"}]), span_line(name="\ud800"), '{"trace": NaN}',
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED, ids=range(len(REFUSED)))
def test_a_line_that_is_no_span_is_refused(line: str) -> None:
    assert read_span(span_line().encode()) is not None
    assert read_span(line.encode("utf-8", "surrogatepass")) is None


async def test_hosted_code_can_forge_spans_of_its_own_endpoint_only(hub: HubProcess, collector: Collector) -> None:
    own = span_line(trace="01" * 16, name="own", attributes={"ludus.endpoint": "alice/other@2.0.0", "a": 1})
    old, future = time.time_ns() - 2 * 86_400 * 10**9, time.time_ns() + 3_600 * 10**9
    lines = [
        *(line for line in REFUSED if line.isascii()), "x" * (3 * LINE_BYTES), span_line(began=old, ended=old),
        span_line(ended=future), own,
    ]  # fmt: skip
    async with connect(f"{hub.url}/e/local/forger") as client, client.environment("forger").episode() as episode:
        for line in lines:
            await episode.call("write", line=line)
        spans = collector.wait_for(lambda found: any(span.name == "own" for span in found))
        log = await asyncio.to_thread(lambda: httpx.get(f"{hub.url}/e/local/forger/logs").text)
    forged = [span for span in spans if span.name in ("own", "forged") or "n" * 100 in span.name]
    assert [(span.name, span.service) for span in forged] == [("own", "ludus-endpoint")]
    assert forged[0].attributes == {"ludus.endpoint": "local/forger@1.0.0", "a": 1}
    assert "drops what this process writes as spans" in log


@pytest.mark.suite("hub-endpoints")
async def test_an_endpoint_that_floods_the_hub_with_spans_has_to_wait_and_displaces_no_others(
    hub: HubProcess, collector: Collector
) -> None:
    bucket = 10 * SPANS_A_SECOND
    async with connect(f"{hub.url}/e/local/forger") as client, client.environment("forger").episode() as episode:
        flood = span_line(trace="02" * 16, name="flood")
        flooding = asyncio.create_task(episode.call("write", line=flood, times=10 * bucket))
        spans = await asyncio.to_thread(collector.wait_for, lambda found: any(span.name == "flood" for span in found))
        known = {span.trace for span in spans}
        await play(hub, "mcp", collector.variables)
        await asyncio.to_thread(collector.wait_for, lambda found: is_whole(trace_of(found, known)))
        arrived = sum(span.name == "flood" for span in collector.spans)
        flooding.cancel()
    assert 0 < arrived < 10 * bucket, "the other trace was whole before the flood"


async def test_a_process_waits_for_each_span_beyond_its_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(span_relay, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(span_relay, "asyncio", SimpleNamespace(sleep=sleep))
    bucket = span_relay._Bucket(SPANS_A_SECOND)
    for _ in range(10 * SPANS_A_SECOND):
        await bucket.take()
    assert now == 0
    for _ in range(30 * SPANS_A_SECOND):
        await bucket.take()
    assert now == pytest.approx(30)


async def test_an_endpoint_neither_reaches_the_collector_nor_knows_its_address_and_headers(
    hub: HubProcess, collector: Collector
) -> None:
    port = int(collector.variables["OTEL_EXPORTER_OTLP_ENDPOINT"].rpartition(":")[2])
    async with connect(f"{hub.url}/e/local/forger") as client, client.environment("forger").episode() as episode:
        assert text_of((await episode.call("reach", port=port)).content).startswith("not reached")
        variables = text_of((await episode.call("variables")).content)
    assert "PATH=" in variables
    assert "OTEL_BSP_SCHEDULE_DELAY" in variables
    for word in ("of-the-collector", str(port), "OTEL_EXPORTER"):
        assert word not in variables
