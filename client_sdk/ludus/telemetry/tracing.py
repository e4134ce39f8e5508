"""Traces with OpenTelemetry, for clients, servers and sandboxes of one process.

How this works:

* OpenTelemetry's own environment variables turn tracing on. Until then nothing of OpenTelemetry is imported, `active()`
  is None, and callers skip everything else.
* `from_environment` makes one `Tracing` for the process. It becomes the global tracer provider, so that the spans of an
  environment's author end up in the same traces. A provider that the program has set before is used as it is.
* Spans travel as W3C Trace Context: `carrier()` returns the fields of the current span for a header or for `_meta`, and
  `context_of` reads them.
* Spans are sent by a thread in the background. If the collector cannot be reached, they are dropped, and one line in
  the log says so until a batch arrives again.

Spans hold names, numbers and ids. They never hold tokens, play capabilities, arguments or observations.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.errors import LudusError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, Tracer

__all__ = ["SpanForwarder", "TRACE_FIELDS", "Tracing", "active", "from_environment", "use_exporter"]


ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's own variables. Setting one of them turns tracing on."""

TRACE_HEADER: Final = "Ludus-Trace-Context"
"""The header of the channel's upgrade response with which a server says that it reads `_meta` in params."""

TRACE_FIELDS: Final = ("traceparent", "tracestate")
"""The fields of W3C Trace Context, as names of HTTP headers and as keys of `_meta`."""

EXIT_SECONDS: Final = 2.0
"""How long a process that ends waits for its last spans to be sent."""

Attributes = Mapping[str, str | int]
"""The attributes of a span."""

_EXPORTERS: Final = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""The loggers of the exporter and of its queue, which repeat themselves for every batch."""

_logger = logging.getLogger("ludus.telemetry")
_lock = threading.Lock()
_active: Tracing | None = None
_tried = False


class Tracing:
    """Makes and carries the spans of this process. `from_environment` makes it."""

    def __init__(self, tracer: Tracer, flush: Callable[[], object]) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.tracer = tracer
        self._flush = flush
        self._context = context
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()

    def span(
        self, name: str, attributes: Attributes | None = None, *, kind: str = "INTERNAL", parent: Context | None = None
    ) -> _SpanBlock:
        """Make a span for a `with` block, the current one there. An exception sets its status, without its text.

        Args:
            name: the span's name.
            attributes: its attributes.
            kind: the name of a member of OpenTelemetry's `SpanKind`.
            parent: the context of its parent; the current one when None.
        """
        return _SpanBlock(self, self.begin(name, attributes, kind=kind, parent=parent))

    def begin(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        kind: str = "INTERNAL",
        parent: Context | None = None,
        began: int | None = None,
    ) -> Span:
        """Return a span that the caller ends. `began` is when it began, in nanoseconds since 1970; now when None."""
        return self.tracer.start_span(
            name, context=parent, kind=self._trace.SpanKind[kind], attributes=attributes, start_time=began
        )

    def note_error(self, span: Span, error: BaseException) -> None:
        """Mark a span as failed, by the type of the error: its text may hold what no span may hold."""
        span.set_status(self._trace.StatusCode.ERROR)
        span.set_attribute("error.type", type(error).__name__)
        if isinstance(error, LudusError):
            span.set_attribute("rpc.response.status_code", str(error.code))

    def current(self) -> Context:
        """Return the current context."""
        return self._context.get_current()

    def below(self, span: Span) -> Context:
        """Return the current context with `span` as the current one."""
        return self._trace.set_span_in_context(span)

    def within(self, span: Span) -> Context:
        """Return a context of its own in which `span` is the current one, to be used as a parent."""
        return self._trace.set_span_in_context(span, self._context.Context())

    def using(self, context: Context) -> _ContextBlock:
        """Make a context the current one for a `with` block."""
        return _ContextBlock(self._context, context)

    def carrier(self) -> dict[str, str]:
        """Return the fields of W3C Trace Context of the current span; empty if there is none."""
        fields: dict[str, str] = {}
        self._propagator.inject(fields)
        return fields

    def context_of(self, carrier: Any) -> Context:
        """Return the context that fields of W3C Trace Context name; an empty one if they name none."""
        given = carrier if isinstance(carrier, Mapping) else {}
        fields = {name: given[name] for name in TRACE_FIELDS if isinstance(given.get(name), str)}
        return self._propagator.extract(fields, context=self._context.Context())

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` for a call in another thread, where the context of this one is then the current one."""
        context = self._context.get_current()

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.using(context):
                return function(*args, **kwargs)

        return call

    def flush(self, seconds: float = EXIT_SECONDS) -> None:
        """Send the spans that wait, or give up after `seconds`."""
        _bounded(self._flush, seconds)


