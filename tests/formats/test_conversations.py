"""Conversations reach every provider in its form, and what the model did comes back as the same items."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ludus.client.formats import FORMATS, anthropic, google, openai_chat, openai_responses
from ludus.protocol import Call, ImageBlock, Message, TextBlock
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import ParseError
from ludus.protocol.items import (
    CallItem,
    Item,
    MalformedCall,
    OutputItem,
    from_json,
    parse_arguments,
    text_message,
    to_json,
)

IMAGE = ImageBlock.of(b"\x89PNG")

CONVERSATION: list[Item] = [
    text_message("system", "Be brief."),
    Message(role="user", content=(TextBlock(text="What is this?"), IMAGE)),
    text_message("assistant", "I shall look."),
    CallItem("c1", Call("look", {"title": "ü", "n": 2})),
    CallItem("c2", Call("zoom")),
    OutputItem("c1", (TextBlock(text="a cat"), IMAGE)),
    OutputItem("c2", (TextBlock(text="no such tool"),), error=True),
    text_message("assistant", "A cat."),
]


def test_items_survive_the_responses_form() -> None:
    values = json.loads(json.dumps(to_json(CONVERSATION)))
    errors_are_not_recorded = [
        OutputItem(item.call_id, item.content) if isinstance(item, OutputItem) else item for item in CONVERSATION
    ]
    assert from_json(values) == errors_are_not_recorded


def test_a_malformed_call_is_recorded_as_the_model_wrote_it() -> None:
    (value,) = to_json([CallItem("c", MalformedCall("t", '{"a":', "cut"))])
    assert value["arguments"] == '{"a":'


def test_entries_that_are_no_items_are_named_in_the_error() -> None:
    with pytest.raises(ParseError, match="function_call"):
        from_json([{"type": "function_call", "name": "x"}])


def test_chat_messages_group_calls_under_the_text_and_show_returned_images_after_the_outputs() -> None:
    messages = openai_chat.messages(CONVERSATION)["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert messages[1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert messages[2]["content"] == "I shall look."
    assert [call["id"] for call in messages[2]["tool_calls"]] == ["c1", "c2"]
    assert json.loads(messages[2]["tool_calls"][0]["function"]["arguments"]) == {"title": "ü", "n": 2}
    assert messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "a cat\n[image: image/png]"}
    assert messages[5]["content"][1]["type"] == "image_url"


def test_a_turn_of_calls_alone_has_null_content_in_chat() -> None:
    messages = openai_chat.messages([text_message("user", "go"), CallItem("c", Call("t"))])["messages"]
    assert messages[1]["content"] is None


def test_responses_input_is_the_item_list() -> None:
    values = openai_responses.messages(CONVERSATION)["input"]
    assert [v["type"] for v in values] == [
        "message", "message", "message", "function_call", "function_call",
        "function_call_output", "function_call_output", "message",
    ]  # fmt: skip
    assert values[5]["output"][1]["type"] == "input_image"
    assert values[6]["output"] == "no such tool"


def test_anthropic_messages_alternate_and_carry_errors_and_images() -> None:
    request = anthropic.messages(CONVERSATION)
    assert request["system"] == "Be brief."
    assert [m["role"] for m in request["messages"]] == ["user", "assistant", "user", "assistant"]
    assert [b["type"] for b in request["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
    first, second = request["messages"][2]["content"]
    assert first["content"][1]["source"]["media_type"] == "image/png"
    assert "is_error" not in first
    assert second["is_error"] is True


def test_anthropic_gets_no_empty_text() -> None:
    items: list[Item] = [text_message("user", "go"), text_message("assistant", ""), CallItem("c", Call("t"))]
    assert [b["type"] for b in anthropic.messages(items)["messages"][1]["content"]] == ["tool_use"]


def test_google_contents_alternate_and_name_the_function_answered() -> None:
    request = google.messages(CONVERSATION)
    assert request["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [c["role"] for c in request["contents"]] == ["user", "model", "user", "model"]
    answer, image, refusal = request["contents"][2]["parts"]
    assert answer["functionResponse"]["name"] == "look"
    assert answer["functionResponse"]["response"]["result"].startswith("a cat")
    assert image["inlineData"]["mimeType"] == "image/png"
    assert refusal["functionResponse"]["response"] == {"error": "no such tool"}


TURN: list[Item] = [text_message("assistant", "Both."), CallItem("1", Call("a", {"x": 1})), CallItem("2", Call("b"))]

RESPONSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "openai-chat": (
        openai_chat,
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "Both.",
                        "tool_calls": [
                            {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}},
                            {"id": "2", "type": "function", "function": {"name": "b", "arguments": ""}},
                        ],
                    }
                }
            ]
        },
    ),
    "openai-responses": (
        openai_responses,
        {
            "output": [
                {"type": "reasoning", "id": "r", "summary": []},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Both.", "annotations": []}],
                },
                {"type": "function_call", "call_id": "1", "name": "a", "arguments": '{"x": 1}'},
                {"type": "function_call", "call_id": "2", "name": "b", "arguments": "{}"},
            ]
        },
    ),
    "anthropic": (
        anthropic,
        {
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "1", "name": "a", "input": {"x": 1}},
                {"type": "tool_use", "id": "2", "name": "b", "input": {}},
            ]
        },
    ),
    "google": (
        google,
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"text": "Both."},
                            {"functionCall": {"id": "1", "name": "a", "args": {"x": 1}}},
                            {"functionCall": {"id": "2", "name": "b"}},
                        ],
                    }
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("form", RESPONSES)
def test_text_and_every_parallel_call_come_back(form: str) -> None:
    module, response = RESPONSES[form]
    assert module.items(response) == TURN


@pytest.mark.parametrize(
    ("module", "response"),
    [
        (openai_chat, {"choices": [{"message": {"role": "assistant", "content": None}}]}),
        (openai_responses, {"output": []}),
        (anthropic, {"content": []}),
        (google, {"candidates": [{"content": {"role": "model"}}]}),
    ],
)
def test_an_empty_turn_is_an_empty_message(module: Any, response: dict[str, Any]) -> None:
    assert module.items(response) == [text_message("assistant", "")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"a": ', "not valid JSON"), ("[1]", "must be a JSON object"), ("null", "must be"), ('{"a": NaN}', "NaN")],
)
def test_arguments_that_are_no_object_are_a_malformed_call(text: str, problem: str) -> None:
    call = parse_arguments("t", text)
    assert isinstance(call, MalformedCall)
    assert problem in call.problem


def test_a_tool_that_sampled_text_calls_by_its_encoded_name_gets_its_own_name_back() -> None:
    specs = [ToolSpec(name="files.look", description="Look.", input_schema={"type": "object"})]
    form = FORMATS["hermes"]
    (tool,) = form.tools(specs)
    assert tool["function"]["name"] != "files.look"
    written = json.dumps({"name": tool["function"]["name"], "arguments": {}})
    (item,) = form.items(form.from_text(f"<tool_call>{written}</tool_call>"), specs)
    assert isinstance(item, CallItem)
    assert item.call == Call("files.look")
