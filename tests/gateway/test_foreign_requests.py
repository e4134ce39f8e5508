"""What agent programs send that the gateway does not follow: it is left out and named, and never fails the request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gateway_play import ADD, Answer, Caller, Open, RecordingEngine, check_exact, reply_of
from scripted import call

from ludus.gateway.routes import CALLS
from ludus.gateway.wires import google
from ludus.gateway.wires.requests import RequestContext

FUNCTION = {"type": "function", **ADD}
TOOL = {"type": "function", "function": ADD}
ANTHROPIC_TOOL = {"name": "add", "description": ADD["description"], "input_schema": ADD["parameters"]}
NAMESPACE = {"type": "namespace", "name": "mcp__ludus", "description": "A server.", "tools": [FUNCTION]}
PATCH = {
    "type": "custom", "name": "apply_patch", "description": "Patch files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: PATCH"},
}  # fmt: skip
PIXEL = "iVBORw0KGgo="
GOOGLE = "/v1beta/models/policy:generateContent"


def prompt_of(engine: RecordingEngine, number: int = -1) -> str:
    """The text of a prompt that the engine saw."""
    text: str = engine.tokenizer.decode(engine.seen[number][0])
    return text


def overridden(answer: Answer) -> set[str]:
    """What the reply says was not followed."""
    assert answer.status == 200, answer
    return set(filter(None, answer.headers.get("x-ludus-overridden", "").split(", ")))


async def respond(caller: Caller, items: Any, **fields: Any) -> Answer:
    return await caller.post("responses", {"model": "m", "input": items, **fields})


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_tools_in_a_namespace_are_called_and_come_back_in_their_own_form(
    open_episode: Open, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: call("mcp__ludus__add", a=1, b=2)
    caller = await open_episode()
    tools = [NAMESPACE, {"type": "web_search", "external_web_access": True}, {"type": "namespace", "name": "empty"}]
    items: list[Any] = [{"role": "user", "content": "Add."}]
    for number in range(3):
        answer = await respond(caller, items, tools=tools, store=False)
        assert overridden(answer) == {"tools.web_search"}
        (made,) = answer.value["output"]
        assert (made["type"], made["name"], made["namespace"]) == ("function_call", "add", "mcp__ludus")
        output = {"type": "function_call_output", "call_id": made["call_id"], "output": f"result {number}"}
        items += [made, output]
    assert "mcp__ludus__add" in prompt_of(engine)
    assert "web_search" not in prompt_of(engine)
    assert len(caller.session.samples) == 1
    check_exact(caller.session, engine)


async def test_custom_tools_take_a_text_over_both_wires_of_openai(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: call("apply_patch", input="*** Begin Patch\n*** End Patch")
    caller = await open_episode()
    items: list[Any] = [{"role": "user", "content": "Fix."}]
    for _ in range(2):
        (made,) = (await respond(caller, items, tools=[PATCH])).value["output"]
        assert (made["type"], made["input"]) == ("custom_tool_call", "*** Begin Patch\n*** End Patch")
        items += [made, {"type": "custom_tool_call_output", "call_id": made["call_id"], "output": "Done."}]
    assert "start: PATCH" in prompt_of(engine)
    chat = await open_episode()
    messages: list[Any] = [{"role": "user", "content": "Fix."}]
    custom = {"type": "custom", "custom": {name: value for name, value in PATCH.items() if name != "type"}}
    for _ in range(2):
        message = reply_of(await chat.chat(messages, tools=[custom]))
        (made,) = message["tool_calls"]
        assert (made["type"], made["custom"]["name"]) == ("custom", "apply_patch")
        assert made["custom"]["input"].startswith("*** Begin Patch")
        messages += [message, {"role": "tool", "tool_call_id": made["id"], "content": "Done."}]
    assert [len(client.session.samples) for client in (caller, chat)] == [1, 1]


async def test_a_streamed_custom_call_adds_up_to_the_whole_one(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: call("apply_patch", input="a patch")
    caller = await open_episode()
    events = await caller.events("responses", {"input": "Fix.", "tools": [PATCH]})
    values = [json.loads(data) for _, data in events]
    deltas = [value["delta"] for value in values if value["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == "a patch" == values[-1]["response"]["output"][0]["input"]


@pytest.mark.parametrize(
    ("path", "tools", "left_out"),
    [
        ("chat/completions", [TOOL, {"type": "web_search_preview"}], "tools.web_search_preview"),
        ("responses", [FUNCTION, {"type": "file_search", "vector_store_ids": []}], "tools.file_search"),
        ("responses", [FUNCTION, {"type": "mcp", "server_label": "x", "server_url": "https://x"}], "tools.mcp"),
        ("responses", [FUNCTION, {"type": "local_shell"}], "tools.local_shell"),
        ("responses", [FUNCTION, FUNCTION], "tools.add"),
        ("messages", [ANTHROPIC_TOOL, {"type": "web_search_20250305", "name": "web_search"}],
         "tools.web_search_20250305"),
        (GOOGLE, [{"functionDeclarations": [ADD]}, {"google_search": {}}], "tools.googleSearch"),
    ],
)  # fmt: skip
async def test_tools_that_the_provider_would_run_are_left_out_and_named(
    path: str, tools: list[Any], left_out: str, open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    body = {
        "messages": [{"role": "user", "content": "Add."}], "input": "Add.", "max_tokens": 9, "tools": tools,
        "contents": [{"parts": [{"text": "Add."}]}],
    }  # fmt: skip
    answer = await caller.post(path, body)
    assert left_out in overridden(answer)
    assert prompt_of(engine).count('"name": "add"') <= 1
    assert left_out.partition(".")[2] == "add" or left_out.partition(".")[2] not in prompt_of(engine)


async def test_typed_tools_that_the_program_runs_have_their_published_schema(
    open_episode: Open, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: call("bash", command="ls")
    caller = await open_episode()
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    messages = [{"role": "user", "content": "List."}]
    answer = await caller.post("messages", {"messages": messages, "max_tokens": 99, "tools": tools})
    assert answer.value["content"][-1]["input"] == {"command": "ls"}
    assert "str_replace_based_edit_tool" in prompt_of(engine)
    assert "insert_line" in prompt_of(engine)


def test_the_schemas_of_google_become_json_schemas() -> None:
    parameters = {
        "type": "OBJECT",
        "propertyOrdering": ["type"],
        "required": ["type"],
        "properties": {
            "type": {"type": "STRING", "enum": ["STRING"]},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
    }
    body = {
        "contents": [{"parts": [{"text": "Go."}]}],
        "tools": [{"function_declarations": [{"name": "put", "parameters": parameters}]}],
    }
    (spec,) = google.parse(body, RequestContext(1.0)).tools
    assert spec.input_schema == {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["STRING"]},
            "list": {"type": "array", "items": {"type": "integer"}},
        },
    }


# ── entries ─────────────────────────────────────────────────────────────────────────────────────────────────────────

DATA_URL = f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "chat/completions",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "See"},
                            {"type": "image_url", "image_url": {"url": DATA_URL}},
                        ],
                    }
                ]
            },
        ),
        (
            "responses",
            {
                "input": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "See"},
                            {"type": "input_image", "image_url": DATA_URL},
                        ],
                    }
                ]
            },
        ),
        (
            "responses",
            {
                "input": [
                    {"role": "user", "content": "See"},
                    {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
                    {
                        "type": "function_call_output",
                        "call_id": "c",
                        "output": [{"type": "input_image", "image_url": DATA_URL}],
                    },
                ]
            },
        ),
        (
            "messages",
            {
                "max_tokens": 9,
                "messages": [
                    {"role": "user", "content": "See"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {}}]},
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "c",
                                "content": [
                                    {
                                        "type": "image",
                                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                                    }
                                ],
                            }
                        ],
                    },
                ],
            },
        ),
        (
            GOOGLE,
            {"contents": [{"parts": [{"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]}]},
        ),
    ],
)
async def test_a_picture_becomes_a_line_that_says_so(
    path: str, body: dict[str, Any], open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    answer = await caller.post(path, body)
    assert overridden(answer) == {"content.image"}
    assert "[image: not shown]" in prompt_of(engine)
    assert PIXEL not in prompt_of(engine)


async def test_documents_of_text_are_read_and_other_files_are_named(
    open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    blocks = [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The plan."}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}},
        {"type": "search_result", "source": "x", "title": "t", "content": [{"type": "text", "text": "A result."}]},
    ]
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}
    assert overridden(await caller.post("messages", body)) == {"content.file"}
    assert "The plan.\n[file: not shown]\nA result." in prompt_of(engine)
    sound = [{"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}]
    assert overridden(await caller.chat([{"role": "user", "content": sound}])) == {"content.audio"}


async def test_items_that_other_servers_ignore_are_left_out_and_named(
    open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    items = [
        {"role": "user", "content": "Go."}, {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "compaction", "id": "cmp_1"},
    ]  # fmt: skip
    assert overridden(await respond(caller, items)) == {"input.web_search_call", "input.compaction"}
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "So."},
    ]  # fmt: skip
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "On."},
    ]
    answer = await caller.post("messages", {"max_tokens": 9, "messages": messages})
    assert overridden(answer) == {"messages.server_tool_use", "messages.web_search_tool_result"}
    assert "Hm." not in prompt_of(engine)


async def test_calls_in_the_form_before_tools_are_read(open_episode: Open, engine: RecordingEngine) -> None:
    caller = await open_episode()
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "add", "content": "the sum"},
    ]
    assert (await caller.chat(messages)).status == 200
    assert "the sum" in prompt_of(engine)


@pytest.mark.parametrize(
    ("fields", "tokens"), [({"max_completion_tokens": None, "max_tokens": 3}, 3), ({"max_tokens": -1}, 8)]
)
async def test_a_limit_that_is_null_hides_no_other_one(
    fields: dict[str, Any], tokens: int, open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode(max_tokens=8)
    await caller.chat([{"role": "user", "content": "Add."}], **fields)
    assert len(engine.seen[0][1].ids) == tokens


async def test_words_put_into_the_policys_mouth_are_refused_and_its_own_are_not(
    open_episode: Open, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: "Fine."
    caller = await open_episode()
    asked = {"role": "user", "content": "Go."}
    answer = await caller.chat([asked, {"role": "assistant", "content": "{"}])
    assert (answer.status, len(engine.seen)) == (400, 0)
    assert "prefill" in answer.value["error"]["message"]
    own = reply_of(await caller.chat([asked]))
    assert overridden(await caller.chat([asked, own])) == set()
    lenient = await open_episode(override=("prefill",))
    assert overridden(await lenient.chat([asked, reply_of(await lenient.chat([asked]))])) == set()
    assert overridden(await lenient.chat([asked, {"role": "assistant", "content": "{"}])) == {"prefill"}


# ── what a session remembers ────────────────────────────────────────────────────────────────────────────────────────


async def test_items_and_responses_of_the_episode_can_be_referred_to(
    open_episode: Open, engine: RecordingEngine
) -> None:
    caller = await open_episode()
    first = (await respond(caller, "Add.", tools=[FUNCTION])).value
    (made,) = first["output"]
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "7"}
    for reference in ({"type": "item_reference", "id": made["id"]}, {"id": made["id"]}):
        items = [{"role": "user", "content": "Add."}, reference, output]
        assert (await respond(caller, items, tools=[FUNCTION])).status == 200
    second = (await respond(caller, [output], tools=[FUNCTION], previous_response_id=first["id"])).value
    assert prompt_of(engine, 1) == prompt_of(engine, 2) == prompt_of(engine, 3)
    third = {"role": "user", "content": "Thanks."}
    assert (await respond(caller, [third], tools=[FUNCTION], previous_response_id=second["id"])).status == 200
    assert prompt_of(engine).count("Add.") == 1
    check_exact(caller.session, engine)
    stored = await caller.get(f"responses/{first['id']}")
    assert (stored.status, stored.value) == (200, first)


async def test_a_reference_to_what_the_episode_was_not_given_is_refused(open_episode: Open) -> None:
    other, caller = await open_episode(), await open_episode()
    foreign = (await respond(other, "Add.")).value
    unstored = (await respond(caller, "Add.", store=False)).value
    for response in (foreign["id"] + "0", unstored["id"]):
        answer = await respond(caller, "More.", previous_response_id=response)
        assert (answer.status, answer.value["error"]["code"]) == (400, "response_not_found")
        assert (await caller.get(f"responses/{response}")).status == 404


async def test_a_repeated_request_gets_the_recorded_reply(open_episode: Open, engine: RecordingEngine) -> None:
    caller = await open_episode()
    body = {"model": "m", "messages": [{"role": "user", "content": "Add."}], "tools": [TOOL]}
    first = await caller.post("chat/completions", body)
    again = await caller.post("chat/completions", body, headers={"x-stainless-retry-count": "1"})
    assert (again.value["id"], reply_of(again)) == (first.value["id"], reply_of(first))
    assert len(engine.seen) == 1
    await caller.post("chat/completions", body, headers={"x-stainless-retry-count": "0"})
    assert len(engine.seen) == 2
    check_exact(caller.session, engine)


async def test_a_turn_in_other_words_is_known_by_the_ids_of_its_calls(
    open_episode: Open, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: "Let me add." + call("add", a=1, b=2)
    caller = await open_episode()
    messages: list[Any] = [{"role": "user", "content": "Add."}]
    for _ in range(4):
        message = reply_of(await caller.chat(messages))
        (made,) = message["tool_calls"]
        changed = {**made, "function": {"name": "add", "arguments": '{"a": 1, "b": 2, "c": null}'}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [changed]},
                     {"role": "tool", "tool_call_id": made["id"], "content": "3"}]  # fmt: skip
    assert [made.rewritten for made in caller.session.calls] == [False, True, True, True]
    assert len(caller.session.samples) == 1
    assert prompt_of(engine).count("Let me add.") == 3
    check_exact(caller.session, engine)


async def test_each_new_sample_has_its_cause(open_episode: Open, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "Fine."
    caller = await open_episode()
    start: list[Any] = [{"role": "user", "content": "Go."}]
    first: list[Any] = [*start, reply_of(await caller.chat(start)), {"role": "user", "content": "On."}]
    await caller.chat(first)
    await caller.chat(first)
    await caller.chat([*first, {"role": "user", "content": "x"}], tools=[])
    await caller.chat([*start, {"role": "user", "content": "A summary."}])
    await caller.chat([{"role": "user", "content": "Write a title."}])
    causes = [made.begins for made in caller.session.calls]
    assert causes == ["first", None, "branch", "tools", "rewritten", "conversation"]


async def test_side_calls_are_distinguished_from_the_play(open_episode: Open, engine: RecordingEngine) -> None:
    texts = iter(["A title", "Fine.", "The summary of all.", "Good.", "Done."])
    engine.script = lambda prompt, rng: next(texts)
    caller = await open_episode()
    await caller.chat([{"role": "user", "content": "Write a title."}], tools=[])
    start: list[Any] = [{"role": "user", "content": "Go."}]
    first: list[Any] = [*start, reply_of(await caller.chat(start))]
    await caller.chat([*first, {"role": "user", "content": "Summarize."}], tools=[])
    summary = {"role": "user", "content": "Before: The summary of all."}
    again: list[Any] = [summary, {"role": "assistant", "content": "x"}, {"role": "user", "content": "On."}]
    await caller.chat(again)
    assert caller.session.side_samples == {0}
    bare = await open_episode()
    await bare.chat([{"role": "user", "content": "What is 1 + 1?"}], tools=[])
    assert bare.session.side_samples == frozenset()


# ── addresses and streams ───────────────────────────────────────────────────────────────────────────────────────────


async def test_programs_find_the_addresses_that_they_ask_for(open_episode: Open) -> None:
    caller = await open_episode()
    for path in ("", "/", "/v1", "/v1beta/"):
        assert (await caller.get(path or "/")).status == 200
        async with caller.http.head(caller.address(path or "/")) as response:
            assert response.status == 200
    listed = (await caller.get("models")).value
    assert listed["data"][0]["id"] == "policy"
    assert (await caller.get("models/gpt-5")).value["id"] == "gpt-5"
    headers = {"anthropic-version": "2023-06-01"}
    assert (await caller.get("models", headers)).value["data"][0]["type"] == "model"
    assert (await caller.get("models/claude", headers)).value["display_name"] == "claude"
    assert (await caller.get("/v1beta/models")).value["models"][0]["name"] == "models/policy"
    answer = twice = await caller.post("v1/messages", {})
    for path in CALLS:
        answer = await caller.post(f"/{path}", {})
        assert (answer.status, "lacks /v1" in json.dumps(answer.value)) == (404, True)
    assert (twice.status, "version twice" in json.dumps(twice.value)) == (404, True)
    assert caller.session.key not in json.dumps([answer.value, twice.value])


@pytest.mark.parametrize(
    ("path", "alive"),
    [("chat/completions", ": keep-alive"), ("responses", ": keep-alive"), ("messages", "event: ping"),
     ("/v1beta/models/policy:streamGenerateContent?alt=sse", None)],
)  # fmt: skip
async def test_a_stream_begins_before_its_reply_and_shows_signs_of_life(
    path: str, alive: str | None, open_episode: Open, engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.gateway.server.FIRST_SECONDS", 0.01)
    monkeypatch.setattr("ludus.gateway.server.ALIVE_SECONDS", 0.01)
    go = asyncio.Event()

    async def wait() -> str:
        await go.wait()
        return "Fine."

    engine.script = lambda prompt, rng: wait()
    caller = await open_episode()
    body = {
        "messages": [{"role": "user", "content": "Go."}], "input": "Go.", "max_tokens": 99,
        "contents": [{"parts": [{"text": "Go."}]}], "stream": True,
    }  # fmt: skip
    async with caller.http.post(caller.address(path), json=body) as response:
        assert response.status == 200
        text = ""
        while alive is not None and text.count(alive) < 2:
            text += (await response.content.readline()).decode()
        go.set()
        text += (await response.content.read()).decode()
    assert "Fine." in text


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_stream_that_has_begun_reports_a_broken_engine(
    path: str, open_episode: Open, engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.gateway.server.FIRST_SECONDS", 0.01)
    monkeypatch.setattr("ludus.gateway.server.ALIVE_SECONDS", 0.01)
    go = asyncio.Event()

    async def fail() -> str:
        await go.wait()
        raise RuntimeError("the engine is dead")

    engine.script = lambda prompt, rng: fail()
    caller = await open_episode()
    body = {"messages": [{"role": "user", "content": "Go."}], "input": "Go.", "max_tokens": 99, "stream": True}
    async with caller.http.post(caller.address(path), json=body) as response:
        await response.content.readline()
        go.set()
        text = (await response.content.read()).decode()
    assert "the engine or the gateway failed" in text
    assert "dead" not in text
    assert isinstance(caller.session.error, RuntimeError)


async def test_a_full_context_fails_a_streamed_response_as_the_provider_does(open_episode: Open) -> None:
    caller = await open_episode(context=50)
    events = await caller.events("responses", {"input": "x" * 400})
    assert [name for name, _ in events] == ["response.created", "response.failed"]
    failed = json.loads(events[-1][1])["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "context_length_exceeded")
    assert caller.session.unfit is not None
