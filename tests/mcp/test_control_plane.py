"""The control endpoint of MCP: the extension in both eras, tokens, and the plain tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ludus.protocol import EXTENSION_ID, METHODS
from ludus.protocol.identifiers import EXTENSION_VERSION
from ludus.protocol.modules import Module
from ludus.server import EpisodeHost
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.serving.app import create_app
from ludus.server.serving.serve import LudusServer, build
from ludus.server.serving.settings import ServerSettings

MODERN, LEGACY = ERAS = ("2026-07-28", "2025-11-25")
era = pytest.mark.parametrize("era", ERAS)
EVERYWHERE: dict[str, Any] = {
    name: {}
    for name in (
        "initialize",
        "startTool",
        "limits",
        "sampling",
        "fork",
        "groupScoring",
        "turns",
        "noise",
        "secrets",
        "seats",
        "worlds",
    )
}
"""The modules without settings that our server always offers."""
CHANNEL = {"channel": {"path": "/channel", "subprotocol": "ludus.channel.v0.2"}}
PLAY = {"play": {"path": "/play/{capability}/mcp"}}
MODULES = {**EVERYWHERE, **CHANNEL, **PLAY, "ors": {}}
SETTINGS = {"version": "0.2", "modules": MODULES}


@pytest.fixture
async def url(serve: Any, vault: Any) -> Any:
    """The control plane of an open server with the vault."""
    return (await serve(vault)).url + "/mcp"


@pytest.fixture
async def guarded(serve: Any, vault: Any, tmp_path: Path) -> Any:
    """A server with tokens: its URL, and the tokens by name."""
    secrets, records = {}, []
    scopes = {
        "trainer": ("tasks:read", "episodes:run", "rewards:read"),
        "runner": ("tasks:read", "episodes:run"),
        "reader": ("tasks:read",),
        "other": ("tasks:read", "episodes:run", "rewards:read"),
    }
    for name, allowed in scopes.items():
        secrets[name], record = new_token(name, allowed)
        records.append(record)
    file = tmp_path / "tokens.json"
    write_token_file(file, TokenFile(tokens=tuple(records)))
    return (await serve(vault, token_file=file)).url + "/mcp", secrets


async def ask(post: Any, url: str, era: str, method: str, params: Any = None, **options: Any) -> Any:
    """An extension method's answer, the request declaring the extension where that can be done."""
    return (await post(url, era, "dev.ludus/" + method, params, declare=era == MODERN, **options)).json()


START = {"environment": "vault", "split": "train", "index": 3, "key": "start"}


async def test_an_application_serves_although_many_others_were_built_before_it_started(vault: Any, post: Any) -> None:
    settings = ServerSettings(port=0)
    first, *_ = [build([vault], settings, {}) for _ in range(17)]
    server = LudusServer(first, settings)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(30):
            await server.running.wait()
        reply = await post(server.url + "/mcp", MODERN, "server/discover")
        assert EXTENSION_ID in reply.json()["result"]["capabilities"]["extensions"]
    finally:
        server.stop()
        await task


# ── the extension ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_discovery_announces_the_extension(url: str, post: Any) -> None:
    capabilities = (await post(url, MODERN, "server/discover")).json()["result"]["capabilities"]
    assert capabilities["extensions"] == {EXTENSION_ID: SETTINGS}


async def announced(post: Any, url: str, token: str | None = None) -> Any:
    """The modules that a server announces."""
    found = (await post(url, MODERN, "server/discover", token=token)).json()["result"]["capabilities"]["extensions"]
    return found[EXTENSION_ID]["modules"]


@pytest.mark.requirement("NEG-3")
async def test_a_server_with_tokens_offers_tokens(guarded: Any, post: Any) -> None:
    url, tokens = guarded
    assert await announced(post, url, tokens["reader"]) == {**MODULES, "tokens": {}}


@pytest.mark.requirement("NEG-3")
@pytest.mark.parametrize(
    ("wires", "more"),
    [((), {}), ((Module.CHANNEL,), CHANNEL), ((Module.ORS,), {"ors": {}})],
    ids=["mcp alone", "channel", "ors"],
)
async def test_a_server_offers_the_transports_that_it_serves(
    wires: tuple[Module, ...], more: dict[str, Any], vault: Any, post: Any, http: httpx.AsyncClient
) -> None:
    settings = ServerSettings(port=0)
    host = EpisodeHost([vault])  # it has no signer, so its episodes have no agent endpoint
    server = LudusServer(create_app(host, settings, wires=frozenset(wires)), settings)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(30):
            await server.running.wait()
        assert await announced(post, server.url + "/mcp") == {**EVERYWHERE, **more}
        started = (await ask(post, server.url + "/mcp", MODERN, "episodes/start", START))["result"]
        assert started["episodes"][0]["play"] is None
        assert (await http.get(server.url + "/list_environments")).status_code == (200 if "ors" in more else 404)
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "bHVkdXMtY29uZm9ybS0wMQ==", "Sec-WebSocket-Protocol": "ludus.channel.v0.1",
        }  # fmt: skip
        refused = await http.get(server.url + "/channel", headers=upgrade)
        assert refused.status_code == (400 if "channel" in more else 404)
    finally:
        server.stop()
        await task


