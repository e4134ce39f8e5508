"""A model endpoint for adapters, in a process of its own: OpenAI's chat completions, streamed or whole, for sums.

    python model_endpoint.py     prints {"url": "http://127.0.0.1:PORT/v1"} and serves until its input ends

The model's name says how it plays: `solver` adds with the tool, then submits the sum; `wrong` submits a wrong sum;
`talker` says the sum without a tool; `mixed` is right for even sums only; `broken` answers every request with HTTP 500.
`explorer` plays any environment: it calls the first tool once, with the simplest arguments, and then gives up.
`GET /requests` returns how many requests each model has had.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any, Final

from aiohttp import web

COUNTS: Final[Counter[str]] = Counter()


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message whose content is a string or a list of blocks."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def answer(model: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    """Return what the model says next: a text, and the name and the arguments of a call, or an empty name."""
    if model == "explorer":
        return explored(messages, tools)
    text = next(text_of(message) for message in messages if "What is" in text_of(message))
    found = re.search(r"What is (-?\d+) \+ (-?\d+)", text)
    assert found is not None, text
    a, b = int(found[1]), int(found[2])
    right = model in {"solver", "talker"} or (model == "mixed" and (a + b) % 2 == 0)
    said = a + b + (0 if right else 1)
    names = [tool["function"]["name"] for tool in tools]  # some clients put a prefix before each name
    outputs = [text_of(message).strip() for message in messages if message["role"] == "tool"]
    if model == "talker" or not names or {"right", "wrong"} & set(outputs[-1:]):
        return f"The sum is {said}.", "", {}
    if not outputs:
        return "", next(name for name in names if name.endswith("add")), {"a": a, "b": b}
    return "", next(name for name in names if name.endswith("submit")), {"number": said}


def explored(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    """Return a call of the first tool, and after its result a last message."""
    if not tools or any(message["role"] == "tool" for message in messages):
        return "I give up.", "", {}
    function = tools[0]["function"]
    return "", function["name"], simplest(function.get("parameters") or {})


def simplest(schema: dict[str, Any]) -> Any:
    """Return the simplest value of a JSON Schema."""
    for part in (*schema.get("enum", ()), *((schema["const"],) if "const" in schema else ())):
        return part
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return simplest(option)
    match schema.get("type", "object"):
        case "string":
            return "a" * max(1, schema.get("minLength", 1))
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [simplest(schema.get("items") or {})] * schema.get("minItems", 0)
        case "null":
            return None
        case _:
            fields = schema.get("properties") or {}
            return {name: simplest(fields[name]) for name in schema.get("required") or () if name in fields}


async def complete(request: web.Request) -> web.StreamResponse:
    """Answer one request for a completion."""
    body = await request.json()
    model = body["model"].rpartition("/")[2]
    COUNTS[model] += 1
    if model == "broken":
        return web.json_response({"error": {"message": "out of order", "type": "server_error"}}, status=500)
    text, name, arguments = answer(model, body["messages"], body.get("tools") or [])
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if name:
        call = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call_{COUNTS[model]}", "type": "function", "function": call}]
    reason = "tool_calls" if name else "stop"
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    common: dict[str, Any] = {"id": f"chatcmpl-{COUNTS[model]}", "created": 0, "model": body["model"]}
    if not body.get("stream"):
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason}
        if body.get("return_token_ids"):  # as vLLM does; a token is a byte
            common["prompt_token_ids"] = list(json.dumps(body["messages"]).encode())
            choice["token_ids"] = list(json.dumps(message).encode())
        return web.json_response({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    delta = {**message, "tool_calls": [{"index": 0, **call} for call in message.get("tool_calls", [])]}
    for choices, counted in (
        ([{"index": 0, "delta": delta, "finish_reason": None}], None),
        ([{"index": 0, "delta": {}, "finish_reason": reason}], None),
        ([], usage),
    ):
        chunk = {**common, "object": "chat.completion.chunk", "choices": choices, "usage": counted}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def models(request: web.Request) -> web.Response:
    """List the models."""
    names = ("solver", "wrong", "talker", "mixed", "broken")
    return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


async def requests(request: web.Request) -> web.Response:
    """Return how many requests each model has had."""
    return web.json_response(dict(COUNTS))


async def main() -> None:
    """Serve until the input ends."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/requests", requests)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1"}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
