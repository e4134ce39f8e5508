"""Validation of outside input takes bounded work: values are counted, and only a few errors are described."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Union

import pytest
from pydantic import BaseModel, ValidationError
from worlds import Playground

from ludus.protocol import bounds as b
from ludus.protocol import episodes as e
from ludus.protocol.errors import LudusError, PayloadTooLarge
from ludus.server import EpisodeHost
from ludus.server.auth.principal import Principal
from ludus.server.hosting.dispatch import dispatch
from ludus.server.serving.serve import LudusServer
from ludus.server.transports.channel import MAX_IN_FLIGHT

OPEN = Principal.open()
MANY = 380_000


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * MANY + "[]]",
        json.dumps({f"k{n}": 1 for n in range(MANY)}),
        '{"a":' * MANY,
        "[" + '"",' * MANY + "1]",
        "," * MANY,
        '"",' * MANY + '"' + '\\"' * 1_000_000,
    ],
)
def test_texts_of_too_many_values_are_refused(text: str) -> None:
    for one in (text, text.encode()):
        with pytest.raises(PayloadTooLarge) as refused:
            b.check_json(one)
        assert refused.value.data == {"limit": "json_values", "maximum": b.MAX_BODY_VALUES}


@pytest.mark.parametrize(
    "value",
    [
        "," * MANY,
        {"csv": "1,2,3\n" * MANY, "code": "[{" * MANY},
        '"\\"' * MANY,
        "\\" * MANY + "[" * MANY,
        list(range(b.MAX_BODY_VALUES - 1)),
        {"": [{"a": 1}] * (b.MAX_BODY_VALUES // 4)},
    ],
)
def test_long_texts_and_many_values_that_are_allowed_pass(value: Any) -> None:
    for ascii_only in (True, False):
        b.check_json(json.dumps(value, ensure_ascii=ascii_only))
        b.check_json(json.dumps(value, ensure_ascii=ascii_only).encode())


def test_a_text_that_is_no_json_is_scanned_once() -> None:
    """If an open string were scanned from each of its quotes, this would take hours, and so meet the test's timeout."""
    for text in ('"' + '\\"' * 2_000_000, '"' * 4_000_000, '"a\\' * 1_000_000, "[" * 100_001 + '"' + "\\" * 3_000_001):
        with suppress(PayloadTooLarge):
            b.check_json("," * 100_001 + text if "[" not in text else text)


class Deep(BaseModel):
    items: list[Union[int, float, bool, Deep]]  # noqa: UP007 - pydantic resolves its own name


def test_few_complaints_are_made_of_many() -> None:
    calls = 0

    def validate(value: Any) -> Any:
        nonlocal calls
        calls += 1
        return Deep.model_validate(value)

    given = {"items": ["x"] * b.MAX_CALL_VALUES}
    with pytest.raises(ValidationError) as found:
        validate(given)
    errors = b.first_errors(found.value, validate, given)
    assert (len(errors), calls) == (b.SHOWN_COMPLAINTS, 2)
    assert errors[0]["loc"][:2] == ("items", 0)


def test_missing_fields_are_not_made_up_when_many_others_are_wrong() -> None:
    class Needy(BaseModel, extra="forbid"):
        needed: int

    given: dict[str, Any] = {f"x{n}": n for n in range(1000)} | {"needed": 1}
    with pytest.raises(ValidationError) as found:
        Needy.model_validate(given)
    errors = b.first_errors(found.value, Needy.model_validate, given)
    assert {one["type"] for one in errors} == {"extra_forbidden"}


@pytest.mark.parametrize(
    "value", [[[]] * 1_000_000, {"a": "x" * 4_000_000}, "x" * 4_000_000, 10**4000, [10**5000], [-(10**6000)], {1, 2}]
)
def test_large_inputs_are_shown_short(value: Any) -> None:
    assert len(b.short(value)) <= 80


# ── on the wires ───────────────────────────────────────────────────────────────────────────────────────────────────

_keys = itertools.count()