async def test_the_handshake_announces_the_extension_as_experimental(url: str, post: Any) -> None:
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    capabilities = (await post(url, LEGACY, "initialize", hello)).json()["result"]["capabilities"]
    assert capabilities["experimental"] == {EXTENSION_ID: SETTINGS}


@era
async def test_an_episode_is_started_stepped_graded_and_closed(era: str, url: str, post: Any) -> None:
    started = (await ask(post, url, era, "episodes/start", START))["result"]
    (episode,) = started["episodes"]
    name = episode["episode"]
    step = {"episode": name, "step": 1, "tool": "dial", "arguments": {"number": 1}, "key": "k1"}
    stepped = (await ask(post, url, era, "episodes/step", step))["result"]
    assert stepped["content"] == [{"type": "text", "text": "click "}]
    assert stepped["reward"]["value"] == -0.73128
    graded = (await ask(post, url, era, "episodes/grade", {"episode": name, "answer": "1", "key": "g"}))["result"]
    assert graded["info"]["endReason"] == "submitted"
    rewards = (await ask(post, url, era, "episodes/rewards", {"episode": name}))["result"]
    assert [entry["source"] for entry in rewards["entries"]] == ["step", "grade"]
    closed = (await ask(post, url, era, "episodes/close", {"episode": name}))["result"]
    assert closed["info"]["status"] == "completed"


@era
async def test_nulls_of_a_result_arrive_as_nulls(era: str, url: str, post: Any) -> None:
    tasks = (await ask(post, url, era, "tasks/list", {"environment": "vault", "split": "train"}))["result"]
    assert tasks["nextCursor"] is None


@era
async def test_a_result_is_that_of_the_method_and_mcps_own_fields(era: str, url: str, post: Any) -> None:
    result = (await ask(post, url, era, "environments/list"))["result"]
    own = {"resultType", "_meta"} if era == MODERN else set()
    assert set(result) == {"environments"} | own


@era
@pytest.mark.parametrize("method", sorted(METHODS))
async def test_wrong_params_are_reported_in_words(era: str, method: str, url: str, post: Any) -> None:
    answer = (await post(url, era, method, {"bogus": 1}, declare=era == MODERN)).json()
    assert answer["error"]["code"] == -32602
    assert "bogus" in answer["error"]["message"]


@era
async def test_an_error_has_its_own_code_and_data(era: str, url: str, post: Any) -> None:
    answer = await ask(post, url, era, "episodes/get", {"episode": "e_none"})
    assert answer["error"]["code"] == 4044
    assert answer["error"]["data"] == {"episode": "e_none"}


@era
async def test_an_unknown_method_is_not_found(era: str, url: str, post: Any) -> None:
    assert (await ask(post, url, era, "episodes/reset"))["error"]["code"] == -32601


async def test_a_modern_request_must_declare_the_extension(url: str, post: Any) -> None:
    response = await post(url, MODERN, "dev.ludus/environments/list")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION_ID: {"version": EXTENSION_VERSION}}}}


@era
async def test_a_repeated_start_is_one_start_in_either_era(era: str, url: str, post: Any) -> None:
    first = (await ask(post, url, era, "episodes/start", START))["result"]
    for again in ERAS:
        repeated = (await ask(post, url, again, "episodes/start", START))["result"]
        assert repeated["episodes"][0]["episode"] == first["episodes"][0]["episode"]


@pytest.mark.parametrize("http_method", ["GET", "DELETE"])
async def test_only_post_is_allowed(http_method: str, url: str, http: httpx.AsyncClient) -> None:
    response = await http.request(http_method, url, headers={"Accept": "text/event-stream"})
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


# ── tokens ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
@pytest.mark.parametrize("token", ["", "ludus_wrong"])
async def test_without_a_good_token_nothing_is_answered(era: str, token: str, guarded: Any, post: Any) -> None:
    url, _ = guarded
    for method in ("tools/list", "dev.ludus/environments/list", "server/discover"):
        response = await post(url, era, method, token=token)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer ")
        assert response.json()["error"]["code"] == 4010


@era
async def test_a_token_opens_what_its_scopes_allow(era: str, guarded: Any, post: Any) -> None:
    url, tokens = guarded
    assert "result" in await ask(post, url, era, "environments/list", token=tokens["reader"])
    refused = await ask(post, url, era, "episodes/start", START, token=tokens["reader"])
    assert refused["error"]["code"] == 4030
    began = await ask(post, url, era, "episodes/start", START, token=tokens["runner"])
    name = began["result"]["episodes"][0]["episode"]
    step = {"episode": name, "step": 1, "tool": "look", "key": "k1"}
    stepped = (await ask(post, url, era, "episodes/step", step, token=tokens["runner"]))["result"]
    assert stepped["reward"] is None
    assert stepped["metadata"] == {}
    test_split = {**START, "split": "test", "index": 0, "key": "t"}
    closed = await ask(post, url, era, "episodes/start", test_split, token=tokens["trainer"])
    assert closed["error"]["code"] == 4030


