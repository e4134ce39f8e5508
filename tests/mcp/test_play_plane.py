"""The agent endpoint: what an agent may do there, and what it can never learn."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ludus.client import connect
from ludus.protocol import METHODS
from ludus.protocol.episodes import GetEpisodeParams
from ludus.protocol.errors import EpisodeNotFound
from ludus.protocol.identifiers import STEP_META_KEY
from ludus.server import Environment, ServerLimits, Task, tool
from ludus.server.auth import CapabilitySigner, tokens
from ludus.server.auth.principal import Principal
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

MODERN, LEGACY = ERAS = ("2026-07-28", "2025-11-25")
era = pytest.mark.parametrize("era", ERAS)


class Slow(Environment[Task]):
    """Counts its calls, each of which waits until it is let go."""

    splits = {"train": [Task(id="only")]}
    seedable = False
    calls: list[str] = []
    started = asyncio.Event()
    release = asyncio.Event()

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def work(self) -> str:
        """Work."""
        self.calls.append(self.task.id)
        self.started.set()
        await self.release.wait()
        return f"done {len(self.calls)}"


@pytest.fixture
def slow() -> Any:
    """The environment `Slow`, fresh."""
    Slow.calls = []
    Slow.started, Slow.release = asyncio.Event(), asyncio.Event()
    return Slow


@pytest.fixture
async def played(serve: Any, start_episode: Any, vault: Any) -> Any:
    """A server with one episode of the vault: the server, the episode, its URL."""
    server = await serve(vault)
    episode = await start_episode(server, "vault", index=1)
    return server, episode, server.url + episode.play.path


async def steps_of(server: Any, episode: Any) -> Any:
    """How many steps the episode has had."""
    params = GetEpisodeParams(episode=episode.episode)
    return (await server.app.context.host.get_episode(params, Principal.open())).info.steps


@era
async def test_the_prompt_is_given_as_prompt_and_as_instructions(era: str, played: Any, post: Any) -> None:
    _, episode, url = played
    opening = "server/discover" if era == MODERN else "initialize"
    hello = (
        {}
        if era == MODERN
        else {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    )
    answer = (await post(url, era, opening, hello)).json()["result"]
    text = episode.prompt[0].content[0].text
    assert answer["instructions"] == text
    assert "extensions" not in answer["capabilities"]
    assert "experimental" not in answer["capabilities"]
    (prompt,) = (await post(url, era, "prompts/list")).json()["result"]["prompts"]
    (message,) = (await post(url, era, "prompts/get", {"name": prompt["name"]})).json()["result"]["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": text}}


@era
async def test_no_other_prompt_exists(era: str, played: Any, post: Any) -> None:
    answer = (await post(played[2], era, "prompts/get", {"name": "other"})).json()
    assert answer["error"]["code"] == -32602


@era
@pytest.mark.parametrize("method", sorted(METHODS))
async def test_the_extension_and_its_lifecycle_do_not_exist_here(era: str, method: str, played: Any, post: Any) -> None:
    _, episode, url = played
    response = await post(url, era, method, {"episode": episode.episode}, declare=era == MODERN)
    assert response.json()["error"]["code"] == -32601
    assert response.status_code == (404 if era == MODERN else 200)


@era
async def test_a_trainers_token_opens_nothing_here(era: str, played: Any, post: Any) -> None:
    response = await post(played[2], era, "dev.ludus/episodes/rewards", {"episode": played[1].episode}, token="ludus_x")
    assert response.json()["error"]["code"] == -32601


@pytest.mark.parametrize("http_method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_allowed(http_method: str, played: Any, http: httpx.AsyncClient) -> None:
    response = await http.request(http_method, played[2], headers={"Accept": "text/event-stream"})
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@era
@pytest.mark.parametrize("forgery", ["play_x", "x", "play_" + "A" * 90])
async def test_a_forged_capability_names_nothing(era: str, forgery: str, played: Any, post: Any) -> None:
    server = played[0]
    response = await post(f"{server.url}/play/{forgery}/mcp", era, "tools/list")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == 4011


@era
async def test_an_altered_capability_is_refused(era: str, played: Any, post: Any) -> None:
    _, _, url = played
    capability = url.split("/")[-2]
    altered = capability[:-1] + ("A" if capability[-1] != "A" else "E")
    assert (await post(url.replace(capability, altered), era, "tools/list")).status_code == 404


@era
async def test_a_capability_for_other_tools_is_refused(era: str, played: Any, post: Any) -> None:
    server, episode, _ = played
    capability, _ = server.app.context.signer.sign(episode.episode, ["a tool it does not have"])
    reply = await post(f"{server.url}/play/{capability}/mcp", era, "tools/list")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, 4011)


@era
async def test_an_expired_capability_is_refused(
    era: str, serve: Any, vault: Any, start_episode: Any, post: Any
) -> None:
    server = await serve(vault)
    signer = server.app.context.signer
    episode = await start_episode(server, "vault", index=1)
    expired, _ = CapabilitySigner(signer._key, 1e-9).sign(episode.episode, ["look"])
    response = await post(f"{server.url}/play/{expired}/mcp", era, "tools/list")
    assert response.status_code == 404
    assert "expired" in response.json()["error"]["message"]


KEY = {"LUDUS_CAPABILITY_KEY": "ab" * 32}
DIFFERENT_KEY = {"LUDUS_CAPABILITY_KEY": "cd" * 32}


@era
@pytest.mark.requirement("PLAY-14")
async def test_a_server_that_does_not_know_an_episode_says_so(
    era: str, serve: Any, vault: Any, start_episode: Any, post: Any
) -> None:
    first, second = await serve(vault, variables=KEY), await serve(vault, variables=KEY)
    episode = await start_episode(first, "vault", index=1)
    url = second.url + episode.play.path
    assert (await post(url, era, "tools/list")).json()["result"]["tools"] == []
    called = await post(url, era, "tools/call", {"name": "look", "arguments": {}})
    assert (called.status_code, called.json()["result"]["isError"]) == (200, True)
    prompt = await post(url, era, "prompts/get", {"name": "task"})
    hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    opening = ("server/discover", {}) if era == MODERN else ("initialize", hello)
    told = (await post(url, era, *opening)).json()["result"]["instructions"]
    for said in (called.json()["result"]["content"][0]["text"], prompt.json()["error"]["message"], told):
        assert "does not know this episode" in said
        assert "behind a load balancer, requests must reach the server that started the episode" in said.lower()
        assert "ended" not in said
    assert "does not know" not in (await post(first.url + episode.play.path, era, "tools/list")).text


@era
async def test_a_server_with_another_key_names_the_load_balancer_too(
    era: str, serve: Any, vault: Any, start_episode: Any, post: Any
) -> None:
    first, second = await serve(vault, variables=KEY), await serve(vault, variables=DIFFERENT_KEY)
    episode = await start_episode(first, "vault", index=1)
    refused = await post(second.url + episode.play.path, era, "tools/list")
    assert refused.status_code == 404
    assert "behind a load balancer" in refused.json()["error"]["message"]


@era
async def test_an_episode_that_the_server_has_discarded_has_ended(
    era: str, serve: Any, vault: Any, start_episode: Any, post: Any
) -> None:
    server = await serve(vault, limits=ServerLimits(result_ttl_seconds=0, grace_seconds=0.3))
    episode = await start_episode(server, "vault", index=1)
    url = server.url + episode.play.path
    host = server.app.context.host
    await host.discard(episode.episode)
    host.store.evict(float("inf"))
    assert (await post(url, era, "tools/list")).json()["result"]["tools"] == []
    called = await post(url, era, "tools/call", {"name": "look", "arguments": {}})
    assert called.json()["result"]["isError"] is True
    assert called.json()["result"]["content"][0]["text"].startswith("This episode has ended")


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_trainer_that_asks_the_wrong_server_learns_it(wire: Any, serve: Any, vault: Any) -> None:
    first, second = await serve(vault), await serve(vault)
    async with connect(first.url, wire=wire) as here, connect(second.url, wire=wire) as there:
        episode = await here.environment("vault").start()
        elsewhere = await there.environment("vault").start()
        object.__setattr__(elsewhere, "id", episode.id)
        with pytest.raises(EpisodeNotFound, match="behind a load balancer, requests must reach the server"):
            await elsewhere.call("look")


@era
@pytest.mark.requirement("CRED-15")
@pytest.mark.parametrize("how", ["revoked", "narrowed", "expired"])
async def test_a_play_address_ends_with_the_token_that_made_it(
    how: str, era: str, serve: Any, vault: Any, post: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "RELOAD_SECONDS", 0.0)
    secrets, records = {}, {}
    for name in ("leaver", "stayer"):
        secrets[name], records[name] = new_token(name, ("tasks:read", "episodes:run"))
    file = tmp_path / "tokens.json"
    write_token_file(file, TokenFile(tokens=tuple(records.values())))
    server = await serve(vault, token_file=file)
    urls = {}
    for name, token in secrets.items():
        async with connect(server.url, token=token) as client:
            urls[name] = (await client.environment("vault").start()).play_url
            assert (await post(urls[name], era, "tools/list")).status_code == 200

    leaver = records.pop("leaver")
    if how == "narrowed":
        records["leaver"] = leaver.model_copy(update={"scopes": ("tasks:read",)})
    if how == "expired":
        records["leaver"] = leaver.model_copy(update={"expires": datetime.now(UTC) - timedelta(seconds=1)})
    # The new file must not look like the old one: the store compares time, size and inode.
    write_token_file(file, TokenFile(tokens=tuple(records.values())))
    for method, params in (("tools/list", {}), ("tools/call", {"name": "look", "arguments": {}})):
        refused = await post(urls["leaver"], era, method, params)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, 4011)
        assert "revoked or has expired" in refused.json()["error"]["message"]
        assert (await post(urls["stayer"], era, method, params)).status_code == 200


async def test_a_new_token_of_the_same_name_does_not_revive_what_the_old_one_started(
    serve: Any, vault: Any, post: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "RELOAD_SECONDS", 0.0)
    file = tmp_path / "tokens.json"
    token, record = new_token("trainer", ("episodes:run", "tasks:read"))
    write_token_file(file, TokenFile(tokens=(record,)))
    server = await serve(vault, token_file=file)
    async with connect(server.url, token=token) as client:
        url = (await client.environment("vault").start()).play_url
    write_token_file(file, TokenFile(tokens=(new_token("trainer", ("episodes:run", "tasks:read"))[1],)))
    assert (await post(url, MODERN, "tools/list")).status_code == 404


async def test_a_play_address_is_good_no_longer_than_its_token(serve: Any, vault: Any) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    token, record = new_token("trainer", ("episodes:run", "tasks:read"), until)
    server = await serve(vault, variables={"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
    async with connect(server.url, token=token) as client:
        episode = await client.environment("vault").start()
    assert episode._play is not None
    assert episode._play.expires_at == until.timestamp()


@era
async def test_an_ended_episode_lists_its_tools_and_refuses_calls(era: str, played: Any, post: Any) -> None:
    _, _, url = played
    before = (await post(url, era, "tools/list")).json()["result"]["tools"]
    await post(url, era, "tools/call", {"name": "open", "arguments": {"combination": "x"}})
    assert (await post(url, era, "tools/list")).json()["result"]["tools"] == before
    late = (await post(url, era, "tools/call", {"name": "look", "arguments": {}})).json()["result"]
    assert late["isError"] is True
    assert late["content"][0]["text"] == "This episode is over (completed). No tool was called."


@era
async def test_an_unknown_tool_is_mcps_invalid_params(era: str, played: Any, post: Any) -> None:
    answer = (await post(played[2], era, "tools/call", {"name": "fly", "arguments": {}})).json()
    assert answer["error"] == {"code": -32602, "message": "Unknown tool: fly"}


@era
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe{}", b"[]", b"7", b'{"jsonrpc": "2.0", "method": 5, "id": 1}'])
async def test_a_malformed_body_is_a_clear_error_and_the_episode_goes_on(
    era: str, body: bytes, played: Any, http: httpx.AsyncClient, post: Any
) -> None:
    _, _, url = played
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    response = await http.post(url, content=body, headers={**headers, "MCP-Protocol-Version": era})
    assert response.status_code == 400
    assert response.json()["error"]["code"] in (-32700, -32600, -32602)
    assert (await post(url, era, "tools/call", {"name": "look", "arguments": {}})).json()["result"]["isError"] is False


class Odd(Environment[Task]):
    """Shows what is hard to write down."""

    splits = {"train": [Task(id="only")]}
    blocking = False

    def prompt(self) -> str:
        return "half a pair: \ud800"

    @tool
    def show(self, text: str = "") -> str:
        """Show it."""
        return text or "half a pair: \ud800, a null: \0, a separator: \u2028"


@era
async def test_text_that_utf8_cannot_carry_is_shown_without_it(
    era: str, serve: Any, start_episode: Any, post: Any
) -> None:
    server = await serve(Odd)
    episode = await start_episode(server, "odd", index=0)
    url = server.url + episode.play.path
    shown = (await post(url, era, "tools/call", {"name": "show"})).json()["result"]
    assert shown["content"][0]["text"] == "half a pair: \ufffd, a null: \0, a separator: \u2028"
    prompt = (await post(url, era, "prompts/get", {"name": "task"})).json()["result"]
    assert prompt["messages"][0]["content"]["text"] == "half a pair: \ufffd"


# ── exactly once ───────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_marked_call_that_is_repeated_is_one_step(era: str, played: Any, post: Any) -> None:
    server, episode, url = played
    mark = {STEP_META_KEY: {"step": 1, "key": "k1"}}
    call = ("tools/call", {"name": "dial", "arguments": {"number": 3}})
    first = (await post(url, era, *call, meta=mark)).json()["result"]
    again = (await post(url, era, *call, meta=mark)).json()["result"]
    assert first == again
    assert await steps_of(server, episode) == 1


@era
async def test_a_mark_that_skips_ahead_or_changes_its_call_is_a_conflict(era: str, played: Any, post: Any) -> None:
    _, _, url = played
    call = {"name": "dial", "arguments": {"number": 3}}
    gap = (await post(url, era, "tools/call", call, meta={STEP_META_KEY: {"step": 4, "key": "k4"}})).json()
    assert gap["error"]["code"] == 4091
    assert gap["error"]["data"]["expected"] == 1
    await post(url, era, "tools/call", call, meta={STEP_META_KEY: {"step": 1, "key": "k1"}})
    other = {"name": "dial", "arguments": {"number": 4}}
    changed = (await post(url, era, "tools/call", other, meta={STEP_META_KEY: {"step": 1, "key": "k1"}})).json()
    assert changed["error"]["code"] == 4092


@era
@pytest.mark.parametrize("mark", ["k", {"key": ""}, {"step": 1}, {"step": "one", "key": "k"}, {"key": "k", "more": 1}])
async def test_a_mark_of_another_shape_is_refused_and_nothing_runs(era: str, mark: Any, played: Any, post: Any) -> None:
    server, episode, url = played
    answer = (await post(url, era, "tools/call", {"name": "look"}, meta={STEP_META_KEY: mark})).json()
    assert answer["error"]["code"] == -32602
    assert await steps_of(server, episode) == 0


@era
async def test_a_step_ends_although_the_agent_disconnected(
    era: str, serve: Any, slow: Any, start_episode: Any, http: httpx.AsyncClient, post: Any
) -> None:
    server = await serve(slow)
    episode = await start_episode(server, "slow", index=0)
    url = server.url + episode.play.path
    mark = {STEP_META_KEY: {"step": 1, "key": "k1"}}
    lost = asyncio.create_task(post(url, era, "tools/call", {"name": "work"}, meta=mark))
    await asyncio.wait_for(slow.started.wait(), 10)
    lost.cancel()
    await asyncio.wait([lost])
    slow.release.set()
    answer = (await post(url, era, "tools/call", {"name": "work"}, meta=mark)).json()["result"]
    assert answer["content"][0]["text"] == "done 1"
    assert slow.calls == ["only"]


@era
async def test_a_cancelled_call_is_still_one_step(
    era: str, serve: Any, slow: Any, start_episode: Any, http: httpx.AsyncClient, post: Any
) -> None:
    server = await serve(slow)
    episode = await start_episode(server, "slow", index=0)
    url = server.url + episode.play.path
    running = asyncio.create_task(post(url, era, "tools/call", {"name": "work"}))
    await asyncio.wait_for(slow.started.wait(), 10)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    assert (await http.post(url, json=cancelled, headers=headers)).status_code == 202
    slow.release.set()
    assert (await running).json()["result"]["content"][0]["text"] == "done 1"


@era
async def test_episodes_on_one_server_do_not_meet(
    era: str, serve: Any, vault: Any, start_episode: Any, post: Any
) -> None:
    server = await serve(vault)
    one, two = [await start_episode(server, "vault", index=index) for index in (1, 2)]
    await post(server.url + one.play.path, era, "tools/call", {"name": "open", "arguments": {"combination": "x"}})
    other = (await post(server.url + two.play.path, era, "tools/call", {"name": "look"})).json()["result"]
    assert other["isError"] is False
    text = (await post(server.url + two.play.path, era, "prompts/get", {"name": "task"})).json()
    assert "clue 2" in json.dumps(text)
