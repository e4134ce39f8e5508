"""The transcripts of the spec are what a server answers now, and conform to the schema."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from transcripts import FOLDER, blocks, exchanges

from ludus.conformance.leaks import find_leak
from ludus.protocol import METHODS
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, EXTENSION_ID, EXTENSION_VERSION, METHOD_PREFIX

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "spec" / "schema" / "episodes.schema.json").read_text("utf-8"))
REGISTRY: Registry[Any] = Registry().with_resource(SCHEMA["$id"], Resource.from_contents(SCHEMA))
EVENT = re.compile(r"^event: end\ndata: ?(?P<data>.*)$", re.MULTILINE)


def schema_of(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"{SCHEMA['$id']}#/$defs/{name}"}, registry=REGISTRY)


@pytest.fixture(scope="session")
def recorder(scripts: Path) -> ModuleType:
    """`scripts/generate_transcripts.py` as a module."""
    return importlib.import_module("generate_transcripts")


def test_a_new_recording_equals_the_transcripts(recorder: ModuleType) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_transcripts.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in FOLDER.iterdir()} == set(recorder.RECORDERS)


@pytest.mark.parametrize("name", ["mcp.md", "channel.md"])
def test_params_and_results_conform_to_the_schema(name: str) -> None:
    ours = [exchange for exchange in exchanges(name) if exchange.method.startswith(METHOD_PREFIX)]
    assert len(ours) >= 5
    for method, params, result in ours:
        kind = METHODS[method]
        schema_of(kind.params.__name__).validate(params)
        schema_of(kind.result.__name__).validate(result)
        kind.params.model_validate(params)
        kind.result.model_validate(result)


def test_frames_of_the_channel_conform_to_the_schema() -> None:
    opening, opened, *frames = blocks("channel.md")
    assert opening.headers["Sec-WebSocket-Protocol"] == opened.headers["Sec-WebSocket-Protocol"] == CHANNEL_SUBPROTOCOL
    assert opened.first.startswith("HTTP/1.1 101 ")
    assert int(opened.headers["Ludus-Max-Frame"]) > 0
    assert any(len(frame.messages) > 1 for frame in frames)
    for frame in frames:
        is_request = frame.first == "frame from the client"
        for message in frame.messages:
            kind = "Request" if is_request else "Success" if "result" in message else "Failure"
            schema_of(kind).validate(message)


START_TO_REWARDS = ["episodes/start", "episodes/step", "episodes/grade", "episodes/rewards", "episodes/close"]


@pytest.mark.parametrize(
    ("name", "before"),
    [("mcp.md", ["server/discover", "environments/list", "tasks/get"]), ("channel.md", [])],
)
def test_a_trainer_goes_from_the_start_to_the_rewards(name: str, before: list[str]) -> None:
    found = {exchange.method.removeprefix(METHOD_PREFIX): exchange.result for exchange in exchanges(name)}
    assert list(found) == [*before, *START_TO_REWARDS]
    assert found["episodes/step"]["reward"]["value"] == 0.5
    assert found["episodes/grade"]["reward"]["value"] == 1.0
    entries = found["episodes/rewards"]["entries"]
    assert [(entry["source"], entry["reward"]["value"]) for entry in entries] == [("step", 0.5), ("grade", 1.0)]
    assert found["episodes/rewards"]["total"]["value"] == 1.5
    assert found["episodes/rewards"]["endReason"] == "submitted"


def test_the_core_is_recorded_with_the_headers_and_the_envelope_of_its_era() -> None:
    request, reply = blocks("mcp.md")[:2]
    (sent,), (received,) = request.messages, reply.messages
    meta = sent["params"]["_meta"]
    assert request.headers["MCP-Protocol-Version"] == meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    declared = meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert declared == {EXTENSION_ID: {"version": EXTENSION_VERSION}}
    assert received["result"]["capabilities"]["extensions"][EXTENSION_ID]["version"] == EXTENSION_VERSION
    assert "2026-07-28" in received["result"]["supportedVersions"]
    for block in blocks("mcp.md")[::2]:
        assert block.headers["Mcp-Method"] == block.messages[0]["method"]


def test_an_agent_goes_from_the_tools_to_a_call_after_the_end() -> None:
    found = exchanges("play.md")
    assert [exchange.method for exchange in found] == ["server/discover", "tools/list", *["tools/call"] * 3]
    assert [tool["name"] for tool in found[1].result["tools"]] == ["add", "submit_answer"]
    assert [exchange.params["name"] for exchange in found[2:]] == ["add", "submit_answer", "add"]
    assert [exchange.result["isError"] for exchange in found[2:]] == [False, False, True]


def test_an_agent_sees_no_reward_no_metadata_and_no_field_of_the_task() -> None:
    for block in blocks("play.md"):
        for message in block.messages:
            result = message.get("result", {})
            assert find_leak({name: value for name, value in result.items() if name != "capabilities"}) is None
            assert EXTENSION_ID not in result.get("capabilities", {}).get("extensions", {})
        for word in ("reward", "metadata", "question", "sum-0", "train", "dev.ludus", "0.5", "1.5"):
            assert word not in block.body


def test_an_ors_client_goes_from_the_session_to_the_rewards() -> None:
    found = blocks("ors.md")
    paths = [block.first.split()[1].rpartition("/")[2] for block in found[::2]]
    assert paths == ["create_session", "create", "prompt", "task_tools", "call", "call", "delete"]
    assert all(block.first.startswith("HTTP/1.1 200 ") for block in found[1::2])
    events = [match["data"] for block in found for match in EVENT.finditer(block.body) if match["data"]]
    outputs = [json.loads(data)["output"] for data in events]
    assert [(output["reward"], output["finished"]) for output in outputs] == [(0.5, False), (1.0, True)]


def test_no_call_of_a_transcript_is_refused() -> None:
    for path in sorted(FOLDER.glob("*.md")):
        for block in blocks(path.name):
            assert not block.first.startswith("HTTP") or block.first.split()[1] in ("101", "200")
            assert all("error" not in message for message in block.messages)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=20), inner, max_size=6),
    max_leaves=40,
)


@given(value=JSON)
def test_the_layout_of_json_keeps_its_value(recorder: ModuleType, value: Any) -> None:
    assert json.loads(recorder.layout(value)) == value


def test_the_layout_of_json_has_at_most_120_columns(recorder: ModuleType) -> None:
    members = {f"name {n}": {"a": [n] * n, "b": "x" * n, "c": [{"d": "y" * 60}, {"e": [["z" * n]]}]} for n in range(30)}
    text = recorder.layout(members)
    assert json.loads(text) == members
    assert max(map(len, text.splitlines())) <= recorder.WIDTH


def test_a_message_that_differs_in_what_is_shown_once_is_refused(recorder: ModuleType) -> None:
    message = recorder.Message("POST /mcp HTTP/1.1", {"Accept": "a"}, {"params": {"_meta": {}, "x": 1}})
    talk = recorder.Transcript(None, "http://127.0.0.1:1", [], {}, [("First.", [message]), ("Second.", [message])])
    assert talk.markdown("Title", common_once=True).count("Accept: a") == 1
    talk.exchanges.append(("Third.", [replace(message, headers={"Accept": "b"})]))
    with pytest.raises(ValueError, match="differ from those of the first"):
        talk.markdown("Title", common_once=True)