class _ContextBlock:
    """A block in which a context is the current one. A class, because a generator takes several times as long."""

    __slots__ = ("_api", "_context", "_token")

    def __init__(self, api: Any, context: Context) -> None:
        self._api = api
        self._context = context

    def __enter__(self) -> None:
        self._token = self._api.attach(self._context)

    def __exit__(self, *_: object) -> None:
        self._api.detach(self._token)


class _SpanBlock:
    """A block with a span of its own."""

    __slots__ = ("_block", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Span) -> None:
        self._tracing = tracing
        self._span = span
        self._block = tracing.using(tracing.below(span))

    def __enter__(self) -> Span:
        self._block.__enter__()
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._block.__exit__()
        if error is not None:
            self._tracing.note_error(self._span, error)
        self._span.end()


def active() -> Tracing | None:
    """Return the tracing of this process; None if it is off."""
    return _active


def from_environment(service: str = "ludus", variables: Mapping[str, str] = os.environ) -> Tracing | None:
    """Return the tracing that OpenTelemetry's variables configure; None if they are unset or packages are missing.

    Args:
        service: the name of this process in traces, unless `OTEL_SERVICE_NAME` gives one.
        variables: the process environment.
    """
    global _active, _tried
    if _active is not None or not is_configured(variables):
        return _active
    with _lock:
        if not _tried:
            _tried = True
            try:
                _active = _start(service, variables)
            except ImportError:
                _logger.warning("traces are configured but not installed: pip install 'ludus-rl[telemetry]'")
        return _active


def use_exporter(service: str, exporter: SpanExporter) -> None:
    """Turn tracing on for this process with an exporter of its own, instead of OpenTelemetry's variables.

    Args:
        service: the name of this process in traces.
        exporter: gets the spans, in a thread in the background.
    """
    global _active, _tried
    with _lock:
        _active, _tried = _with_exporter(service, exporter), True


class SpanForwarder:
    """Sends spans of other processes where this process sends its own, with a queue of its own.

    It is for a process whose tracing OpenTelemetry's variables have turned on.
    """

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._processor = BatchSpanProcessor(_quiet(OTLPSpanExporter()))

    def send(self, span: ReadableSpan) -> None:
        """Send a span soon; when too many wait, the oldest are dropped."""
        self._processor.on_end(span)

    def close(self) -> None:
        """Send the spans that wait, for `EXIT_SECONDS` at most. This blocks."""
        _bounded(self._processor.shutdown, EXIT_SECONDS)


def is_configured(variables: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's variables turn tracing on."""
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true" or variables.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(variables.get(name) for name in ENDPOINT_VARIABLES)


def _start(service: str, variables: Mapping[str, str]) -> Tracing:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider

    existing = trace.get_tracer_provider()
    if isinstance(existing, TracerProvider):
        return Tracing(existing.get_tracer("ludus"), existing.force_flush)
    return _with_exporter(variables.get("OTEL_SERVICE_NAME") or service, _quiet(OTLPSpanExporter()))


def _with_exporter(service: str, exporter: SpanExporter) -> Tracing:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    atexit.register(_AtExit(provider.shutdown).run)
    return Tracing(provider.get_tracer("ludus"), provider.force_flush)


def _bounded(work: Callable[[], object], seconds: float) -> None:
    """Do blocking work in a thread, and leave it there after `seconds`."""
    thread = threading.Thread(target=work, name="ludus-traces", daemon=True)
    thread.start()
    thread.join(seconds)


class _AtExit:
    """Does blocking work when the process ends, for `EXIT_SECONDS` at most.

    Its thread is started in advance, because Python 3.12 starts none while it ends.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._process = os.getpid()
        self._begin, self._done = threading.Event(), threading.Event()
        threading.Thread(target=self._wait, name="ludus-traces-exit", daemon=True).start()

    def run(self) -> None:
        """Do the work, unless this is a fork of the process, which has no such thread."""
        if os.getpid() == self._process:
            self._begin.set()
            self._done.wait(EXIT_SECONDS)

    def _wait(self) -> None:
        self._begin.wait()
        self._work()
        self._done.set()


class _Outage(logging.Filter):
    """Holds back what the exporter logs, because it repeats itself for every batch, and keeps the last message."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self.said = False

    def filter(self, record: logging.LogRecord) -> bool:
        self.reason = record.getMessage()
        return False


def _quiet(exporter: SpanExporter) -> SpanExporter:
    """Return an exporter whose failures are logged once, until it succeeds again."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    outage = _Outage()
    for name in _EXPORTERS:
        logging.getLogger(name).addFilter(outage)

    class QuietExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                result = exporter.export(spans)
            except Exception as error:
                outage.reason, result = repr(error), SpanExportResult.FAILURE
            if result is SpanExportResult.SUCCESS:
                outage.said = False
            elif not outage.said:
                outage.said = True
                _logger.warning(
                    "spans cannot be sent and are dropped; everything else goes on. Check the collector and the "
                    "variable OTEL_EXPORTER_OTLP_ENDPOINT. The cause: %s", outage.reason
                )  # fmt: skip
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return QuietExporter()
