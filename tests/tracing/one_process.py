"""A program with a tracer provider of its own: it plays on a server in its process, and prints the spans as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ludus.client import connect
from ludus.client.agent_loop import run_episode
from ludus.protocol.actions import Call
from ludus.sandbox import SandboxSettings
from ludus.server import Environment, Task, tool
from ludus.server.rewards.judges.endpoint import Endpoint
from ludus.server.serving.serve import serving

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("program")
judge: list[Endpoint] = []


class Boxed(Environment[Task]):
    """Runs a command, and asks a judge."""

    splits = {"train": [Task(id="only")]}
    forkable = True
    sandbox_settings = SandboxSettings(provider="unsafe-local")

    def setup(self) -> None:
        with tracer.start_as_current_span("author setup"):
            pass

    def prompt(self) -> str:
        return "Work."

    @tool
    async def work(self) -> str:
        """Run a command."""
        return (await self.sandbox.run(["echo", "hello"])).stdout.decode()

    @tool
    async def ask(self) -> str:
        """Ask a judge."""
        return (await judge[0].complete([{"role": "user", "content": "?"}], {"type": "object"})).text


async def answer(request: web.Request) -> web.Response:
    message = {"role": "assistant", "content": "yes"}
    return web.json_response({"model": "judge-1", "choices": [{"message": message, "finish_reason": "stop"}]})


async def policy(conversation: Any) -> Any:
    with tracer.start_as_current_span("policy"):
        return Call("work", {}) if conversation.turn == 1 else "done"


async def play() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with (
        Endpoint("judge-1", f"http://127.0.0.1:{runner.addresses[0][1]}/v1") as endpoint,
        serving([Boxed]) as server,
        connect(server.url, wire="channel") as client,
    ):
        judge.append(endpoint)
        boxed = client.environment("boxed")
        with tracer.start_as_current_span("outer"):
            async with boxed.episode(split="train") as episode:
                await episode.call("work")
                await episode.call("ask")
                await episode.call("there is no such tool")
        async with boxed.group(2, split="train") as group:
            await group[1].call("work")
        async with boxed.episode(split="train") as episode:
            await run_episode(episode, policy)
    await runner.cleanup()


def shown(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": format(span.context.trace_id, "032x"),
        "id": format(span.context.span_id, "016x"),
        "parent": format(span.parent.span_id, "016x") if span.parent is not None else "",
        "attributes": dict(span.attributes),
        "failed": not span.status.is_ok and not span.status.is_unset,
        "began": span.start_time,
        "ended": span.end_time,
        "service": "",
    }


if __name__ == "__main__":
    asyncio.run(play())
    sys.stdout.write(json.dumps([shown(span) for span in exporter.get_finished_spans()]))
