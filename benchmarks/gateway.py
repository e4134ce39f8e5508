"""The gateway's CPU time per model call, against a bare aiohttp pass-through of the same requests in the same run.

    python benchmarks/gateway.py [--quick] [--rounds 7] [--tokens 17000] [--json FILE]

Four processes: a mock of vLLM that answers at once, the gateway with an engine that asks it over HTTP, a pass-through
that sends each request on to it unread, and this process as the harnesses: 16 episodes at a time with 8 calls each,
whose requests grow from 5 to 10 KB. The pass-through parses nothing, renders nothing and records nothing. The rounds of
both alternate; a ratio is of two neighboring rounds. `--tokens` makes the system message as long as that of a coding
agent, with four characters to a token.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from processes import running
from pydantic_core import from_json, to_json

from ludus.common.heap import settle_heap
from ludus.gateway import EpisodeSession, Gateway, GatewayLimits, PolicyEngine
from ludus.rendering import Renderer
from ludus.rendering.samples import Generation, Sampling

AT_ONCE = 16
NUMBERS = itertools.count()
"""Outputs differ, so that nothing cached for one episode serves another."""
CALLS = 8
CALL = '<tool_call>{"name": "search_1", "arguments": {"query": "the third chapter", "limit": 10}}</tool_call>'
PROSE = (
    "The answer must name the file, the line and the reason. Read before you write, and change no more than you must. "
)
OUTPUT = "chapter_3.md:17: The third chapter says what the second one left open, and names its sources in a list.\n" * 4
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"search_{number}",
            "description": f"Search the documents of shelf {number}. " + PROSE,
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for, in the words of the text."},
                    "limit": {"type": "integer", "description": "The most results."},
                },
                "required": ["query"],
            },
        },
    }
    for number in range(5)
]
SYSTEM = "You look things up in documents. " + PROSE * 14


def system_of(tokens: int) -> str:
    """A system message of about so many tokens of the benchmark's tokenizer: prose has 15 characters in a token, and
    digits one."""
    if not tokens:
        return SYSTEM
    digits = "".join(str(number % 10) for number in range(int(tokens * 0.78)))
    return SYSTEM + PROSE * (int(tokens * 0.22 * 15) // len(PROSE)) + digits


def make_renderer() -> Renderer:
    from ludus.trainer.core.tiny import make_tokenizer

    words = [
        f"{one} {other}" for text in (SYSTEM, OUTPUT) for one, other in zip(text.split(), text.split(), strict=True)
    ]
    return Renderer(make_tokenizer([*words, json.dumps(TOOLS), CALL], 2_000))


def call_ids(renderer: Renderer) -> list[int]:
    """The tokens of a turn that is one call."""
    return [*renderer.tokenizer.encode(CALL, add_special_tokens=False), renderer.stop[0]]


# ── the processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def serve_model(port: int) -> None:
    """A mock of vLLM: a turn as token ids, or as a chat completion."""
    renderer = make_renderer()
    ids = call_ids(renderer)
    logprobs = {"content": [{"logprob": -0.5} for _ in ids]}
    tokens = {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}]}
    function = {"name": "search_1", "arguments": json.dumps({"query": "the third chapter", "limit": 10})}
    message = {"role": "assistant", "content": None,
               "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}  # fmt: skip
    usage = {"prompt_tokens": 2000, "completion_tokens": len(ids), "total_tokens": 2000 + len(ids)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    chat = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    async def generate(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=json.dumps(tokens).encode(), content_type="application/json")

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=json.dumps(chat).encode(), content_type="application/json")

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_post("/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


class HttpEngine:
    """An engine that asks a server, with the request and the answer of vLLM's `/inference/v1/generate`."""

    context = 1 << 20

    def __init__(self, upstream: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http = f"{upstream}/inference/v1/generate", http

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        parameters = {"max_tokens": sampling.max_tokens, "temperature": 1.0, "seed": seed, "logprobs": 0}
        data = to_json({"token_ids": list(ids), "sampling_params": parameters})
        async with self._http.post(self._url, data=data, headers={"Content-Type": "application/json"}) as response:
            (choice,) = from_json(await response.read())["choices"]
        sampled = tuple(choice["token_ids"])
        logprobs = tuple(entry["logprob"] for entry in choice["logprobs"]["content"])
        return Generation(sampled, logprobs, (0,) * len(sampled), "stop")

    async def forget(self, session: str) -> None:
        return


def serve_gateway(upstream: str, port: int) -> None:
    """The gateway, with an engine that asks the server at `upstream`."""

    async def run() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await serve_sessions(HttpEngine(upstream, http), make_renderer(), port)

    asyncio.run(run())


async def serve_sessions(engine: PolicyEngine, renderer: Renderer, port: int) -> None:
    """Serve the gateway of an engine. `/open` opens the sessions of a round and returns their base URLs."""
    sessions: list[EpisodeSession] = []
    async with Gateway(engine, renderer, limits=GatewayLimits(max_calls=1_000)) as gateway:

        async def opened(request: web.Request) -> web.Response:
            for session in sessions:
                if len(session.samples) != 1 or len(session.calls) != CALLS:
                    raise SystemExit(f"{len(session.calls)} calls made {len(session.samples)} samples")
                await gateway.close(session)
            count = int(request.query["count"])
            sessions[:] = [gateway.open(str(number), seed=number) for number in range(count)]
            return web.json_response([gateway.base_url(session) for session in sessions])

        await control(port, opened)


def serve_bare(upstream: str, port: int) -> None:
    """The pass-through: each request goes on as it came, and so does the answer."""

    async def run() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

            async def forward(request: web.Request) -> web.Response:
                data = await request.read()
                headers = {"Content-Type": "application/json"}
                async with http.post(f"{upstream}/v1/chat/completions", data=data, headers=headers) as response:
                    return web.Response(body=await response.read(), content_type="application/json")

            async def opened(request: web.Request) -> web.Response:
                return web.json_response([f"{bare}/{number}" for number in range(int(request.query["count"]))])

            app = web.Application(client_max_size=1 << 26)
            app.router.add_post("/{key}/v1/chat/completions", forward)
            async with listening(app) as bare:
                await control(port, opened)

    asyncio.run(run())


@asynccontextmanager
async def listening(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def control(port: int, opened: Any) -> None:
    """Serve `/open` and `/cpu`, the seconds of CPU time that this process has taken, until the process ends."""

    async def cpu(request: web.Request) -> web.Response:
        return web.json_response(time.process_time())

    settle_heap()  # as `ludus train` and the rollout service do
    app = web.Application()
    app.router.add_get("/open", opened)
    app.router.add_get("/cpu", cpu)
    async with listening(app, port):
        await asyncio.Event().wait()


# ── measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Side:
    """The gateway or the pass-through."""

    def __init__(self, address: str, http: aiohttp.ClientSession, system: str = SYSTEM) -> None:
        self._address, self._http, self._system = address, http, system

    async def round(self, episodes: int) -> tuple[float, float, float]:
        """Play episodes. Return the microseconds of CPU per call, the calls per second, and the mean request size."""
        urls = await self._get(f"/open?count={episodes}")
        sizes: list[int] = []
        waiting = list(urls)

        async def play() -> None:
            while waiting:
                await self._episode(waiting.pop(), sizes)

        began, cpu = time.perf_counter(), await self._get("/cpu")
        await asyncio.gather(*(play() for _ in range(AT_ONCE)))
        seconds, spent = time.perf_counter() - began, await self._get("/cpu") - cpu
        return spent / len(sizes) * 1e6, len(sizes) / seconds, statistics.mean(sizes)

    async def _episode(self, url: str, sizes: list[int]) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": "Which file names the sources?"},
        ]
        for _ in range(CALLS):
            body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
            sizes.append(len(body))
            async with self._http.post(f"{url}/v1/chat/completions", data=body) as response:
                if response.status != 200:
                    raise SystemExit(f"{url} answered {response.status}: {await response.text()}")
                message = json.loads(await response.read())["choices"][0]["message"]
            messages.append(message)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": f"{next(NUMBERS)}. {OUTPUT}"}
                for call in message["tool_calls"]
            ]

    async def _get(self, path: str) -> Any:
        async with self._http.get(f"{self._address}{path}") as response:
            return await response.json()


