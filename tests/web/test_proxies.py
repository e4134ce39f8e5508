"""The addresses that a server shows, and the senders that it trusts to report them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import pytest
from pydantic import ValidationError

from ludus.protocol.episodes import StartParams
from ludus.server.auth.principal import Principal
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.serving.serve import ServeError, build
from ludus.server.serving.settings import ServerSettings
from ludus.server.web.proxies import ProxyRules, forwarded, parse_network, parse_public_url

Start = Callable[..., Awaitable[Any]]
TOKEN, RECORD = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
TOKENS = {"LUDUS_TOKENS": TokenFile(tokens=(RECORD,)).model_dump_json()}
FROM_HERE = ("127.0.0.1",)
FROM_ELSEWHERE = ("10.9.8.7",)
TOLD = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "lab.example",
    "X-Forwarded-Prefix": "/rl",
}
DISCOVER = "io.modelcontextprotocol/"


async def post(url: str, method: str, params: dict[str, Any], headers: dict[str, str]) -> Any:
    """The result of a request to the MCP control plane, in the revision that knows extensions."""
    declared = {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}}
    meta = {DISCOVER + "protocolVersion": "2026-07-28", DISCOVER + "clientCapabilities": declared}
    own = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Authorization": f"Bearer {TOKEN}"}
    if method == "tools/call":
        own["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    own["Accept"] = "application/json, text/event-stream"
    async with httpx.AsyncClient() as client:
        answer = await client.post(url + "/mcp", json=body, headers={**own, **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


async def play_urls(url: str, headers: dict[str, str]) -> tuple[str, str | None]:
    """What `start_episode` and `episodes/start` say about where an episode is played, without its capability."""
    begun = await post(url, "tools/call", {"name": "start_episode", "arguments": {"environment": "yard"}}, headers)
    text = "\n".join(block["text"] for block in begun["content"])
    shown = re.search(r"https?://\S+", text)
    assert shown is not None, text
    start = {"environment": "yard", "split": "train", "key": "k"}
    play = (await post(url, "dev.ludus/episodes/start", start, headers))["episodes"][0]["play"]
    assert play["path"].startswith("/play/")
    full = play["url"]
    return shown[0].partition("/play/")[0], full.removesuffix(play["path"]) if full else None


async def test_without_a_proxy_the_address_is_the_one_that_was_asked(start: Start) -> None:
    server = await start(TOKENS)
    assert await play_urls(server.url, {}) == (server.url, None)


async def test_a_public_url_is_the_only_address_shown(start: Start) -> None:
    server = await start(TOKENS, public_url="https://lab.example/rl/", allow_hosts=("evil.example",))
    public = "https://lab.example/rl"
    for headers in ({}, {"Host": "evil.example"}, {"Host": "lab.example"}, TOLD, {**TOLD, "Host": "evil.example"}):
        assert await play_urls(server.url, headers) == (public, public), headers
        settings = (await post(server.url, "server/discover", {}, headers))["capabilities"]["extensions"]
        modules = settings["dev.ludus/episodes"]["modules"]
        assert modules["channel"] == {"path": "/rl/channel", "subprotocol": "ludus.channel.v0.2"}
        assert modules["play"] == {"path": "/rl/play/{capability}/mcp"}


async def test_a_public_url_stands_against_a_trusted_proxy_that_forwards_a_strangers_host(start: Start) -> None:
    server = await start(TOKENS, public_url="https://lab.example", trusted_proxies=FROM_HERE, allow_hosts=("*",))
    told = {**TOLD, "X-Forwarded-Host": "evil.example"}
    assert await play_urls(server.url, told) == ("https://lab.example",) * 2


async def test_forwarded_headers_of_a_listed_proxy_count(start: Start) -> None:
    server = await start(TOKENS, trusted_proxies=FROM_HERE, allow_hosts=("lab.example",))
    assert await play_urls(server.url, TOLD) == ("https://lab.example/rl",) * 2
    no_prefix = {name: value for name, value in TOLD.items() if name != "X-Forwarded-Prefix"}
    assert await play_urls(server.url, {**no_prefix, "X-Forwarded-Port": "8443"}) == ("https://lab.example:8443",) * 2


async def test_forwarded_headers_of_everybody_else_do_not(start: Start) -> None:
    for trusted in ((), FROM_ELSEWHERE):
        server = await start(TOKENS, trusted_proxies=trusted, allow_hosts=("lab.example",))
        for headers in (TOLD, {"Forwarded": "for=203.0.113.9;proto=https;host=lab.example"}):
            assert await play_urls(server.url, headers) == (server.url, None)


async def test_only_the_family_of_headers_that_is_named_counts(start: Start) -> None:
    rfc7239 = {"Forwarded": 'for="[2001:db8::7]:4711";proto=https;host="lab.example:8443"'}
    server = await start(TOKENS, trusted_proxies=FROM_HERE, allow_hosts=("lab.example",), proxy_headers="forwarded")
    assert await play_urls(server.url, rfc7239) == ("https://lab.example:8443",) * 2
    assert await play_urls(server.url, TOLD) == (server.url, None)
    server = await start(TOKENS, trusted_proxies=FROM_HERE, allow_hosts=("lab.example",))
    assert await play_urls(server.url, rfc7239) == (server.url, None)


async def test_a_forwarded_host_must_be_one_of_the_servers_names(start: Start) -> None:
    server = await start(TOKENS, trusted_proxies=FROM_HERE)
    async with httpx.AsyncClient(base_url=server.url) as client:
        refused = await client.get("/health", headers={"X-Forwarded-Host": "evil.example"})
        assert refused.status_code == 421
        assert "--allow-host" in refused.text
        assert (await client.get("/health", headers={"Host": "evil.example"})).status_code == 421


@pytest.mark.parametrize("prefixed", [True, False], ids=["the proxy keeps the prefix", "the proxy removes the prefix"])
async def test_every_wire_answers_under_a_root_path(start: Start, prefixed: bool) -> None:
    server = await start(TOKENS, root_path="/rl")
    base = server.url + ("/rl" if prefixed else "")
    shown, _ = await play_urls(base, {})
    assert shown == server.url + "/rl"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(base + "/yard/tools") as tools:
            assert tools.status == 200
        async with session.get(base + "/openapi.json") as document:
            assert (await document.json())["servers"] == [{"url": "/rl"}]
        async with session.get(base + "/docs") as page:
            assert "'/rl/openapi.json'" in await page.text()
        async with session.ws_connect(base + "/channel", protocols=("ludus.channel.v0.2",)) as channel:
            start_params = {"environment": "yard", "split": "train", "key": "c"}
            await channel.send_json(
                {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/start", "params": start_params}
            )
            path = (await channel.receive_json())["result"]["episodes"][0]["play"]["path"]
        async with session.post(base + path, json={}) as played:
            assert played.status != 404
        async with session.get(server.url + "/rlmcp") as other:
            assert other.status == 404


async def test_the_channel_shows_the_public_url_too(start: Start) -> None:
    from ludus.client import connect

    server = await start(TOKENS, public_url="https://lab.example/rl")
    async with connect(server.url, token=TOKEN) as client:
        group = await client.environment("yard").start_group(count=2)
        for episode in group:
            assert episode.play_url is not None
            assert episode.play_url.startswith("https://lab.example/rl/play/play_")
            assert episode.play_url not in repr(episode)


def hop(headers: dict[str, str], *trusted: str, family: Any = "x-forwarded") -> Any:
    rules = ProxyRules(trusted=tuple(map(parse_network, trusted)), headers=family)
    return forwarded([(name.lower().encode(), value.encode()) for name, value in headers.items()], rules)


def test_a_strangers_entries_before_the_proxys_own_are_left_out() -> None:
    spoofed = {"X-Forwarded-For": "10.0.0.1, 198.51.100.7", "X-Forwarded-Host": "evil.example, lab.example"}
    assert hop(spoofed, "10.0.0.0/8")[:3] == ("198.51.100.7", "", "lab.example")
    rfc7239 = {"Forwarded": "for=10.0.0.1;host=evil.example;proto=http, for=198.51.100.7;host=lab.example;proto=https"}
    assert hop(rfc7239, "10.0.0.0/8", family="forwarded")[:3] == ("198.51.100.7", "https", "lab.example")


def test_a_chain_of_listed_proxies_is_followed_to_its_beginning() -> None:
    chain = {"X-Forwarded-For": "6.6.6.6, 198.51.100.7, 10.0.0.2", "X-Forwarded-Proto": "ftp, https, http"}
    assert hop(chain, "10.0.0.0/8")[:2] == ("198.51.100.7", "https")
    rfc7239 = {"Forwarded": "for=6.6.6.6;proto=http, for=198.51.100.7;proto=https;host=a.b, for=10.0.0.2;proto=http"}
    assert hop(rfc7239, "10.0.0.0/8", family="forwarded")[:3] == ("198.51.100.7", "https", "a.b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-Host", "lab.example/evil"),
        ("X-Forwarded-Host", "user@lab.example"),
        ("X-Forwarded-Host", 'a"b'),
        ("X-Forwarded-Proto", "javascript"),
        ("X-Forwarded-Prefix", "//evil.example"),
        ("X-Forwarded-Prefix", "/a/../b"),
        ("X-Forwarded-Prefix", "/a?b"),
        ("X-Forwarded-Prefix", "/a b"),
        ("X-Forwarded-For", "unknown"),
        ("X-Forwarded-Host", "a" * 5000),
        ("Forwarded", "host=a,b;;;=;proto"),
        ("Forwarded", 'host="' + "a" * 3000),
    ],
)
def test_what_is_malformed_is_left_out(name: str, value: str) -> None:
    family = "forwarded" if name == "Forwarded" else "x-forwarded"
    found = hop({name: value}, "10.0.0.0/8", family=family)
    assert found is None or not any(found), found


def test_an_address_may_be_written_in_many_ways() -> None:
    rules = ProxyRules(trusted=(parse_network("10.0.0.0/8"), parse_network("2001:db8::/32")))
    assert [rules.trusts(one) for one in ("10.1.2.3", "::ffff:10.1.2.3", "2001:DB8::1", "11.0.0.1", "", "x")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    for text, client in (
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("2001:DB8::7", "2001:db8::7"),
    ):
        assert hop({"X-Forwarded-For": text}, "10.0.0.1").client == client


@pytest.mark.parametrize(
    "text",
    ["lab.example", "ftp://lab.example", "https://", "https://u:p@lab.example", "https://lab.example?x=1",
     "https://a/b c", "https://a:99999", "https://a/../b", "https://a#b", ""],
)  # fmt: skip
def test_a_public_url_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"https://rl\.example\.org|write it like /rl"):
        parse_public_url(text)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="leave one out"):
        ServerSettings(public_url="https://lab.example/a", root_path="/b")
    with pytest.raises(ValidationError, match="not an IP address"):
        ServerSettings(trusted_proxies=("proxy.local",))
    assert ServerSettings(public_url="https://lab.example/a", root_path="/a").proxies.root_path == "/a"


@pytest.mark.parametrize("first", ["mcp", "play", "channel", "yard"])
def test_a_root_path_that_is_also_a_path_of_the_server_is_refused(first: str, yard: Any) -> None:
    with pytest.raises(ServeError, match=f"/{first} is also a path of"):
        build([yard], ServerSettings(root_path=f"/{first}/x"), {})


@pytest.mark.requirement("CRED-7")
def test_publishing_a_server_through_a_proxy_needs_tokens(yard: Any) -> None:
    for settings in (
        ServerSettings(public_url="https://lab.example"),
        ServerSettings(trusted_proxies=FROM_HERE),
    ):
        with pytest.raises(ServeError, match="others can reach") as refused:
            build([yard], settings, {})
        assert "ludus token create" in str(refused.value)
        build([yard], settings, TOKENS)
    build([yard], ServerSettings(public_url="http://localhost:9000", trusted_proxies=FROM_HERE), {})


async def test_the_access_log_names_the_client_behind_a_listed_proxy(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="ludus.access")
    server = await start(TOKENS, trusted_proxies=FROM_HERE, access_log=True, allow_hosts=("lab.example",))
    async with httpx.AsyncClient(base_url=server.url) as client:
        await client.get("/health", headers=TOLD)
    lines = [record.getMessage() for record in caplog.records if record.name == "ludus.access"]
    assert [line.split()[0] for line in lines] == ["203.0.113.9"]


async def test_an_episode_started_through_the_runtime_needs_no_address(start: Start) -> None:
    server = await start(public_url="http://127.0.0.1:9999")
    params = StartParams(environment="yard", split="train", key="k")
    result = await server.app.context.host.start(params, Principal.open())
    assert result.episodes[0].play.url is None
