"""Prometheus metrics, collected on request from plain integers that the hot paths count.

`ludus_up` is left to Prometheus itself. Names follow its conventions: base units, `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ludus.server.durability.counts import COMMIT_SECONDS
from ludus.server.hosting.host import EpisodeHost
from ludus.server.runtime.steps import STEP_SECONDS, StepTimes
from ludus.server.web.guard import Guard

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `/metrics`."""

_LABELS: Final = tuple(str(bound) for bound in STEP_SECONDS) + ("+Inf",)
_COMMIT_LABELS: Final = tuple(str(bound) for bound in COMMIT_SECONDS) + ("+Inf",)


class Metrics(Collector):
    """All metrics of `/metrics`, read from the host and the guard at each request."""

    def __init__(self, host: EpisodeHost) -> None:
        self._host = host
        self.guard: Guard | None = None
        """The guard; set once the application is complete."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return no metrics, because registering must not query a host that has not started."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        stats = self._host.stats()
        for name, text, value in (
            ("ludus_episodes_running", "Episodes that hold a place: starting or running.", stats.running),
            ("ludus_episodes_starting", "Starts that are being served.", stats.starting),
            ("ludus_episodes_kept", "Episodes in memory, including those that have ended.", stats.kept),
            ("ludus_episodes_limit", "Episodes that may run at one time.", self._host.limits.max_episodes),
            ("ludus_queue_length", "Starts that wait for a place.", stats.queued),
        ):
            yield GaugeMetricFamily(name, text, value)
        started = CounterMetricFamily("ludus_episodes_started", "Episodes started.", labels=["environment"])
        for environment, count in stats.started.items():
            started.add_metric([environment], count)
        yield started
        ended = CounterMetricFamily("ludus_episodes_ended", "Episodes ended.", labels=["environment", "reason"])
        for (environment, reason), count in stats.ended.items():
            ended.add_metric([environment, reason], count)
        yield ended
        yield CounterMetricFamily("ludus_steps", "Steps that have an outcome.", stats.steps.settled)
        yield CounterMetricFamily("ludus_tool_errors", "Steps that were the policy's mistake.", stats.steps.tool_errors)
        noise = CounterMetricFamily("ludus_noise", "Steps disturbed on purpose.", labels=["kind"])
        for kind, count in stats.steps.noise.items():
            noise.add_metric([kind], count)
        yield noise
        yield _histogram(stats.steps.times)
        quotas = CounterMetricFamily(
            "ludus_quota_refusals", "Requests refused for a limit of their token or address.", labels=["limit"]
        )
        for limit, count in self._host.places.quotas.refused.items():
            quotas.add_metric([limit], count)
        yield quotas
        yield from self._of_recovery()
        yield from self._of_guard()

    def _of_recovery(self) -> Iterator[Metric]:
        recovery, snapshots = self._host.recovery.counts, self._host.snapshots
        yield GaugeMetricFamily("ludus_recovery_running", "Episodes that are being rebuilt.", recovery.running)
        yield CounterMetricFamily("ludus_recovery_rebuilt", "Episodes that were rebuilt.", recovery.rebuilt)
        yield CounterMetricFamily(
            "ludus_recovery_departed", "Episodes that could not be rebuilt, and ended unscored.", recovery.departed
        )
        yield CounterMetricFamily("ludus_snapshots", "Snapshots taken.", snapshots.taken)
        yield CounterMetricFamily("ludus_snapshot_bytes", "Bytes of the snapshots taken.", snapshots.bytes)
        stats = self._host.journal.stats() if self._host.journal is not None else None
        if stats is None:
            return
        yield CounterMetricFamily("ludus_journal_bytes", "Bytes written to the journal.", stats.counts.bytes)
        commits = HistogramMetricFamily("ludus_journal_commit_seconds", "Time to write one row of the journal.")
        counts = accumulate(list(stats.counts.buckets))
        commits.add_metric([], list(zip(_COMMIT_LABELS, counts, strict=True)), stats.counts.seconds)
        yield commits
        yield GaugeMetricFamily("ludus_journal_waiting", "Entries that are not durable yet.", stats.waiting)
        yield GaugeMetricFamily(
            "ludus_journal_broken", "1 if the journal cannot be written, so that requests are refused.", stats.broken
        )

    def _of_guard(self) -> Iterator[Metric]:
        if self.guard is None:
            return
        requests = CounterMetricFamily("ludus_requests", "Requests and connections, by transport.", labels=["wire"])
        for wire, count in self.guard.requests.items():
            requests.add_metric([wire], count)
        yield requests
        refused = CounterMetricFamily(
            "ludus_requests_refused", "Requests refused for their host, origin or size.", labels=["error"]
        )
        for error, count in self.guard.refused.items():
            refused.add_metric([error], count)
        yield refused


def _histogram(times: Mapping[str, StepTimes]) -> HistogramMetricFamily:
    """Return the time in steps as a histogram with cumulative buckets, as Prometheus requires."""
    family = HistogramMetricFamily("ludus_step_seconds", "Time in a step, without queueing.", labels=["environment"])
    for environment, steps in times.items():
        counts = accumulate(steps.counts)
        if any(steps.counts):
            family.add_metric([environment], list(zip(_LABELS, counts, strict=True)), steps.seconds)
    return family
