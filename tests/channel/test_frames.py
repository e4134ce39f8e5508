"""The channel's replies to each kind of frame."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from worlds import Counting, Playground

from ludus.protocol import Task
from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL, MAX_FRAME_HEADER
from ludus.server import Environment, ServerLimits, tool
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.transports import channel as server_side

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
PAYLOAD_TOO_LARGE = 4130


class Waiting(Environment[Task]):
    """Waits."""

    splits = {"train": [Task(id="t")]}
    gate: asyncio.Event

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self) -> str:
        """Wait."""
        await self.gate.wait()
        return "done"


def error(reply: dict[str, Any]) -> tuple[Any, int]:
    assert set(reply) == {"jsonrpc", "id", "error"}, reply
    return reply["id"], reply["error"]["code"]


async def test_an_object_is_answered_by_an_object(talk: Any, ask: Any) -> None:
    await talk.send(ask("environments/list", "first"))
    reply = await talk.frame()
    assert (reply["jsonrpc"], reply["id"]) == ("2.0", "first")
    assert [one["name"] for one in reply["result"]["environments"]] == ["playground"]


async def test_an_array_is_answered_item_by_item(talk: Any, ask: Any) -> None:
    await talk.send([ask("environments/list", 1), ask("nonsense", 2), ask("splits/list", 3, environment="playground")])
    replies = {reply["id"]: reply for reply in await talk.replies(3)}
    assert "result" in replies[1]
    assert "result" in replies[3]
    assert error(replies[2]) == (2, METHOD_NOT_FOUND)


async def test_steps_of_one_frame_run_in_its_order(talk: Any, ask: Any) -> None:
    episode = await talk.start()
    steps = range(1, 101)
    await talk.send([ask("episodes/step", n, episode=episode, step=n, tool="add", key=f"k{n}") for n in steps])
    replies = {reply["id"]: reply["result"]["content"][0]["text"] for reply in await talk.replies(100)}
    assert replies == {n: f"count {n}" for n in steps}


async def test_replies_of_one_turn_share_a_frame(talk: Any, ask: Any) -> None:
    await talk.send([ask("splits/list", n, environment="playground") for n in range(50)])
    first = await talk.frame()
    assert isinstance(first, list)
    assert len(first) > 1


async def test_several_replies_are_arrays_although_each_needs_a_frame_of_its_own(talk: Any, ask: Any) -> None:
    text = "x" * (2**20 * 2 // 3)
    episodes = [await talk.start(key=f"start {n}") for n in range(2)]
    await talk.send(
        [
            ask("episodes/step", n, episode=episode, step=1, tool="say", arguments={"text": text}, key="k")
            for n, episode in enumerate(episodes)
        ]
    )
    frames = [await talk.frame() for _ in episodes]
    assert [[reply["id"] for reply in frame] for frame in frames] == [[0], [1]]


@pytest.mark.parametrize(
    ("item", "identifier"),
    [
        (1, None),
        ("text", None),
        (None, None),
        (True, None),
        ({}, None),
        ({"jsonrpc": "2.0", "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": None, "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": 2**53, "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": "x" * 200, "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "dev.ludus/environments/list"}, None),
        ({"jsonrpc": "1.0", "id": 7, "method": "dev.ludus/environments/list"}, 7),
        ({"id": 7, "method": "dev.ludus/environments/list"}, 7),
        ({"jsonrpc": "2.0", "id": 7}, 7),
        ({"jsonrpc": "2.0", "id": 7, "method": 3}, 7),
        ({"jsonrpc": "2.0", "id": 7, "method": "dev.ludus/environments/list", "params": []}, 7),
        ({"jsonrpc": "2.0", "id": 7, "method": "dev.ludus/environments/list", "params": None}, 7),
        ({"jsonrpc": "2.0", "id": 7, "method": "dev.ludus/environments/list", "more": 1}, 7),
        ({"jsonrpc": "2.0", "id": 7, "result": {}}, 7),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_continues(
    talk: Any, ask: Any, item: Any, identifier: Any
) -> None:
    await talk.send([item, ask("environments/list", 99)])
    replies = await talk.replies(2)
    assert error(next(reply for reply in replies if "error" in reply)) == (identifier, INVALID_REQUEST)
    assert next(reply for reply in replies if "result" in reply)["id"] == 99


@pytest.mark.parametrize(
    "text",
    ["", "{", "nonsense", '{"jsonrpc":"2.0"', "[1,]", "NaN", '{"id":Infinity}', "[" * 100_000, "\x00"],
)
async def test_what_is_no_json_is_a_parse_error_and_the_connection_goes_on(talk: Any, text: str) -> None:
    await talk.send(text)
    assert error(await talk.frame()) == (None, PARSE_ERROR)
    assert "result" in await talk.ask("environments/list")


@pytest.mark.parametrize(("frame", "code"), [([], INVALID_REQUEST), ([[]], INVALID_REQUEST), ("{}", INVALID_REQUEST)])
async def test_empty_things_are_invalid_requests(talk: Any, frame: Any, code: int) -> None:
    await talk.send(frame)
    assert error((await talk.replies(1))[0]) == (None, code)


@pytest.mark.requirement("CHAN-11")
async def test_a_binary_frame_is_refused_and_the_connection_goes_on(talk: Any) -> None:
    await talk.socket.send_bytes(b"{}")
    assert error(await talk.frame()) == (None, INVALID_REQUEST)
    assert "result" in await talk.ask("environments/list")


@pytest.mark.requirement("CHAN-11")
async def test_text_that_is_not_utf8_ends_that_connection_and_no_other(serve: Any, dial: Any) -> None:
    server = await serve(Playground)
    bad, good = await dial(server), await dial(server)
    await bad.socket.send_frame(b'{"x":"\xff\xfe"}', aiohttp.WSMsgType.TEXT)
    assert await bad.closed() == 1007
    assert "result" in await good.ask("environments/list")


@pytest.mark.parametrize(
    "params",
    [
        {"environment": 3},
        {},
        {"environment": "playground", "more": 1},
        {"environment": "x" * 500},
        {"environment": None},
    ],
)
async def test_wrong_params_say_where(talk: Any, params: dict[str, Any]) -> None:
    reply = await talk.ask("splits/list", 5, **params)
    assert error(reply) == (5, INVALID_PARAMS)
    assert "environment" in reply["error"]["message"] or "more" in reply["error"]["message"]


async def test_a_frame_over_the_limit_is_refused_and_the_limit_is_reported_beforehand(serve: Any, dial: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(body_bytes=2048, grace_seconds=0.5))
    talk = await dial(server)
    assert talk.socket._response.headers[MAX_FRAME_HEADER] == "2048"
    await talk.send({"x": "y" * 3000})
    assert error(await talk.frame()) == (None, PAYLOAD_TOO_LARGE)
    assert "result" in await talk.ask("environments/list")


@pytest.mark.parametrize("protocols", [(), ("mcp",), ("ludus.channel.v9",)])
async def test_without_our_subprotocol_there_is_no_upgrade(serve: Any, dial: Any, protocols: tuple[str, ...]) -> None:
    server = await serve(Playground)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await dial(server, protocols=protocols)
    assert refused.value.status == 400


async def test_a_page_from_elsewhere_may_not_open_it(serve: Any, dial: Any) -> None:
    server = await serve(Playground)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await dial(server, headers={"Origin": "https://evil.example"})
    assert refused.value.status == 403


async def test_the_refusal_of_an_upgrade_is_an_error_object(serve: Any) -> None:
    server = await serve(Playground)
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with aiohttp.ClientSession() as session, session.get(server.url + CHANNEL_PATH, headers=headers) as response:
        body = await response.json()
    assert body["error"]["code"] == INVALID_REQUEST
    assert CHANNEL_SUBPROTOCOL in body["error"]["message"]


async def test_a_step_outlives_the_connection_that_asked_for_it(serve: Any, dial: Any, ask: Any) -> None:
    server = await serve(Counting)
    first = await dial(server)
    episode = await first.start("counting")
    step = ask("episodes/step", 1, episode=episode, step=1, tool="tick", arguments={"mark": episode}, key="once")
    await first.send(step)
    first.socket._response.connection.transport.abort()
    second = await dial(server)
    await second.send(step)
    assert (await second.replies(1))[0]["result"]["content"][0]["text"] == f"{episode} 1"
    assert Counting.runs[episode] == 1


async def test_a_peer_that_does_not_read_delays_no_other(serve: Any, dial: Any, ask: Any) -> None:
    server = await serve(Playground)
    deaf, other = await dial(server), await dial(server)
    episode = await deaf.start()
    text = "x" * 100_000
    for n in range(1, 201):
        step = ask("episodes/step", n, episode=episode, step=n, tool="say", arguments={"text": text}, key=f"k{n}")
        sending = asyncio.create_task(deaf.send(step))
        done, _ = await asyncio.wait({sending}, timeout=0.5)
        if not done:
            sending.cancel()
            break
    assert "result" in await other.ask("environments/list")


async def test_ids_come_back_as_they_were(talk: Any, ask: Any) -> None:
    identifiers = [0, -5, 2**53 - 1, "", 'é\n"', "7", 7]
    await talk.send(json.dumps([ask("environments/list", one) for one in identifiers]))
    assert {json.dumps(reply["id"]) for reply in await talk.replies(7)} == {json.dumps(one) for one in identifiers}


async def test_reading_goes_on_when_some_of_too_many_requests_are_answered(
    talk: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side, "MAX_IN_FLIGHT", 3)
    episode = await talk.start()
    for n in range(1, 31):
        await talk.send(ask("episodes/step", n, episode=episode, step=n, tool="roll", key=f"k{n}"))
    assert {reply["id"] for reply in await talk.replies(30)} == set(range(1, 31))


async def test_too_many_bytes_in_flight_wait_their_turn_too(
    talk: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side, "MAX_IN_FLIGHT_BYTES", 2_000)
    episode = await talk.start()
    text = "x" * 1_500
    for n in range(1, 11):
        step = ask("episodes/step", n, episode=episode, step=n, tool="say", arguments={"text": text}, key=f"k{n}")
        await talk.send(step)
    assert {reply["id"] for reply in await talk.replies(10)} == set(range(1, 11))


async def test_one_slow_request_keeps_no_other_waiting(serve: Any, dial: Any, ask: Any) -> None:
    Waiting.gate = asyncio.Event()
    talk = await dial(await serve(Waiting))
    slow = await talk.start("waiting", key="slow")
    await talk.send(
        [
            ask("episodes/step", "slow", episode=slow, step=1, tool="wait", key="a"),
            ask("environments/list", "quick"),
        ]
    )
    assert (await talk.replies(1))[0]["id"] == "quick"
    Waiting.gate.set()
    assert (await talk.replies(1))[0]["id"] == "slow"


async def test_without_a_token_the_upgrade_is_unauthorized(serve: Any, dial: Any) -> None:
    token, record = new_token("trainer", ["tasks:read"])
    server = await serve(Playground, variables={"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
    for wrong in (None, token + "x"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await dial(server, token=wrong)
        assert refused.value.status == 401
        assert refused.value.headers is not None
        assert refused.value.headers["WWW-Authenticate"] == "Bearer"
    assert "result" in await (await dial(server, token=token)).ask("environments/list")
