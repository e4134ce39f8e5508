"""Metrics of a hub, as Prometheus reads them, and its traces, as a collector gets them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from dashboards import FOLDER, check_asked, check_complete, exposed_by
from hubs import HubProcess, new_name, published, release
from prometheus_client.parser import text_string_to_metric_families
from trace_collector import Collector

pytestmark = pytest.mark.timeout(120)


def samples(client: httpx.Client) -> dict[tuple[str, str, str], float]:
    """Return the values by name, by route or state or event, and by status or bound."""
    found: dict[tuple[str, str, str], float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for one in family.samples:
            label = one.labels
            first = label.get("route") or label.get("state") or label.get("event") or ""
            found[one.name, first, label.get("le") or label.get("status") or ""] = one.value
    return found


@pytest.mark.suite("hub", first=1)
def test_requests_are_counted_by_route_and_never_by_path(client: httpx.Client) -> None:
    name = new_name()
    before = samples(client)
    published(client, release(f"alice/{name}"))
    for path in (f"/alice/{name}", f"/e/alice/{name}/mcp/server-card", f"/index/alice/simple/alice-{name}/"):
        assert client.get(path).status_code == 200
    assert client.get(f"/api/v1/environments/alice/{name}x").status_code == 404
    assert client.get("/e/alice/not a name/mcp").status_code == 404
    text = client.get("/metrics").text
    assert name not in text
    after = samples(client)
    for route, status in (
        ("/{owner}/{name}", "2xx"), ("/e/{owner}/{name}/mcp/server-card", "2xx"),
        ("/index/{owner}/simple/{project}/", "2xx"), ("/api/v1/environments/{owner}/{name}", "4xx"),
        ("/e/{endpoint}", "4xx"),
    ):  # fmt: skip
        key = ("ludus_hub_request_seconds_count", route, status)
        assert after[key] == before.get(key, 0) + 1, route
    for what in ("ludus_hub_packages", "ludus_hub_versions"):
        assert after[what, "", ""] == before[what, "", ""] + 1
    assert after["ludus_hub_stored_bytes", "", ""] > before["ludus_hub_stored_bytes", "", ""]
    assert after["ludus_hub_events_total", "published", ""] == before.get(
        ("ludus_hub_events_total", "published", ""), 0
    ) + 1  # fmt: skip


@pytest.mark.suite("hub")
def test_a_hub_sends_spans_by_route_below_that_of_the_client(tmp_path: Path) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with Collector() as collector:
        hub = HubProcess(tmp_path / "data", "--no-seed", variables=collector.variables)
        try:
            with hub.client() as client:
                client.get("/alice/secret-name", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
            spans = collector.wait_for(lambda all: any(one.trace == trace for one in all))
        finally:
            hub.stop()
        assert b"secret-name" not in collector.bodies
    span = next(one for one in spans if one.trace == trace)
    assert (span.name, span.service, span.parent) == ("GET /{owner}/{name}", "ludus-hub", "b7ad6b7169203331")
    assert span.attributes["http.response.status_code"] == 404


def test_the_dashboard_asks_for_what_a_hub_exposes(client: httpx.Client) -> None:
    published(client, release(f"alice/{new_name()}"))
    assert client.get("/absent/page").status_code == 404
    exposed = exposed_by(client.get("/metrics").text)
    check_asked(FOLDER / "ludus-hub.json", exposed)
    shown = (FOLDER / "ludus-hub.json").read_text("utf-8")
    missing = {name for name in exposed if name.startswith("ludus_") and name.removesuffix("_sum") == name} - {
        name for name in exposed if name in shown
    }
    assert {name for name in missing if not name.endswith("_created")} == set(), "each metric has a panel"


def test_the_dashboard_of_a_hub_is_complete() -> None:
    check_complete(FOLDER / "ludus-hub.json")
