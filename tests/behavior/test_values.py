"""Text and numbers that JSON cannot carry have the same effect on each transport."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from odd_values import HALF, WHOLE, Guess, Odd

from ludus.client import TrajectoryWriter, connect, read_trajectories, rollout_all
from ludus.protocol import Answer, Call, Candidate, TaskRow
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, EXTENSION_ID
from ludus.protocol.trajectory import Failure, Trajectory
from ludus.server.web.logs import configure, flush

Sit = Callable[..., Awaitable[Any]]


@pytest.mark.suite("breadth", first=2)
@pytest.mark.requirement("CONT-4", "CONT-5")
async def test_half_a_character_arrives_as_the_replacement_character_and_the_reward_with_it(sit: Sit) -> None:
    seat = await sit(Odd)
    assert seat.prompt == f"prompt {WHOLE}"
    assert (await seat.call("show")).text == f"a{WHOLE}b"
    shown = await seat.call("show_blocks")
    assert [getattr(block, "text", None) for block in shown.content] == [f"one {WHOLE}", f"two {WHOLE}", None]
    remarked = await seat.call("remark")
    assert remarked.text == f"seen {WHOLE}"
    refused = await seat.call("refuse")
    assert refused.mistake
    assert f"no {WHOLE}" in refused.text
    if seat.sees_rewards:
        assert remarked.reward == 0.5
    submitted = await seat.submit("fine")
    assert not submitted.over
    assert submitted.reward == (1.0 if seat.sees_rewards else None)


@pytest.mark.suite("breadth", first=2)
async def test_a_failure_with_half_a_character_is_reported_with_its_incident(sit: Sit) -> None:
    seat = await sit(Odd)
    assert (await seat.call("crash")).failed


NUMBERS = [
    (name, made)
    for made in ("nan", "inf", "-Infinity", "1e999")
    for name in ("plain", "optional", "decimal", "converted", "listed", "nested", "whole", "paired")
]


def _arguments(tool: str, value: Any) -> dict[str, Any]:
    inner = {
        "listed": [value], "mapped": {"a": [value]}, "nested": {"value": value}, "paired": {"left": value},
        "open_model": {"value": value},
    }  # fmt: skip
    return {"value": value} if tool == "whole" else {"x": inner.get(tool, value)}


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("CONT-6")
async def test_numbers_that_are_not_finite_never_reach_a_tool_whose_type_does_not_allow_them(sit: Sit) -> None:
    seat = await sit(Guess)
    Guess.got.clear()
    for tool, text in NUMBERS:
        seen = await seat.call(tool, **_arguments(tool, text))
        assert seen.mistake, (tool, text, seen)
        assert "finite" in seen.text or "number" in seen.text or "decimal" in seen.text, (tool, seen.text)
    assert Guess.got == []
    good = await seat.call("plain", x=3.5)
    assert not good.mistake
    assert (await seat.call("listed", x=[1, 2.5])).text == "[1.0, 2.5]"


@pytest.mark.suite("breadth", first=2)
@pytest.mark.requirement("CONT-6")
async def test_a_type_that_allows_every_number_gets_it(sit: Sit) -> None:
    seat = await sit(Guess)
    Guess.got.clear()
    assert (await seat.call("allowed", x="Infinity")).text == "inf"
    assert math.isnan(float((await seat.call("allowed", x="nan")).text))
    assert "inf" in (await seat.call("open_model", x={"value": "inf"})).text


REQUESTS = {
    "half a character": r'{"text":"a\ud800"}',
    "half a character deep inside": r'{"text":"a","more":[{"b":["\udcff"]}]}',
    "half a character in a name": r'{"text":"a","more":{"\udcff":1}}',
    "NaN": '{"text":"a","more":NaN}',
    "Infinity": '{"text":"a","more":{"b":[-Infinity]}}',
    "a number too large": '{"text":"a","more":[1e999]}',
}


@pytest.mark.requirement("CONT-6")
@pytest.mark.parametrize("arguments", REQUESTS.values(), ids=REQUESTS)
async def test_requests_with_what_json_does_not_have_run_nothing_and_are_answered(serve: Any, arguments: str) -> None:
    server = await serve(Odd)
    Odd.heard.clear()
    async with aiohttp.ClientSession(server.url) as http, connect(server.url) as client:
        episode = await client.environment("odd").start(split="train", index=0)
        call = f'"name":"hear","arguments":{arguments}'
        for path, modern in itertools.product((episode.play_url, f"{server.url}/mcp"), (True, False)):
            name = "hear" if path == episode.play_url else "call_tool"
            inner = f'{{"episode":"{episode.id}","tool":"hear","arguments":{arguments}}}'
            params = call if name == "hear" else f'"name":"call_tool","arguments":{inner}'
            status, reply = await _post_mcp(http, str(path), "tools/call", params, name if modern else None)
            assert status in (200, 400), reply
            assert reply.get("error", {}).get("code") in (-32700, -32602) or reply["result"]["isError"], reply
        step = f'"episode":"{episode.id}","step":STEP,"key":"k-STEP","tool":"hear","arguments":{arguments}'
        number = (await episode.info()).steps + 1
        status, reply = await _post_mcp(
            http, "/mcp", "dev.ludus/episodes/step", step.replace("STEP", str(number)), "no name"
        )
        assert reply.get("error", {}).get("code") in (-32700, -32602) or reply["result"]["error"]["code"] == (
            "invalid_arguments"
        )
        number = (await episode.info()).steps + 1
        async with http.ws_connect("/channel", protocols=[CHANNEL_SUBPROTOCOL]) as socket:
            body = f'"method":"dev.ludus/episodes/step","params":{{{step.replace("STEP", str(number))}}}'
            await socket.send_str(f'{{"jsonrpc":"2.0","id":"a",{body}}}')
            answer = json.loads((await socket.receive()).data)
            assert answer.get("error", {}).get("code") == -32700 or answer["result"]["error"], answer
        async with http.post("/create_session", headers={"accept": "application/json"}) as response:
            headers = {"x-session-id": (await response.json())["sid"]}
        await http.post("/create", json={"env_name": "odd", "split": "train", "index": 0}, headers=headers)
        raw = f'{{"name":"hear","input":{arguments}}}'
        async with http.post("/odd/call", data=raw, headers=headers) as response:
            text = await response.text()
            assert response.status in (400, 422) or '"reason":"input_validation"' in text, text
        assert Odd.heard == Counter()
        async with client.environment("odd").episode(split="train", index=0) as other:
            assert (await other.call("hear", text="fine")).error is None
    assert Odd.heard == {"fine": 1}


async def _post_mcp(
    http: aiohttp.ClientSession, path: str, method: str, params: str, modern: str | None
) -> tuple[int, dict[str, Any]]:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers["mcp-protocol-version"] = "2026-07-28" if modern else "2025-06-18"
    if modern:
        headers |= {"mcp-method": method, "mcp-name": modern}
        about = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION_ID: {}}},
        }
        params += f',"_meta":{json.dumps(about)}'
    body = f'{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}}}}}'
    async with http.post(path, data=body, headers=headers) as response:
        return response.status, await response.json()


async def test_one_bad_request_of_a_batch_costs_the_others_nothing(serve: Any) -> None:
    server = await serve(Odd)
    async with connect(server.url) as client, aiohttp.ClientSession(server.url) as http:
        episodes = [await client.environment("odd").start(split="train", index=0) for _ in range(2)]
        batch = ",".join(
            f'{{"jsonrpc":"2.0","id":{at},"method":"dev.ludus/episodes/step","params":{{"episode":"{episode.id}",'
            f'"step":1,"key":"b{at}","tool":"hear","arguments":{{"text":"{text}"}}}}}}'
            for at, (episode, text) in enumerate(zip(episodes, (r"\ud800", "whole"), strict=True))
        )
        async with http.ws_connect("/channel", protocols=[CHANNEL_SUBPROTOCOL]) as socket:
            await socket.send_str(f"[{batch}]")
            replies: dict[int, Any] = {}
            while len(replies) < 2:
                frame = json.loads((await socket.receive()).data)
                replies |= {one["id"]: one for one in (frame if isinstance(frame, list) else [frame])}
    assert replies[0]["result"]["error"]["code"] == "invalid_arguments"
    assert replies[1]["result"]["content"][0]["text"] == "heard 5"


@pytest.mark.requirement("CONT-5")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_tasks_tools_rewards_and_metadata_arrive_with_the_replacement(serve: Any, wire: Any) -> None:
    server = await serve(Odd)
    async with connect(server.url, wire=wire) as client:
        environment = client.environment("odd")
        assert (await environment.info()).version == f"1{WHOLE}"
        rows = [task async for task in environment.tasks("train")]
        assert rows[0].fields == {"question": f"a{WHOLE}b", "notes": {f"k{WHOLE}": f"v{WHOLE}"}}
        async with await environment.start(split="lazy", index=1) as episode:
            assert episode.task.fields == rows[0].fields
            described = {tool.name: tool.description for tool in episode.tools}
            assert described["remark"] == f"Remark {WHOLE}."
            result = await episode.call("remark")
            assert result.reward is not None
            assert result.reward.reason == f"r{WHOLE}"
            assert result.reward.components[f"c{WHOLE}"].evidence == f"e{WHOLE}"
            assert result.reward.missing == {f"m{WHOLE}": f"why {WHOLE}"}
            assert result.metadata == {f"k{WHOLE}": [f"v{WHOLE}", {"in": [f"w{WHOLE}"]}]}
            graded = await episode.grade(f"answer {HALF}")
            assert graded.reward is not None
            assert graded.reward.reason == f"r{WHOLE}"
        group = await environment.start_group(2, split="train", index=0) if wire != "ors" else None
        if group is not None:
            async with group:
                scores = await group.score({one.id: Candidate(messages=()) for one in group})
            assert {score.reason for score in scores.values()} == {f"s{WHOLE}"}


async def test_a_rollout_and_its_trajectory_hold_half_characters_of_both_sides(serve: Any, tmp_path: Path) -> None:
    server = await serve(Odd)
    said = iter([Call("remark"), Call("hear", {"text": HALF}), Answer(f"my answer {HALF}")])

    async def policy(conversation: Any) -> Any:
        return next(said)

    async with connect(server.url) as client:
        (trajectory,) = await rollout_all(client.environment("odd"), policy, n=1)
    assert trajectory.failure is None
    assert [step.error for step in trajectory.steps] == [None, "invalid_arguments"]
    assert trajectory.value == 1.5
    with TrajectoryWriter(tmp_path / "runs.jsonl") as writer:
        writer.write(trajectory)
    assert [one.value for one in read_trajectories(tmp_path / "runs.jsonl")] == [1.5]


def test_a_trajectory_with_half_a_character_in_any_field_is_written_and_read(tmp_path: Path) -> None:
    row = TaskRow(id="t", split="train", index=0, fields={f"k{HALF}": f"v{HALF}"})
    failure = Failure(kind="policy", error="E", message=f"m{HALF}", attempt=1)
    trajectory = Trajectory(
        environment="e", split="train", task=row, policy=f"p{HALF}", started_at=0.0, seconds=0.0, failure=failure
    )
    with TrajectoryWriter(tmp_path / "t.jsonl") as writer:
        writer.write(trajectory)
    (read,) = read_trajectories(tmp_path / "t.jsonl")
    assert (read.policy, read.failure and read.failure.message) == (f"p{WHOLE}", f"m{WHOLE}")
    assert read.task.fields == {f"k{WHOLE}": f"v{WHOLE}"}


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_log_line_with_half_a_character_is_written(style: Any, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as stream:
        configure(style, stream=stream)
        logging.getLogger("ludus.test").warning("half %s", HALF, extra={f"k{HALF}": HALF})
        flush()
    assert f"half {WHOLE}" in (tmp_path / "log").read_text("utf-8")


async def test_numbers_that_are_not_finite_are_kept_from_schemas(serve: Any) -> None:
    server = await serve(Guess)
    async with connect(server.url) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.environment("guess").info()).tools}
    assert tools["bounded"]["properties"]["x"] == {"type": "number"}
    assert tools["allowed"]["properties"]["limit"] == {"type": "number"}
