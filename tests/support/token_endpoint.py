"""A completions endpoint with token ids, as vLLM has, in a process of its own: it plays sums by a script.

    python token_endpoint.py TOKENIZER.json     prints {"url": "http://127.0.0.1:PORT/v1"}; serves until its input ends

The model's name says how it plays; see `model_endpoint.py`. Further names: `held` plays as `solver`, but its answers
wait until `POST /release`; `text` returns no token ids; `changed` answers for another prompt; `blind` gives no
log-probabilities; `stray` ends a turn with a token that ends none.

The log-probability of a token is a function of the token and its place, and `GET /seen` returns a digest of each
sequence of prompt and answer, so that a client can check what it got. `GET /held?count=N` answers when N requests wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections import Counter
from typing import Any, Final

from aiohttp import web
from model_endpoint import answer, complete
from tokenizers import Tokenizer

CONTEXT: Final = 4096
VERSION: Final = "7"
TOOLS: Final[list[dict[str, Any]]] = [{"function": {"name": "add"}}, {"function": {"name": "submit"}}]


def logprob_of(token: int, place: int) -> float:
    """Return the log-probability of a token at a place of a sequence."""
    return -((token * 31 + place * 17) % 997 + 1) / 101


def digest_of(ids: list[int]) -> str:
    """Return a digest of a sequence."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


class Endpoint:
    """The endpoint, and what it was asked."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.seen: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.held = 0
        self.released = asyncio.Event()
        self.changed = asyncio.Condition()

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        model: str = body["model"]
        self.counts[model] += 1
        self.keys[request.headers.get("Authorization", "")] += 1
        if model == "broken":
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        if model == "held" and body["max_tokens"] > 1:
            await self._hold()
        prompt: list[int] = body["prompt"]
        text = self._says("solver" if model in {"held", "text", "blind", "changed", "stray"} else model, prompt)
        sampled = self.tokenizer.encode(text, add_special_tokens=False).ids
        end = body["stop_token_ids"][0]
        ids = [*sampled, end if model != "stray" else sampled[0]][: body["max_tokens"]]
        finish = "stop" if ids[-1] == end or (model == "stray" and body["max_tokens"] > 1) else "length"
        self.seen.add(digest_of([*prompt, *ids]))
        logprobs = [logprob_of(token, place) for place, token in enumerate(ids, len(prompt))]
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, "token_ids": ids}
        choice |= {"logprobs": {"token_logprobs": logprobs}, "prompt_token_ids": prompt}
        choice["weight_versions"] = [{"version": VERSION, "start": 0, "end": len(ids)}]
        if model == "text":
            choice["token_ids"] = choice["prompt_token_ids"] = None
        if model == "blind":
            choice["logprobs"] = None
        if model == "changed":
            choice["prompt_token_ids"] = prompt[1:]
        return web.json_response({"id": "cmpl", "object": "text_completion", "model": model, "choices": [choice]})

    async def _hold(self) -> None:
        async with self.changed:
            self.held += 1
            self.changed.notify_all()
        try:
            await self.released.wait()
        finally:
            async with self.changed:
                self.held -= 1
                self.changed.notify_all()

    def _says(self, model: str, prompt: list[int]) -> str:
        text = self.tokenizer.decode(prompt, skip_special_tokens=False)
        parts = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text, re.DOTALL)
        messages = [{"role": role, "content": content} for role, content in parts]
        if not any("What is" in message["content"] for message in messages):
            return "Yes."
        said, name, arguments = answer(model, messages, TOOLS)
        if not name:
            return said
        return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"

    async def models(self, request: web.Request) -> web.Response:
        names = ("solver", "wrong", "talker", "mixed", "broken", "held", "text", "changed", "blind", "stray")
        rows = [{"id": name, "object": "model", "max_model_len": CONTEXT} for name in names]
        return web.json_response({"object": "list", "data": rows})

    async def waiting(self, request: web.Request) -> web.Response:
        count = int(request.query["count"])
        async with self.changed:
            await self.changed.wait_for(lambda: self.held == count)
        return web.json_response({"held": self.held})

    async def release(self, request: web.Request) -> web.Response:
        self.released.set()
        return web.json_response({})

    async def hold(self, request: web.Request) -> web.Response:
        self.released.clear()
        return web.json_response({})

    async def facts(self, request: web.Request) -> web.Response:
        fields = {"seen": sorted(self.seen), "counts": dict(self.counts), "keys": dict(self.keys)}
        return web.json_response(fields)


async def main(file: str) -> None:
    """Serve until the input ends."""
    endpoint = Endpoint(Tokenizer.from_file(file))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/completions", endpoint.completions)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", endpoint.models)
    app.router.add_get("/seen", endpoint.facts)
    app.router.add_get("/held", endpoint.waiting)
    app.router.add_post("/release", endpoint.release)
    app.router.add_post("/hold", endpoint.hold)
    # With `handler_cancellation`, a request that its client gives up waits no longer.
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1"}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
