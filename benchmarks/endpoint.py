"""Rollouts through the OpenAI policy: rollouts per second against a mock endpoint, and the client's CPU time for each.

    python benchmarks/endpoint.py [--quick] [--rounds 5] [--json FILE]

Three processes: a server with an echo environment, a mock of a model endpoint, and this process as the client, with 64
episodes in flight. A rollout has two requests to the model: a call, and the final message. The mock answers each
request at once with fixed bytes, so the figures are the costs of the client.

With the peer `verifiers` installed (`python scripts/peers.py verifiers`), its own rollouts run on the same mock in the
same run: `peers/verifiers_loop.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from aiohttp import web
from processes import running

from ludus.client import OpenAIPolicy, connect, rollout
from ludus.common.heap import settle_heap

HERE = Path(__file__).resolve().parent
VERIFIERS = HERE.parent / ".peers" / "verifiers" / "bin" / "python"
AT_ONCE = 64


def completion(message: dict[str, object]) -> bytes:
    """Return the bytes of a chat completion with one message."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    ).encode()


CALL = completion(
    {
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "echo", "arguments": json.dumps({"text": "hello"})}}
        ],
    }
)
FINAL = completion({"content": "done"})


def serve_model(port: int) -> None:
    """Serve the mock: a call first, and the final message once there is an output."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.read()
        return web.Response(body=FINAL if b"tool_call_id" in body else CALL, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


async def measure(server: str, model: str, rounds: int, count: int) -> dict[str, float]:
    """Return the medians over the rounds."""
    cells: dict[str, list[float]] = {}
    async with connect(server) as client, OpenAIPolicy("m", f"{model}/v1", "key") as policy:
        environment = client.environment("echo")

        async def play(samples: int) -> None:
            done = 0
            async for trajectory in rollout(environment, policy, tasks=[0], samples=samples, concurrency=AT_ONCE):
                if trajectory.failure is not None or len(trajectory.steps) != 1:
                    raise SystemExit(f"a rollout failed: {trajectory.outcome}, {len(trajectory.steps)} steps")
                done += 1
            assert done == samples

        await play(count // 10)
        settle_heap()  # as `ludus eval` and `ludus run` do
        for _ in range(rounds):
            began, cpu = time.perf_counter(), time.process_time()
            await play(count)
            seconds, spent = time.perf_counter() - began, time.process_time() - cpu
            cells.setdefault("rollouts_per_second", []).append(count / seconds)
            cells.setdefault("client_us", []).append(spent / count * 1e6)
    return {name: statistics.median(values) for name, values in cells.items()}


def measure_verifiers(model: str, rounds: int, count: int) -> dict[str, float]:
    """Return the same figures of verifiers' own machinery, in its own environment."""
    command = [str(VERIFIERS), str(HERE / "peers" / "verifiers_loop.py"), model, *map(str, (AT_ONCE, rounds, count))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4_000, help="rollouts in each round")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--model", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        serve_model(options.model)
        return
    rounds, count = (1, 1_000) if options.quick else (options.rounds, options.count)
    with ExitStack() as stack:
        server = stack.enter_context(running(sys.executable, str(HERE / "channel.py"), "--serve"))
        model = stack.enter_context(running(sys.executable, __file__, "--model"))
        found = {"ludus": asyncio.run(measure(server, model, rounds, count))}
        if VERIFIERS.exists():
            found["verifiers"] = measure_verifiers(model, rounds, count // 10)
    print(f"rollouts with two model requests, {AT_ONCE} in flight, {os.cpu_count()} cores")
    for name, row in found.items():
        print(f"{name:10} {row['rollouts_per_second']:7,.0f}/s, {row['client_us'] / 1e3:6.2f} ms of client CPU each")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
