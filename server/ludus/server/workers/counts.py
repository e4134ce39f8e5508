"""What the gateway counts, and its part of `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ludus.server.workers.pool import Ending, Worker
from ludus.server.workers.routing import Place

RESTART_REASONS: Final = {
    Ending.RESTARTED: "restart", Ending.DIED: "died", Ending.DEAF: "unresponsive", Ending.RETIRED: "retired",
}  # fmt: skip
"""The values of the label `reason`."""

_WIRES: Final = {
    Place.CONTROL: "mcp", Place.PLAY: "play", Place.CHANNEL: "channel", Place.WORKER_CHANNEL: "channel",
    Place.PAGE: "page", Place.OTHER: "ors",
}  # fmt: skip


class GatewayCounts:
    """Plain numbers, which the gateway changes for each connection and request that it reads."""

    def __init__(self) -> None:
        self.open = 0
        """Open connections of clients."""
        self.connections = 0
        """Connections that clients have made."""
        self.requests: Counter[Place] = Counter()
        """Requests and upgrades. What goes through a channel is not counted here."""

    def opened(self) -> None:
        """Count a new connection."""
        self.open += 1
        self.connections += 1

    def closed(self) -> None:
        """Count the end of a connection."""
        self.open -= 1


class _Families(Collector):
    def __init__(self, counts: GatewayCounts, workers: Iterable[Worker]) -> None:
        self._counts = counts
        self._workers = list(workers)

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield GaugeMetricFamily("ludus_gateway_connections_open", "Open connections of clients.", counts.open)
        yield CounterMetricFamily("ludus_gateway_connections", "Connections of clients.", counts.connections)
        requests = CounterMetricFamily(
            "ludus_gateway_requests", "Requests and upgrades that the gateway read, by transport.", labels=["wire"]
        )
        by_wire: Counter[str] = Counter(dict.fromkeys(_WIRES.values(), 0))
        for endpoint, count in counts.requests.items():
            by_wire[_WIRES[endpoint]] += count
        for wire, count in by_wire.items():
            requests.add_metric([wire], count)
        yield requests
        up = GaugeMetricFamily("ludus_worker_up", "Whether a worker serves.", labels=["worker"])
        restarts = CounterMetricFamily(
            "ludus_worker_restarts", "Processes of workers that ended, by reason.", labels=["worker", "reason"]
        )
        for worker in self._workers:
            up.add_metric([worker.name], float(worker.up))
            for ending, reason in RESTART_REASONS.items():
                restarts.add_metric([worker.name, reason], worker.endings[ending])
        yield up
        yield restarts


def gateway_metrics(counts: GatewayCounts, workers: Iterable[Worker]) -> str:
    """Return the gateway's own part of the exposition."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(counts, workers))
    return generate_latest(registry).decode()
