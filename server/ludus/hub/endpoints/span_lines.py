"""Spans as an endpoint's process writes them: one line of JSON each, on its standard output.

How this works: a process of an endpoint has no network, so it cannot reach a collector. `SpanWriter` is the exporter of
OpenTelemetry in the process, and writes `SpanLine`s; the hub reads them there and sends them on (`span_relay.py`). What
does not fit into a line is cut here, because the hub refuses lines that are too large. When the hub reads slowly, the
exporter waits, and OpenTelemetry drops what its queue does not hold; no step waits for that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

SPANS: Final = "LUDUS_HUB_SPANS"
"""The variable that lets a process of an endpoint write its spans."""

LINE_BYTES: Final = 8 * 1024
"""The most bytes of a line."""

SERVICE: Final = "ludus-endpoint"
"""The name of the service of endpoints in traces."""

_NAME: Final = 128
_KEY: Final = 64
_TEXT: Final = 256
_ATTRIBUTES: Final = 24
_NANOSECONDS: Final = 2**63 - 1

Text = Annotated[str, StringConstraints(max_length=_TEXT)]
Value = Text | bool | Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | float
SpanId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Nanoseconds = Annotated[int, Field(ge=0, le=_NANOSECONDS)]
"""Since 1970."""


class SpanLine(BaseModel):
    """One span. It has no events and no links, and no text of an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    trace: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    id: SpanId
    parent: SpanId | None = None
    name: Annotated[str, StringConstraints(min_length=1, max_length=_NAME)]
    kind: Literal["INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"] = "INTERNAL"
    began: Nanoseconds
    ended: Nanoseconds
    failed: bool = False
    attributes: Annotated[
        dict[Annotated[str, StringConstraints(min_length=1, max_length=_KEY)], Value], Field(max_length=_ATTRIBUTES)
    ] = {}

    @model_validator(mode="after")
    def _is_sound(self) -> SpanLine:
        if self.ended < self.began or self.id == self.parent:
            raise ValueError("a span ends after it began, and is not its own parent")
        if not all(int(one, 16) for one in (self.trace, self.id, self.parent or "1")):
            raise ValueError("an id of zeros names no span")
        return self


def read_span(line: bytes) -> SpanLine | None:
    """Return the span of a line; None if the line holds none."""
    try:
        return SpanLine.model_validate_json(line)
    except ValidationError:
        return None


def line_of(span: ReadableSpan) -> bytes | None:
    """Return the line of a span, cut to what a line may hold; None for one that no line can hold."""
    context = span.get_span_context()
    fields: dict[str, Any] = {
        "trace": f"{context.trace_id:032x}" if context is not None else None,
        "id": f"{context.span_id:016x}" if context is not None else None,
        "parent": f"{span.parent.span_id:016x}" if span.parent is not None else None,
        "name": _clean(span.name, _NAME) or "span", "kind": span.kind.name, "began": span.start_time,
        "ended": span.end_time, "failed": span.status.status_code.name == "ERROR",
        "attributes": _fitting(span.attributes or {}),
    }  # fmt: skip
    try:
        made = SpanLine(**fields)
    except ValidationError:
        return None
    line = made.model_dump_json(exclude_defaults=True).encode() + b"\n"
    if len(line) > LINE_BYTES:
        line = made.model_copy(update={"attributes": {}}).model_dump_json(exclude_defaults=True).encode() + b"\n"
    return line


def _fitting(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first attributes whose values a line can hold; lists become texts."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        name = _clean(key, _KEY)
        if len(found) < _ATTRIBUTES and name:
            whole = isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
            found[name] = value if whole and value == value and abs(value) != float("inf") else _clean(value, _TEXT)
    return found


def _clean(value: object, most: int) -> str:
    return str(value)[:most].encode("utf-8", "replace").decode()


def span_writer(descriptor: int) -> SpanExporter:
    """Return an exporter that writes spans to a file descriptor, one line each."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class SpanWriter(SpanExporter):
        """Writes spans; the hub may be gone."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            data = memoryview(b"".join(line for span in spans if (line := line_of(span)) is not None))
            try:
                with self._lock:
                    while data:
                        data = data[os.write(descriptor, data) :]
            except OSError:
                return SpanExportResult.FAILURE
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            """Do nothing: the descriptor is the process's own."""

    return SpanWriter()