@era
async def test_episodes_of_another_token_do_not_exist(era: str, guarded: Any, post: Any) -> None:
    url, tokens = guarded
    began = await ask(post, url, era, "episodes/start", START, token=tokens["trainer"])
    name = began["result"]["episodes"][0]["episode"]
    assert (await ask(post, url, era, "episodes/get", {"episode": name}, token=tokens["other"]))["error"][
        "code"
    ] == 4044
    call = {"name": "call_tool", "arguments": {"episode": name, "tool": "look"}}
    result = (await post(url, era, "tools/call", call, token=tokens["other"])).json()["result"]
    assert result["isError"] is True
    assert "vault" not in json.dumps(result)


# ── the plain tools ────────────────────────────────────────────────────────────────────────────────────────────────


async def tool(post: Any, url: str, era: str, name: str, arguments: Any, **options: Any) -> Any:
    """What one of the plain tools answers."""
    return (await post(url, era, "tools/call", {"name": name, "arguments": arguments}, **options)).json()["result"]


@era
async def test_the_tools_are_the_same_for_every_caller(era: str, url: str, post: Any) -> None:
    first = (await post(url, era, "tools/list")).json()["result"]["tools"]
    await tool(post, url, era, "start_episode", {"environment": "vault"})
    assert (await post(url, era, "tools/list", declare=era == MODERN)).json()["result"]["tools"] == first
    assert [each["name"] for each in first] == ["list_environments", "start_episode", "call_tool"]


@era
async def test_environments_are_listed_with_splits_and_tools(era: str, url: str, post: Any) -> None:
    text = (await tool(post, url, era, "list_environments", {}))["content"][0]["text"]
    assert text.startswith("vault 0.1.0\nOpen the vault.")
    assert "train (50 tasks)" in text


@era
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "environment"),
        ({"environment": "vault", "color": 1}, "color"),
        ({"environment": "vaul"}, "vaul"),
        ({"environment": 7}, "environment"),
        ({"environment": "vault", "split": "nope"}, "nope"),
        ({"environment": "vault", "task": "nope"}, "nope"),
        ({"environment": "vault", "index": -1}, "index"),
        ({"environment": "vault", "index": 1, "task": "x"}, "not by both"),
        ({"environment": "vault", "seed": "x"}, "seed"),
        ({"environment": "vault", "split": ["x"]}, "split"),
    ],
)
async def test_a_start_that_cannot_be_is_a_tool_error_in_words(
    era: str, arguments: Any, said: str, url: str, post: Any
) -> None:
    result = await tool(post, url, era, "start_episode", arguments)
    assert result["isError"] is True
    assert said in result["content"][0]["text"]


@era
@pytest.mark.parametrize(
    "arguments", [{}, {"episode": 7, "tool": "x"}, {"episode": "e", "tool": "x", "arguments": []}, {"tool": "x"}]
)
async def test_a_call_that_cannot_be_is_a_tool_error(era: str, arguments: Any, url: str, post: Any) -> None:
    assert (await tool(post, url, era, "call_tool", arguments))["isError"] is True


async def begun(post: Any, url: str, era: str, **options: Any) -> Any:
    """The id of an episode begun with the plain tool."""
    result = await tool(post, url, era, "start_episode", {"environment": "vault", "index": 1}, **options)
    return result["content"][0]["text"].split()[1]


@era
async def test_a_stock_host_never_sees_a_reward(era: str, url: str, post: Any) -> None:
    name = await begun(post, url, era)
    for call in ({"tool": "look"}, {"tool": "open", "arguments": {"combination": "x"}}):
        result = await tool(post, url, era, "call_tool", {"episode": name, **call})
        assert "0.73" not in json.dumps(result)
        assert "PRIVATE" not in json.dumps(result)
        assert EXTENSION_ID not in result.get("_meta", {})


async def test_who_declares_the_extension_gets_rewards_in_meta(url: str, post: Any) -> None:
    name = await begun(post, url, MODERN)
    result = await tool(post, url, MODERN, "call_tool", {"episode": name, "tool": "look"}, declare=True)
    facts = result["_meta"][EXTENSION_ID]
    assert facts["reward"]["value"] == 0.73128
    assert facts["step"] == 1
    assert "0.73" not in json.dumps(result["content"])


async def test_declaring_the_extension_is_not_enough_without_the_scope(guarded: Any, post: Any) -> None:
    url, tokens = guarded
    name = await begun(post, url, MODERN, token=tokens["runner"])
    call = {"episode": name, "tool": "look"}
    result = await tool(post, url, MODERN, "call_tool", call, declare=True, token=tokens["runner"])
    assert EXTENSION_ID not in result["_meta"]
    assert "0.73" not in json.dumps(result)


@era
async def test_a_failing_environment_shows_its_incident_only(era: str, url: str, post: Any) -> None:
    name = await begun(post, url, era)
    result = await tool(post, url, era, "call_tool", {"episode": name, "tool": "kick"})
    assert result["isError"] is True
    assert "Incident" in result["content"][0]["text"]
    assert "PRIVATE" not in json.dumps(result)
