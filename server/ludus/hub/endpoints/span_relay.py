"""Spans of endpoints, sent on by the hub, if tracing is on.

How this works:

* The processes of endpoints write their spans to their standard output (`span_lines.py`), which the hub reads. They
  have no way to the collector, and no address or header of it.
* The hub trusts nothing there. A line that is no span, or is too large, is dropped. Each process has a bucket of
  `spans` per second, and while that is empty its output is not read, so it has to wait.
* The name of the service and the endpoint are the hub's: hosted code can write spans under the name of its own endpoint
  only. It can put them into any trace whose id it knows, which are those of the requests that it got.
* Spans of endpoints wait in a queue of their own, so that they displace none of the hub's.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

from ludus.hub.endpoints.span_lines import LINE_BYTES, SERVICE, SPANS, SpanLine, read_span
from ludus.sandbox.core.errors import SandboxFailed
from ludus.telemetry.tracing import SpanForwarder, active

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ludus.hub.endpoints.releases import Release
    from ludus.sandbox import Process

BURST: Final = 10
"""The bucket of a process holds so many seconds' worth of spans."""

OLDEST_SECONDS: Final = 24 * 3600.0
"""How long ago a span may have ended; one that ends in the future is dropped, too, with some room for clocks."""

_CLOCK_SECONDS: Final = 5.0
_PASSED_ON: Final = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_BSP_SCHEDULE_DELAY")
"""Variables of the hub that the processes of endpoints get as well."""


class SpanRelay:
    """Sends the spans of endpoints on.

    Args:
        per_second: how many spans a process may write in a second.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._forwarder: SpanForwarder | None = None

    def variables(self) -> Mapping[str, str]:
        """Return the variables that make a process write its spans; none if tracing is off."""
        if active() is None or not self._per_second:
            return {}
        return {SPANS: "1", **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}

    async def read(self, process: Process, release: Release, worker: str, note: Callable[[str], None]) -> None:
        """Send the spans of a process on until its output ends.

        Args:
            process: the process.
            release: the release that it serves.
            worker: the name of its worker.
            note: gets a line if spans are dropped.
        """
        if self._forwarder is None:
            self._forwarder = SpanForwarder()
        forwarder = self._forwarder
        bucket, refused = _Bucket(self._per_second), 0
        stamp = _Stamp(release, worker)
        try:
            while line := await process.stdout.read_line(LINE_BYTES):
                span = read_span(line)
                if span is None or not _is_recent(span):
                    refused += 1
                    if refused == 1:
                        note("[the hub drops what this process writes as spans and is none]")
                else:
                    forwarder.send(stamp.apply(span))
                await bucket.take()
        except SandboxFailed:
            return

    async def close(self) -> None:
        """Send what waits, for a short time."""
        forwarder, self._forwarder = self._forwarder, None
        if forwarder is not None:
            await asyncio.to_thread(forwarder.close)


class _Bucket:
    """Makes its user wait when it takes more than so many a second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second * BURST)
        self._at = time.monotonic()

    async def take(self) -> None:
        """Take one, after waiting until there is one."""
        now = time.monotonic()
        self._left = min(self._left + (now - self._at) * self._per_second, float(self._per_second * BURST)) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_second)


class _Stamp:
    """Makes spans of OpenTelemetry of lines, with the identity of the endpoint.

    Args:
        release: the release.
        worker: the name of the worker that wrote the lines.
    """

    def __init__(self, release: Release, worker: str) -> None:
        from opentelemetry.sdk.resources import Resource

        self._endpoint = release.title
        own = {"service.name": SERVICE, "service.instance.id": worker, "ludus.endpoint": self._endpoint}
        self._resource = Resource(own)

    def apply(self, line: SpanLine) -> Any:
        """Return a line as a span of OpenTelemetry."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        trace, sampled = int(line.trace, 16), TraceFlags(TraceFlags.SAMPLED)

        def context(span: str) -> SpanContext:
            return SpanContext(trace, int(span, 16), is_remote=False, trace_flags=sampled)

        return ReadableSpan(
            line.name, context(line.id), parent=context(line.parent) if line.parent is not None else None,
            resource=self._resource, attributes={**line.attributes, "ludus.endpoint": self._endpoint},
            kind=SpanKind[line.kind], status=Status(StatusCode.ERROR if line.failed else StatusCode.UNSET),
            start_time=line.began, end_time=line.ended, instrumentation_scope=InstrumentationScope("ludus.endpoint"),
        )  # fmt: skip


def _is_recent(span: SpanLine) -> bool:
    now = time.time()
    return now - OLDEST_SECONDS < span.ended / 1e9 < now + _CLOCK_SECONDS
