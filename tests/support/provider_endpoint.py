"""A stand-in for the paid APIs of model providers, in a process of its own. It checks every request.

    python provider_endpoint.py     prints {"url": "http://127.0.0.1:PORT"} and serves until its input ends

`/v1` speaks OpenAI's chat completions and responses and Anthropic's messages, `/v1beta` speaks Gemini. A request that
the provider's reference does not allow is answered with status 400, in the provider's form of an error. The model's
name says how it plays: `solver` adds with the tool and submits the sum, `talker` says the sum, `wrong` says another
number, `uncounted` is a `solver` whose usage is missing, `broken` answers with status 500, `busy` fails each first
request with 529. `GET /requests` returns the accepted requests and their replies by wire.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

KEY: Final = "secret-key"
SEEN: Final[dict[str, list[dict[str, Any]]]] = {}
COUNTS: Final[Counter[str]] = Counter()
INPUT, CACHED, OUTPUT, THOUGHTS = 20, 7, 5, 3
SIGNATURE: Final = "c2lnbmF0dXJl"


class Refused(Exception):
    """The request is not one of the provider's API."""


class Reply(NamedTuple):
    text: str
    call: tuple[str, dict[str, int]] | None


def need(holds: object, what: str) -> None:
    if not holds:
        raise Refused(what)


def only(value: Mapping[str, Any], required: str, optional: str = "") -> None:
    need(isinstance(value, dict), f"not an object: {value!r}")
    missing, extra = set(required.split()) - value.keys(), value.keys() - set(f"{required} {optional}".split())
    need(not missing and not extra, f"missing {sorted(missing)}, unknown {sorted(extra)} in {value!r:.200}")


def play(model: str, prompt: str, outputs: list[str], tools: list[str]) -> Reply:
    """Return what the model says next."""
    found = re.search(r"What is (-?\d+) \+ (-?\d+)", prompt)
    if found is None:
        return Reply("I do not know.", None)
    a, b = int(found[1]), int(found[2])
    said = a + b + (model == "wrong")
    if model == "talker" or model == "wrong" or not tools:
        return Reply(f"The sum is {said}.", None)
    if not outputs:
        return Reply("Let me add.", ("add", {"a": a, "b": b}))
    return Reply("", ("submit", {"number": said}))


# ── OpenAI: chat completions ───────────────────────────────────────────────────────────────────────────────────────


def chat(model: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    need(headers.get("Authorization") == f"Bearer {KEY}", "the key is missing")
    only(body, "model messages", "tools temperature max_tokens max_completion_tokens")
    open_calls: list[str] = []
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            only(message, "role content tool_call_id")
            need(message["tool_call_id"] in open_calls, "a tool message answers no call")
            open_calls.remove(message["tool_call_id"])
            continue
        need(not open_calls, "a call has no answer")
        only(message, "role content", "tool_calls")
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
    for tool in body.get("tools", ()):
        only(tool, "type function")
        only(tool["function"], "name description parameters")
    outputs = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    reply = play(model, body["messages"][0]["content"], outputs, names)
    answer: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.call is not None:
        function = {"name": reply.call[0], "arguments": json.dumps(reply.call[1])}
        answer["tool_calls"] = [{"id": f"call_{COUNTS['chat']}", "type": "function", "function": function}]
    choice = {"index": 0, "message": answer, "finish_reason": "tool_calls" if reply.call else "stop", "logprobs": None}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": model, "choices": [choice],
        **({} if model == "uncounted" else {"usage": usage}),
    }  # fmt: skip


# ── OpenAI: responses ──────────────────────────────────────────────────────────────────────────────────────────────