async def measure(gateway: str, bare: str, rounds: int, episodes: int, system: str) -> dict[str, float]:
    """Return the medians over the rounds."""
    cells: dict[str, list[float]] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        sides = {"gateway": Side(gateway, http, system), "bare": Side(bare, http, system)}
        for side in sides.values():
            await side.round(AT_ONCE)
        for number in range(rounds):
            found = {}
            for name in sorted(sides, reverse=bool(number % 2)):
                found[name] = await sides[name].round(episodes)
                cells.setdefault(f"{name}_us", []).append(found[name][0])
                cells.setdefault(f"{name}_calls_per_second", []).append(found[name][1])
            cells.setdefault("ratio", []).append(found["gateway"][0] / found["bare"][0])
            cells.setdefault("request_bytes", []).append(found["gateway"][2])
    return {name: statistics.median(values) for name, values in cells.items()}


def main() -> None:
    parts = {"--model": serve_model, "--gateway": serve_gateway, "--bare": serve_bare}
    if len(sys.argv) > 2 and sys.argv[1] in parts:
        *upstream, port = sys.argv[2:]
        parts[sys.argv[1]](*upstream, int(port))  # type: ignore[operator]
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=128, help="episodes in each round")
    parser.add_argument("--tokens", type=int, default=0, help="about how many tokens the system message has")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    rounds, episodes = (3, 48) if options.quick else (options.rounds, options.episodes)
    own = (sys.executable, __file__)
    with ExitStack() as stack:
        model = stack.enter_context(running(*own, "--model"))
        gateway = stack.enter_context(running(*own, "--gateway", model))
        bare = stack.enter_context(running(*own, "--bare", model))
        found = asyncio.run(measure(gateway, bare, rounds, episodes, system_of(options.tokens)))
    print(
        f"gateway {found['gateway_us']:,.0f} µs of CPU per model call, pass-through {found['bare_us']:,.0f} µs: "
        f"{found['ratio']:.2f}×; requests of {found['request_bytes'] / 1000:.1f} KB, {AT_ONCE} in flight, "
        f"{os.cpu_count()} cores"
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
