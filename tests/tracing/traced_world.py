"""An environment whose author makes spans, in the event loop and in a thread."""

from __future__ import annotations

from opentelemetry import trace

from ludus.server import Environment, Result, Task, tool

SECRET = "7c1e8f-secret-words"
tracer = trace.get_tracer("author")


class Spans(Environment[Task]):
    """Makes spans."""

    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return f"The prompt holds {SECRET}."

    @tool
    async def inline(self, text: str) -> Result:
        """Make a span in the event loop."""
        with tracer.start_as_current_span("author inline"):
            return Result(f"inline {text} {SECRET}", reward=1.0)

    @tool
    def threaded(self, text: str) -> Result:
        """Make a span in a thread."""
        with tracer.start_as_current_span("author threaded"):
            return Result(f"threaded {text} {SECRET}", reward=1.0)

    @tool
    def broken(self) -> str:
        """Fail."""
        raise RuntimeError(SECRET)

    def grade(self, answer: str) -> float:
        return 1.0