def _params(**wrong: Any) -> dict[str, Any]:
    return {"environment": "playground", "split": "train", "key": f"k{next(_keys)}", **wrong}


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("episodes/start", {f"x{n}": n for n in range(90_000)}),
        ("episodes/start", {"tools": [1] * 90_000}),
        ("episodes/start", {"tools": [f"tool{n}" for n in range(90_000)]}),
        ("episodes/start", {"secrets": {f"x{n}": n for n in range(90_000)}}),
        ("episodes/start", {"count": 10**4000}),
        ("episodes/start", {"count": "1" * 4_000_000}),
        ("episodes/start", {"task": "x" * 4_000_000}),
        ("episodes/start", {"seed": "9" * 1_000_000}),
        ("episodes/start", {"environment": ["x"] * 90_000}),
        ("tasks/list", {"cursor": "9" * 1_000_000}),
        ("tasks/sample", {"count": 2**70}),
        ("tasks/sample", {"band": [0] * 90_000}),
        ("outcomes/report", {"outcomes": [{"task": 1}] * 40_000}),
        ("groups/score", {"group": "g" * 100_000, "candidates": {f"e{n}": {"messages": []} for n in range(30_000)}}),
        ("x" * 4_000_000, {}),
    ],
)
async def test_wrong_params_are_described_shortly(
    host: Callable[..., Awaitable[EpisodeHost]], method: str, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is wrong, few errors are looked at, and the message holds little of the input."""
    looked = 0
    errors = b.first_errors

    def count(*args: Any) -> Any:
        nonlocal looked
        found = errors(*args)
        looked = max(looked, len(found))
        return found

    monkeypatch.setattr("ludus.server.authoring.tools.first_errors", count)
    running = await host(Playground)
    params = _params(**wrong)
    if method in ("tasks/list", "tasks/sample"):
        del params["key"]
    if method == "groups/score":
        del params["environment"], params["split"]
    with pytest.raises(LudusError) as refused:
        await dispatch(running, f"dev.ludus/{method}", params, OPEN)
    assert len(str(refused.value)) < 8000
    assert looked <= b.SHOWN_COMPLAINTS


async def test_a_call_of_many_unknown_arguments_is_refused_before_its_tool_validates_it(
    host: Callable[..., Awaitable[EpisodeHost]], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await host(Playground)
    params = e.StartParams(environment="playground", split="train", key="start")
    episode = (await running.start(params, OPEN)).episodes[0].episode
    validated = 0
    tool = running.catalog["playground"].tools["add"]
    arguments = type(tool).arguments

    def count(self: Any, given: Any) -> Any:
        nonlocal validated
        validated += 1
        return arguments(self, given)

    monkeypatch.setattr(type(tool), "arguments", count)
    result = await running.play(episode, "add", {f"x{n}": n for n in range(MANY)})
    assert result.error is not None
    assert (result.error.code, validated) == ("invalid_arguments", 0)
    fewer = await running.play(episode, "add", {f"x{n}": n for n in range(b.MAX_CALL_VALUES - 1)})
    assert fewer.error is not None
    assert (validated, len(fewer.error.message) < 2000) == (1, True)
    assert "more errors" in fewer.error.message


@pytest.mark.parametrize(
    "body",
    [
        {"split": ["x"] * 90_000},
        {"split": "train", **{f"x{n}": n for n in range(90_000)}},
        {"split": {"a": {f"x{n}": [n] for n in range(40_000)}}},
        {"split": "x" * 3_000_000},
    ],
)
async def test_ors_bodies_are_described_shortly(
    serve: Callable[..., Awaitable[LudusServer]], body: dict[str, Any]
) -> None:
    server = await serve(Playground)

    def ask() -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(server.url + "/playground/tasks", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    status, answer = await asyncio.to_thread(ask)
    assert status in (400, 422)
    assert len(answer) < 64 * 1024


async def test_frames_of_too_many_requests_or_values_have_one_answer(
    serve: Callable[..., Awaitable[LudusServer]],
) -> None:
    from aiohttp import ClientSession

    server = await serve(Playground)
    async with ClientSession() as session:
        address = server.url.replace("http", "ws") + "/channel"
        async with session.ws_connect(address, protocols=("ludus.channel.v0.2",)) as socket:
            for frame in (
                "[" + "1," * MAX_IN_FLIGHT + "1]",
                "[" + "[]," * b.MAX_FRAME_VALUES + "[]]",
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", **{f"x{n}": n for n in range(MANY)}}),
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", **{f"x{n}": n for n in range(100_000)}}),
            ):
                await socket.send_str(frame)
                answer = await socket.receive_json(timeout=60)
                assert "error" in answer
                assert len(json.dumps(answer)) < 2000
            await socket.send_str('{"jsonrpc":"2.0","id":7,"method":"dev.ludus/environments/list"}')
            assert (await socket.receive_json(timeout=60))["id"] == 7
