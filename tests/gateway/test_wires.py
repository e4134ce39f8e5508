"""The four wires, whole and streamed, against one conversation; and what each says to a bad request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from gateway_play import ADD, Caller, Open, RecordingEngine, check_exact
from scripted import call

SAID = "Let me add." + call("add", a=1, b=2)
PATHS = {
    "chat": "chat/completions", "responses": "responses", "anthropic": "messages",
    "google": "/v1beta/models/some-model:generateContent",
}  # fmt: skip
GOOGLE_FIELDS = {"top_p": "topP", "temperature": "temperature", "max_tokens": "maxOutputTokens"}
"""Fields of the other wires, and their names in Google's `generationConfig`."""


def anthropic_tool(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


def body(wire: str, **fields: Any) -> dict[str, Any]:
    """The first request of a conversation."""
    user = {"role": "user", "content": "Add."}
    if wire == "chat":
        first: dict[str, Any] = {
            "messages": [{"role": "system", "content": "Be brief."}, user],
            "tools": [{"type": "function", "function": ADD}],
        }
    elif wire == "responses":
        first = {"instructions": "Be brief.", "input": [user], "tools": [{"type": "function", **ADD}]}
    elif wire == "google":
        given = {GOOGLE_FIELDS[name]: fields.pop(name) for name in GOOGLE_FIELDS if name in fields}
        return {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Add."}]}],
            "tools": [{"functionDeclarations": [ADD]}],
            "generationConfig": given,
            **fields,
        }
    else:
        first = {"system": "Be brief.", "messages": [user], "tools": [anthropic_tool(ADD)], "max_tokens": 1000}
    return {"model": "some-model", **first, **fields}


def follow(wire: str, first: dict[str, Any], reply: dict[str, Any], text: str) -> dict[str, Any]:
    """The next request: the reply as it came, and the output of its call."""
    if wire == "chat":
        message = reply["choices"][0]["message"]
        output = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": text}
        return {**first, "messages": [*first["messages"], message, output]}
    if wire == "responses":
        output = {"type": "function_call_output", "call_id": reply["output"][-1]["call_id"], "output": text}
        return {**first, "input": [*first["input"], *reply["output"], output]}
    if wire == "google":
        turn = reply["candidates"][0]["content"]
        response = {"name": "add", "response": {"output": text}}  # without the id of the call, as older clients
        answer = {"role": "user", "parts": [{"functionResponse": response}]}
        return {**first, "contents": [*first["contents"], turn, answer]}
    output = {"type": "tool_result", "tool_use_id": reply["content"][-1]["id"], "content": text}
    turn = {"role": "assistant", "content": reply["content"]}
    return {**first, "messages": [*first["messages"], turn, {"role": "user", "content": [output]}]}


def parts(wire: str, reply: dict[str, Any]) -> tuple[str, str, dict[str, Any], str]:
    """The text, the name and the arguments of the call, and why the turn ended."""
    if wire == "chat":
        (choice,) = reply["choices"]
        (made,) = choice["message"]["tool_calls"]
        function = made["function"]
        return (
            choice["message"]["content"],
            function["name"],
            json.loads(function["arguments"]),
            choice["finish_reason"],
        )
    if wire == "responses":
        message, made = reply["output"]
        return message["content"][0]["text"], made["name"], json.loads(made["arguments"]), reply["status"]
    if wire == "google":
        (candidate,) = reply["candidates"]
        written, made = candidate["content"]["parts"]
        return written["text"], made["functionCall"]["name"], made["functionCall"]["args"], candidate["finishReason"]
    said, made = reply["content"]
    return said["text"], made["name"], made["input"], reply["stop_reason"]


@pytest.mark.parametrize(
    ("wire", "end"), [("chat", "tool_calls"), ("responses", "completed"), ("anthropic", "tool_use"), ("google", "STOP")]
)
async def test_a_conversation_is_one_exact_sample_over_each_wire(
    wire: str, end: str, open_episode: Open, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: SAID
    caller = await open_episode()
    request = body(wire)
    for number in range(3):
        answer = await caller.post(PATHS[wire], request)
        assert answer.status == 200
        assert parts(wire, answer.value) == ("Let me add.", "add", {"a": 1, "b": 2}, end)
        assert answer.value["modelVersion" if wire == "google" else "model"] == "some-model"
        request = follow(wire, request, answer.value, f"result {number}")
    check_exact(caller.session, engine)
    (sample,) = caller.session.samples
    text = engine.tokenizer.decode(sample.ids)
    assert text.count("Be brief.") == 1
    assert [text.count(f"result {number}") for number in range(3)] == [1, 1, 0]
    assert {one.wire for one in caller.session.calls} == {wire}


async def test_the_wires_give_the_policy_the_same_prompts(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: SAID
    for wire, path in PATHS.items():
        caller = await open_episode()
        first = body(wire)
        await caller.post(path, follow(wire, first, (await caller.post(path, first)).value, "3"))
    prompts = [prompt for prompt, _ in engine.seen]
    assert prompts[0::2] == [prompts[0]] * len(PATHS)
    assert prompts[1::2] == [prompts[1]] * len(PATHS)


async def test_a_streamed_chat_completion_adds_up_to_the_whole_one(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: SAID
    caller = await open_episode()
    events = await caller.events(PATHS["chat"], body("chat", stream_options={"include_usage": True}))
    assert events[-1] == (None, "[DONE]")
    chunks = [json.loads(data) for _, data in events[:-1]]
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me add."
    (made,) = [one for delta in deltas for one in delta.get("tool_calls", ())]
    assert (made["index"], made["function"]["name"], json.loads(made["function"]["arguments"])) == (
        0, "add", {"a": 1, "b": 2},
    )  # fmt: skip
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"]["completion_tokens"] == len(engine.seen[0][1].ids)
    check_exact(caller.session, engine)


async def test_a_streamed_response_names_its_events_in_order(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: SAID
    caller = await open_episode()
    events = await caller.events(PATHS["responses"], body("responses"))
    names = [name for name, _ in events]
    values = [json.loads(data) for _, data in events]
    assert [value["type"] for value in values] == names
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    assert (names[0], names[-1]) == ("response.created", "response.completed")
    assert names.count("response.output_item.added") == names.count("response.output_item.done") == 2
    final = values[-1]["response"]
    assert parts("responses", final)[:3] == ("Let me add.", "add", {"a": 1, "b": 2})
    done = [value["item"] for value in values if value["type"] == "response.output_item.done"]
    assert done == final["output"]


async def test_a_streamed_message_adds_up_to_the_whole_one(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: SAID
    caller = await open_episode()
    events = await caller.events(PATHS["anthropic"], body("anthropic"))
    names = [name for name, _ in events]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *block, *block, "message_delta", "message_stop"]
    values = [json.loads(data) for _, data in events]
    assert values[2]["delta"]["text"] == "Let me add."
    assert json.loads(values[5]["delta"]["partial_json"]) == {"a": 1, "b": 2}
    assert values[-2]["delta"]["stop_reason"] == "tool_use"


async def test_tokens_of_a_prompt_are_counted_without_a_call(open_episode: Open, engine: RecordingEngine) -> None:
    caller = await open_episode()
    request = body("anthropic")
    del request["max_tokens"]
    counted = await caller.post("messages/count_tokens", request)
    response = await caller.post("responses/input_tokens", body("responses"))
    for whole in (body("google"), {"generateContentRequest": body("google")}):
        google = await caller.post("/v1beta/models/some-model:countTokens", whole)
        assert google.value == {"totalTokens": counted.value["input_tokens"]}
    await caller.post("messages", body("anthropic"))
    assert counted.value == {"input_tokens": len(engine.seen[0][0])}
    assert response.value == {"object": "response.input_tokens", **counted.value}
    assert len(caller.session.calls) == 1


async def test_the_harness_may_ask_for_fewer_tokens_but_not_for_more(
    open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode(max_tokens=8)
    for asked in (3, 1000):
        for wire, path in PATHS.items():
            name = {"chat": "max_completion_tokens", "responses": "max_output_tokens"}.get(wire, "max_tokens")
            answer = await caller.post(path, body(wire, **{name: asked}))
            assert len(engine.seen[-1][1].ids) == min(asked, 8)
            value = answer.value
            (choice,) = value.get("choices") or value.get("candidates") or [value]
            ends = [choice.get(field) for field in ("stop_reason", "status", "finish_reason", "finishReason")]
            assert {"length", "incomplete", "max_tokens", "MAX_TOKENS"} & set(ends)


# ── sampling ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", PATHS)
async def test_other_sampling_is_not_followed_and_the_reply_says_so(
    wire: str, open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    answer = await caller.post(PATHS[wire], body(wire, temperature=0.2, top_p=0.9, labels=None, unknown=[1]))
    names = {"temperature", "topP" if wire == "google" else "top_p", "unknown"}
    assert set(answer.headers["x-ludus-overridden"].split(", ")) == names
    assert engine.temperatures == {1.0}
    assert set(caller.session.calls[0].overridden) == names
    plain = await caller.post(
        PATHS[wire], body(wire, temperature=1, **({} if wire == "google" else {"top_p": 1.0}), stream=False)
    )
    assert "x-ludus-overridden" not in plain.headers


FORBIDDEN = [
    ("chat", {"n": 2}, "n"),
    ("chat", {"logit_bias": {"5": 1}}, "logit_bias"),
    ("chat", {"tool_choice": "required"}, "tool_choice"),
    ("chat", {"tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice"),
    ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
    ("chat", {"stop": ["Observation:"]}, "stop"),
    ("chat", {"logprobs": True}, "logprobs"),
    ("responses", {"tool_choice": "required"}, "tool_choice"),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text"),
    ("responses", {"conversation": "conv_1"}, "conversation"),
    ("responses", {"include": ["message.output_text.logprobs"]}, "logprobs"),
    ("chat", {"continue_final_message": True}, "continue_final_message"),
    ("chat", {"return_token_ids": True}, "return_token_ids"),
    ("chat", {"stop_token_ids": [3]}, "stop_token_ids"),
    ("anthropic", {"tool_choice": {"type": "any"}}, "tool_choice"),
    ("anthropic", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config"),
    ("google", {"generationConfig": {"responseMimeType": "application/json"}}, "responseMimeType"),
    ("google", {"generationConfig": {"stopSequences": ["x"]}}, "stopSequences"),
    ("google", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig"),
    ("google", {"cached_content": "cachedContents/1"}, "cachedContent"),
    ("anthropic", {"stop_sequences": ["x"]}, "stop_sequences"),
]


@pytest.mark.parametrize(("wire", "fields", "param"), FORBIDDEN)
async def test_a_reply_of_another_form_is_refused_by_name_unless_the_user_overrides_it(
    wire: str, fields: dict[str, Any], param: str, open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    answer = await caller.post(PATHS[wire], body(wire, **fields))
    assert answer.status == 400
    error = answer.value["error"]
    assert error["message"].startswith(param)
    assert "gateway overrides" in error["message"]
    if wire == "anthropic":
        assert (answer.value["type"], error["type"]) == ("error", "invalid_request_error")
    elif wire == "google":
        assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    else:
        assert (error["param"], error["code"]) == (param, "unsupported_parameter")
    assert engine.seen == []
    lenient = await open_episode(override=(param,))
    answer = await lenient.post(PATHS[wire], body(wire, **fields))
    assert (answer.status, answer.headers["x-ludus-overridden"]) == (200, param)


async def test_no_tools_may_be_chosen(open_episode: Open, engine: RecordingEngine) -> None:
    caller = await open_episode()
    await caller.post("chat/completions", body("chat", tool_choice="none"))
    assert "Tools:" not in engine.tokenizer.decode(engine.seen[0][0])


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────────────────────

MUTATIONS: list[Callable[[dict[str, Any]], Any]] = [
    lambda body: b"{",
    lambda body: b"\xff\xfe",
    lambda body: [],
    lambda body: {},
    lambda body: {**body, "messages": [], "input": [], "contents": [], "instructions": None},
    lambda body: {**body, "messages": None, "input": None, "contents": None},
    lambda body: {**body, "messages": [3], "input": [3], "contents": [3]},
    lambda body: {**body, "messages": [{"role": "wizard", "content": "x"}],
                  "input": [{"role": "wizard", "content": "x"}], "contents": [{"role": "wizard", "parts": []}]},
    lambda body: {**body, "messages": [{"role": "user", "content": 3}], "input": [{"role": "user", "content": 3}],
                  "contents": [{"role": "user", "parts": [{"text": 3}]}]},
    lambda body: {**body, "tools": 3},
    lambda body: {**body, "tools": [{"function": {"name": 3}, "name": 3, "functionDeclarations": [{"name": 3}]}]},
    lambda body: {**body, "max_tokens": "many", "max_completion_tokens": 0, "max_output_tokens": -2,
                  "generationConfig": {"maxOutputTokens": 0}},
    lambda body: {**body, "model": 3, "generationConfig": 3},
    lambda body: {**body, "messages": [{"role": "assistant", "tool_calls": [{}], "content": [{"type": "tool_use"}]}],
                  "input": [{"type": "function_call"}],
                  "contents": [{"role": "model", "parts": [{"functionCall": {}}]}]},
    lambda body: {**body, "messages": [{"role": "tool"}], "input": [{"type": "function_call_output"}],
                  "contents": [{"parts": [{"functionResponse": {}}]}]},
    lambda body: {**body, "messages": [{"role": "assistant", "content": "No."}],
                  "input": [{"role": "assistant", "content": "No."}],
                  "contents": [{"role": "model", "parts": [{"text": "No."}]}]},
    lambda body: {**body, "messages": [{"role": "assistant", "function_call": 3, "content": [{"type": 3, "text": 3}]}],
                  "input": [{"id": "fc_never_given"}], "contents": [{"role": "user", "parts": 3}]},
    lambda body: {**body, "previous_response_id": "resp_never_given", "messages": 3, "contents": 3},
    lambda body: b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("mutation", range(len(MUTATIONS)))
async def test_bad_input_is_an_error_in_the_wires_form_and_the_episode_goes_on(
    wire: str, mutation: int, open_episode: Open
) -> None:
    caller = await open_episode()
    answer = await caller.post(PATHS[wire], MUTATIONS[mutation](body(wire)))
    assert answer.status == 400
    assert answer.headers["x-should-retry"] == "false"
    error = answer.value["error"]
    assert (error.get("type") or error["status"]) in ("invalid_request_error", "INVALID_ARGUMENT")
    assert "Traceback" not in error["message"]
    assert (await caller.post(PATHS[wire], body(wire))).status == 200


async def test_a_surrogate_in_a_text_reaches_the_policy_as_a_replacement(
    open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    raw = json.dumps(body("chat", messages=[{"role": "user", "content": "a\ud800b"}])).encode()
    assert (await caller.post("chat/completions", raw)).status == 200
    assert "a\ufffdb" in engine.tokenizer.decode(engine.seen[0][0])


async def test_a_request_that_is_too_large_is_refused(open_episode: Open) -> None:
    caller = await open_episode(body_bytes=2000)
    answer = await caller.post("messages", body("anthropic", padding="x" * 3000))
    assert (answer.status, answer.value["error"]["type"]) == (413, "request_too_large")


async def test_only_the_key_of_a_running_episode_opens_the_gateway(open_episode: Open) -> None:
    caller = await open_episode()
    base = caller.gateway.url
    assert base.startswith("http://127.0.0.1:")
    for wire, path in PATHS.items():
        for url, headers in ((base, None), (f"{base}/guess", None), (base, {"Authorization": "Bearer guess"})):
            answer = await caller.post(path, body(wire), url=url, headers=headers)
            assert answer.status == 401
        key = caller.session.key
        for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}, {"x-goog-api-key": key}):
            assert (await caller.post(path, body(wire), url=base, headers=headers)).status == 200
    assert len(caller.session.key) > 30
    assert caller.session.key not in repr(caller.session)


async def test_an_unknown_path_names_the_paths_that_exist(open_episode: Open) -> None:
    caller = await open_episode()
    answer = await caller.post("embeddings", {})
    assert answer.status == 404
    assert "chat/completions" in answer.value["error"]["message"]


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_calls_beyond_the_limit_end_the_episode(open_episode: Open) -> None:
    caller = await open_episode(max_calls=2)
    statuses = [(await caller.post("chat/completions", body("chat"))).status for _ in range(4)]
    assert statuses == [200, 200, 403, 403]
    assert caller.session.stopped == "turn_limit"
    assert caller.session.over.is_set()
    assert [refusal.kind for refusal in caller.session.refused] == ["limit", "ended"]


CONTEXT = {"chat": "context_length_exceeded", "responses": "context_length_exceeded",
           "anthropic": "prompt is too long: ",
           "google": "exceeds the maximum number of tokens allowed (300)"}  # fmt: skip


@pytest.mark.parametrize("wire", PATHS)
async def test_a_full_context_is_an_error_that_the_harness_may_recover_from(wire: str, open_episode: Open) -> None:
    caller = await open_episode(context=300)
    long = "x" * 400
    fields = {"messages": [{"role": "user", "content": long}], "input": long, "contents": [{"parts": {"text": long}}]}
    answer = await caller.post(PATHS[wire], body(wire, **fields))
    assert (answer.status, caller.session.stopped) == (400, "context_limit")
    assert CONTEXT[wire] in json.dumps(answer.value)
    assert (await caller.post(PATHS[wire], body(wire))).status == 200
    assert caller.session.stopped is None


async def test_a_call_that_takes_too_long_ends_the_episode(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: asyncio.get_running_loop().create_future()
    caller = await open_episode(call_seconds=0.05)
    answer = await caller.post("chat/completions", body("chat"))
    assert (answer.status, caller.session.stopped, engine.running) == (504, "time_limit", 0)


async def test_a_request_that_the_harness_gives_up_ends_its_generation(
    open_episode: Open, engine: RecordingEngine
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(ended.set)
        return ""

    engine.script = lambda prompt, rng: forever()
    caller = await open_episode()
    first = asyncio.create_task(caller.post("chat/completions", body("chat")))
    await began.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(ended.wait(), 5)
    assert engine.running == 0
    engine.script = lambda prompt, rng: "Fine."
    assert (await caller.post("chat/completions", body("chat"))).status == 200
    check_exact(caller.session, engine)


async def test_a_broken_engine_ends_the_episode_and_keeps_its_error(
    open_episode: Open, engine: RecordingEngine
) -> None:
    engine.broken = True
    caller: Caller = await open_episode()
    answer = await caller.post("chat/completions", body("chat"))
    assert (answer.status, answer.value["error"]["type"]) == (503, "server_error")
    assert "dead" in str(caller.session.error)
    assert caller.session.samples == ()


async def test_a_fault_of_the_gateway_reaches_the_trainer_and_not_the_harness(
    open_episode: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await open_episode()

    def break_down(*_: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(caller.session.renderer, "parse", break_down)
    answer = await caller.post("messages", body("anthropic"))
    assert (answer.status, answer.value["error"]["type"]) == (503, "api_error")
    assert "fault" not in answer.value["error"]["message"]
    assert isinstance(caller.session.error, ZeroDivisionError)
