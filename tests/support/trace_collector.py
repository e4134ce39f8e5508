"""An OTLP/HTTP collector of a test: it keeps the spans that processes send it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60.0


@dataclass(frozen=True)
class Span:
    """A span as it was received."""

    name: str
    service: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Keeps spans, as a context manager."""

    def __init__(self) -> None:
        self._received: list[Span] = []
        self._changed = threading.Condition()
        self.bodies = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.receive(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_address[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def receive(self, body: bytes) -> None:
        with self._changed:
            self.bodies += body
            self._received += spans_of(body)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, enough: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until the received spans are enough, and return them."""
        with self._changed:
            held = self._changed.wait_for(lambda: enough(self._received), PATIENCE)
            assert held, f"only these spans arrived: {sorted(span.name for span in self._received)}"
            return list(self._received)

    @property
    def spans(self) -> list[Span]:
        with self._changed:
            return list(self._received)


def spans_of(body: bytes) -> Iterator[Span]:
    """The spans in one request of an exporter."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = attributes_of(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for one in scope.spans:
                yield Span(
                    one.name, service, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(),
                    one.start_time_unix_nano, one.end_time_unix_nano, one.status.code == 2,
                    attributes_of(one.attributes),
                )  # fmt: skip


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def path_of(span: Span, spans: list[Span]) -> list[str]:
    """The names from the root of the trace to a span."""
    by_id = {one.id: one for one in spans}
    names: list[str] = []
    found: Span | None = span
    while found is not None:
        names.insert(0, found.name)
        found = by_id.get(found.parent)
    return names
