"""Spans around the author's code, if tracing is on.

A span holds the environment, the split, the episode, the step's number and the name of the tool. It holds no arguments,
no observation and no text of an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.protocol.episodes import StepResult

if TYPE_CHECKING:
    from ludus.server.runtime.episode import Call, Episode, StepRecord
    from ludus.telemetry.tracing import Tracing


def traced(call: Call, tracing: Tracing | None) -> Call:
    """Wrap a call, if tracing is on: make a span below that of its request, the current one for the author's code.

    A call that is only repeated, to rebuild an episode, has none.
    """

    if tracing is None:
        return call

    async def trace(episode: Episode, record: StepRecord) -> StepResult:
        if record.past is not None or record.trace is None:
            return await call(episode, record)
        attributes: dict[str, str | int] = {
            "ludus.environment": episode.published.name,
            "ludus.split": episode.row.split,
            "ludus.episode": episode.id,
            "ludus.step": record.number,
        }
        name = "grade" if record.tool is None else "tool"
        if record.tool is not None and record.tool in episode.tools:
            attributes["ludus.tool"] = record.tool
            name = f"tool {record.tool}"
        with tracing.span(name, attributes, parent=record.trace) as span:
            result = await call(episode, record)
            if result.error is not None:
                span.set_attribute("ludus.tool_error", result.error.code)
            return result

    return trace