def responses(model: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    need(headers.get("Authorization") == f"Bearer {KEY}", "the key is missing")
    only(body, "model input", "tools temperature max_output_tokens")
    calls: list[str] = []
    reasoned = False
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message":
            only(item, "role content", "type id status")
        elif kind == "reasoning":
            need(item["id"].startswith("rs_") and item["summary"] == [], "a reasoning item was changed")
            reasoned = True
            continue
        elif kind == "function_call":
            only(item, "type call_id name arguments", "id status")
            need(reasoned, "function_call was provided without its required reasoning item")
            calls.append(item["call_id"])
        else:
            only(item, "type call_id output")
            need(kind == "function_call_output" and item["call_id"] in calls, f"no call for {item!r}")
    for tool in body.get("tools", ()):
        only(tool, "type name description parameters strict")
    outputs = [str(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"]
    reply = play(model, json.dumps(body["input"][0]), outputs, [tool["name"] for tool in body.get("tools", ())])
    output: list[dict[str, Any]] = [{"type": "reasoning", "id": f"rs_{COUNTS['responses']}", "summary": []}]
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    if reply.call is not None:
        output.append(
            {"type": "function_call", "id": "fc_1", "call_id": f"call_{COUNTS['responses']}", "status": "completed",
             "name": reply.call[0], "arguments": json.dumps(reply.call[1])}
        )  # fmt: skip
    usage = {
        "input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    return {
        "id": "resp_1", "object": "response", "created_at": 0, "model": model, "status": "completed", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
        "instructions": None, "metadata": {}, **({} if model == "uncounted" else {"usage": usage}),
    }  # fmt: skip


# ── Anthropic: messages ────────────────────────────────────────────────────────────────────────────────────────────


def anthropic(model: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    need(headers.get("x-api-key") == KEY, "the key is missing")
    need(headers.get("anthropic-version") == "2023-06-01", "anthropic-version: header is required")
    only(body, "model messages max_tokens", "system tools temperature thinking")
    need(isinstance(body["max_tokens"], int) and body["max_tokens"] > 0, "max_tokens: must be positive")
    roles = [message["role"] for message in body["messages"]]
    need(
        roles == ["user" if at % 2 == 0 else "assistant" for at in range(len(roles))], f"roles must alternate: {roles}"
    )
    uses: list[str] = []
    outputs: list[str] = []
    for message in body["messages"]:
        only(message, "role content")
        kinds = [block["type"] for block in message["content"]]
        need(kinds, "content must not be empty")
        if message["role"] == "assistant":
            need(kinds[0] == "thinking", "expected thinking blocks before tool_use")
            need(message["content"][0]["signature"] == SIGNATURE, "Invalid signature in thinking block")
            uses = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            continue
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        need(results == uses, f"tool_use ids were found without tool_result blocks: {uses}")
        for block in message["content"]:
            if block["type"] == "tool_result":
                only(block, "type tool_use_id content", "is_error")
                outputs += [part["text"] for part in block["content"]]
            else:
                only(block, "type text")
                need(block["text"].strip(), "text content blocks must be non-empty")
    for tool in body.get("tools", ()):
        only(tool, "name description input_schema")
    prompt = body["messages"][0]["content"][0]["text"]
    reply = play(model, prompt, outputs, [tool["name"] for tool in body.get("tools", ())])
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": "A sum.", "signature": SIGNATURE}]
    content += [{"type": "text", "text": reply.text}] if reply.text else []
    if reply.call is not None:
        name, arguments = reply.call
        content.append({"type": "tool_use", "id": f"toolu_{COUNTS['anthropic']}", "name": name, "input": arguments})
    usage = {
        "input_tokens": INPUT, "cache_creation_input_tokens": 0, "cache_read_input_tokens": CACHED,
        "output_tokens": OUTPUT,
    }  # fmt: skip
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": "tool_use" if reply.call else "end_turn", "stop_sequence": None,
        **({} if model == "uncounted" else {"usage": usage}),
    }  # fmt: skip


# ── Google: Gemini ─────────────────────────────────────────────────────────────────────────────────────────────────


def google(model: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    need(headers.get("x-goog-api-key") == KEY, "the key is missing")
    only(body, "contents", "systemInstruction tools generationConfig")
    calls: list[str] = []
    outputs: list[str] = []
    for number, content in enumerate(body["contents"]):
        only(content, "role parts")
        need(content["role"] == ("user" if number % 2 == 0 else "model"), "roles must alternate")
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        need([one["name"] for one in answers] == calls, "the number of function response parts must equal the calls")
        for answer in answers:
            only(answer, "name response")  # this model's calls have no ids
            outputs.append(json.dumps(answer["response"]))
        calls = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        signed = [part for part in content["parts"] if "functionCall" in part and part.get("thoughtSignature")]
        need(len(signed) == bool(calls), "function call is missing a thought_signature")
    for tool in body.get("tools", ()):
        only(tool, "functionDeclarations")
        for declaration in tool["functionDeclarations"]:
            only(declaration, "name description", "parameters parametersJsonSchema")
    names = [one["name"] for tool in body.get("tools", ()) for one in tool["functionDeclarations"]]
    reply = play(model, body["contents"][0]["parts"][0]["text"], outputs, names)
    parts: list[dict[str, Any]] = [{"text": "A sum.", "thought": True}]
    parts += [{"text": reply.text}] if reply.text else []
    if reply.call is not None:
        function = {"name": reply.call[0], "args": reply.call[1]}
        parts.append({"functionCall": function, "thoughtSignature": SIGNATURE})
    usage = {
        "promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "thoughtsTokenCount": THOUGHTS,
        "totalTokenCount": INPUT + OUTPUT + THOUGHTS,
    }  # fmt: skip
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "modelVersion": model, **({} if model == "uncounted" else {"usageMetadata": usage}),
    }  # fmt: skip


Answer = Callable[[str, dict[str, Any], Mapping[str, str]], dict[str, Any]]


def route(wire: str, answer: Answer) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        model = request.match_info.get("model") or body.get("model", "")
        COUNTS[wire] += 1
        COUNTS[f"{wire}/{model}"] += 1
        if model == "broken":
            return web.json_response({"error": {"message": "out of order", "type": "server_error"}}, status=500)
        if model == "busy" and COUNTS[f"{wire}/{model}"] == 1:
            return web.json_response(
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, status=529
            )
        try:
            reply = answer(model, body, request.headers)
        except Refused as error:
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        except (KeyError, TypeError, IndexError) as error:
            return web.json_response({"error": {"message": f"malformed: {error!r}"}}, status=400)
        SEEN.setdefault(wire, []).append({"request": body, "reply": reply})
        return web.json_response(reply)

    return handle


async def main() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", route("openai", chat))
    app.router.add_post("/v1/responses", route("openai-responses", responses))
    app.router.add_post("/v1/messages", route("anthropic", anthropic))
    app.router.add_post(r"/v1beta/models/{model:[^:/]+}:generateContent", route("google", google))

    async def seen(request: web.Request) -> web.Response:
        return web.json_response(SEEN)

    app.router.add_get("/requests", seen)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
