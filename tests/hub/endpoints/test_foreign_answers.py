"""Answers of a package's process say nothing in the hub's name: headers, types, upgrades, endless ones, other sites."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import hostile_endpoint
import httpx
import pytest
from hostile_endpoint import answer, raw_path

from ludus.hub.endpoints.exchanges import AnswerReader
from ludus.hub.settings.endpoints import EndpointSettings
from ludus.hub.settings.hub import HubSettings
from ludus.server.web.http_heads import HEAD_BYTES

SANDBOX = "default-src 'none'; sandbox"
JSON = "content-type: application/json"

FOREIGN = (
    "set-cookie: session=theirs; path=/", "clear-site-data: \"*\"", "strict-transport-security: max-age=99999999",
    "refresh: 0; url=https://evil.example", "access-control-allow-origin: *", "access-control-allow-credentials: true",
    "service-worker-allowed: /", "content-security-policy: default-src *", "content-security-policy-report-only: x",
    "nel: {}", "report-to: {}", "reporting-endpoints: a=\"https://evil.example\"", "link: </x.js>; rel=preload",
    "alt-svc: h3=\":443\"", "public-key-pins: x", "cross-origin-resource-policy: cross-origin",
    "cross-origin-opener-policy: unsafe-none", "origin-agent-cluster: ?1", "sourcemap: /x", "x-sourcemap: /x",
    "content-disposition: attachment; filename=ludus.exe", "cache-control: public, max-age=31536000", "etag: \"a\"",
    "expires: Thu, 01 Jan 2099 00:00:00 GMT", "vary: *", "www-authenticate: Basic realm=\"the hub\"",
    "www-authenticate: bearer-like x", "proxy-authenticate: Basic", "accept-ch: sec-ch-ua-model",
    "document-policy: x", "permissions-policy: camera=*", "speculation-rules: \"/x.json\"",
    "activate-storage-access: load",
    "content-location: /account", "x-content-type-options: sniff", "referrer-policy: unsafe-url", "age: 1",
    "supports-loading-mode: credentialed-prerender", "critical-ch: x", "no-vary-search: params", "set-login: logged-in",
    "use-as-dictionary: match=\"/*\"", "available-dictionary: :a:", "priority: u=0", "server-timing: a", "via: 1.1 x",
    "tk: N", "warning: 199 - x", "sec-session-registration: (ES256)", "integrity-policy: x", "trailer: x",
    "server: evil",
)  # fmt: skip
"""Headers that a browser obeys under the address where it gets them, or that say who is speaking."""

SHOWN = ("retry-after: 3", "mcp-session-id: s", "ludus-episode: e", 'www-authenticate: Bearer error="invalid_token"')

REFUSED_TYPES = (
    "text/html", "text/html; charset=utf-8", "TEXT/HTML", "application/xhtml+xml", "image/svg+xml", "text/xml",
    "application/xml", "text/xsl", "application/pdf", "text/javascript", "application/javascript", "text/css",
    "application/json; charset=utf-7", "application/json; charset=utf-16", "text/plain; charset=iso-2022-jp",
    "multipart/x-mixed-replace; boundary=x", "application/octet-stream", "image/png", "font/woff2",
    "text/cache-manifest",
    "application/json, text/html", "text/plain text/html", "application/json;text/html", "", "*/*", "text",
    "application/manifest+json", "message/rfc822", "application/x-mimearchive", "application/wasm",
    "application/speculationrules+json",
)  # fmt: skip

PASSED_TYPES = (
    "application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "text/event-stream",
    "text/event-stream; charset=utf-8", "text/plain", "text/plain; version=1.0.0; charset=utf-8",
    "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
)  # fmt: skip


@pytest.fixture
async def hostile(start_hub: Any) -> Any:
    """A hub with the hostile package, whose process runs."""
    hub = await start_hub()
    await hub.publish("hostile", source=hostile_endpoint.SOURCE, cls="Hostile")
    async with httpx.AsyncClient(base_url=hub.address("hostile"), timeout=60) as client:
        assert (await client.get("/health")).status_code == 200
    return hub


async def all_of(hub: Any, answers: list[bytes]) -> list[httpx.Response]:
    """Return what a client gets when the process answers with each of these."""
    async with httpx.AsyncClient(base_url=hub.address("hostile"), timeout=60) as client:
        return [await client.get(raw_path(each)) for each in answers]


def assert_sandboxed(got: httpx.Response) -> None:
    assert got.headers.get_list("content-security-policy") == [SANDBOX]
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["cache-control"] == "no-store"


async def test_headers_that_speak_for_the_hub_are_dropped_and_those_of_the_wires_are_passed_on(hostile: Any) -> None:
    plain, whole = await all_of(
        hostile, [answer(JSON, body="{}"), answer(JSON, *FOREIGN, *SHOWN, "x-own: 1", body='{"a":1}')]
    )
    assert (whole.status_code, whole.text) == (200, '{"a":1}')
    assert_sandboxed(whole)
    passed = {line.partition(":")[0] for line in SHOWN}
    assert set(whole.headers) - set(plain.headers) == passed
    assert whole.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    same = set(plain.headers) - {"date", "content-length"}
    assert {name: whole.headers[name] for name in same} == {name: plain.headers[name] for name in same}


async def test_bodies_of_other_types_are_refused_with_a_typed_error_and_those_of_the_wires_are_passed_on(
    hostile: Any,
) -> None:
    page = "<script>fetch('/')</script>"
    for got in await all_of(hostile, [answer(f"content-type: {kind}", body=page) for kind in REFUSED_TYPES]):
        assert (got.status_code, got.headers["content-type"]) == (502, "application/json")
        assert "<script" not in got.text
        assert_sandboxed(got)
    for kind, got in zip(
        PASSED_TYPES,
        await all_of(hostile, [answer(f"content-type: {kind}", body="x") for kind in PASSED_TYPES]), strict=True,
    ):  # fmt: skip
        assert (got.status_code, got.text) == (200, "x")
        assert got.headers["content-type"].replace(" ", "") == kind.lower().replace(" ", "")
        assert_sandboxed(got)


@pytest.mark.suite("hub-endpoints")
async def test_a_body_without_a_type_a_redirect_and_an_encoding_are_refused_and_an_empty_answer_needs_no_type(
    hostile: Any,
) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n<html\r\n0\r\n\r\n"
    until_end = b"HTTP/1.1 200 OK\r\n\r\n<html>"
    two = answer(JSON, "content-type: text/html", body="<html>")
    refused = await all_of(
        hostile,
        [
            answer(body="<html>"), chunked, until_end, two, answer(JSON, "content-encoding: gzip", body="x"),
            answer("location: https://evil.example", status="302 Found"),
            answer(JSON, "location: //evil.example", status="307 Temporary Redirect", body="{}"),
        ],
    )  # fmt: skip
    assert [got.status_code for got in refused] == [502] * len(refused)
    assert all("the endpoint's process answered with" in got.json()["error"]["message"] for got in refused)
    empty = await all_of(hostile, [answer(status="202 Accepted"), b"HTTP/1.1 204 No Content\r\n\r\n"])
    assert [(got.status_code, got.content) for got in empty] == [(202, b""), (204, b"")]


@pytest.mark.suite("hub-endpoints")
async def test_a_head_without_an_end_is_refused_and_trailers_are_dropped(hostile: Any) -> None:
    async with httpx.AsyncClient(base_url=hostile.address("hostile"), timeout=60) as client:
        begun = b"HTTP/1.1 200 OK\r\nx-long: "
        endless = await client.get(raw_path(begun, "endless"))
        fields = b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: 1\r\n" % number for number in range(300)) + b"\r\n"
        many = await client.get(raw_path(fields))
        interim = await client.get(
            raw_path(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3 + answer(JSON, body="1"))
        )
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + f"{JSON}\r\n\r\n".encode()
        trailed = await client.get(raw_path(head + b"1\r\n1\r\n0\r\nset-cookie: a=b\r\n\r\n"))
    assert [endless.status_code, many.status_code] == [502, 502]
    assert f"larger than {HEAD_BYTES} bytes" in endless.json()["error"]["message"]
    for got in (interim, trailed):
        assert (got.status_code, got.text) == (200, "1")
        assert not {"link", "set-cookie"} & set(got.headers)


def test_a_body_of_one_byte_chunks_is_one_message_for_each_read() -> None:
    class Uplink:
        closed = False
        sink: Any = None

    uplink: Any = Uplink()
    reader = AnswerReader(uplink, to_head=False)
    uplink.sink(f"HTTP/1.1 200 OK\r\n{JSON}\r\ntransfer-encoding: chunked\r\n\r\n".encode() + b"1\r\nx\r\n" * 1000)
    messages = [reader.take(), reader.take(), reader.take()]
    assert [message and message["type"] for message in messages] == ["http.response.start", "http.response.body", None]
    assert messages[1] is not None
    assert messages[1]["body"] == b"x" * 1000


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("query", ["", "wait"])
async def test_a_switch_to_a_websocket_passes_its_own_headers_only(hostile: Any, query: str) -> None:
    fields = "\r\n".join(
        ("HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "connection: Upgrade", "sec-websocket-accept: x",
         "sec-websocket-protocol: p", "ludus-max-frame: 5", *FOREIGN)
    )  # fmt: skip
    got = await upgraded(hostile, f"{fields}\r\n\r\nframes".encode(), query)
    head, _, rest = got.partition(b"\r\n\r\n")
    assert rest == b"frames"
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    names = {line.partition(":")[0] for line in lines[1:]}
    assert names == {"upgrade", "connection", "sec-websocket-accept", "sec-websocket-protocol", "ludus-max-frame"}


@pytest.mark.suite("hub-endpoints")
async def test_a_refused_upgrade_passes_what_other_answers_may_have_and_nothing_endless(hostile: Any) -> None:
    cookie = "set-cookie: session=theirs"
    told = await upgraded(hostile, answer(JSON, cookie, "ludus-refusal: no", body='{"e":1}', status="403 Forbidden"))
    assert told.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert told.endswith(b'\r\n\r\n{"e":1}')
    assert b"ludus-refusal: no\r\n" in told
    for refused in (
        answer("content-type: text/html", cookie, body="<script>", status="403 Forbidden"),
        answer(JSON, cookie, body="{}"), answer("location: https://evil.example", status="302 Found"), b"nonsense",
        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 99\r\n\r\n{}",
    ):  # fmt: skip
        got = await upgraded(hostile, refused)
        assert got.startswith(b"HTTP/1.1 502 ")
        assert f"content-security-policy: {SANDBOX}\r\n".encode() in got
        assert b"<script" not in got
        assert b"set-cookie" not in got
        assert b"evil" not in got
    assert b"set-cookie" not in told
    assert await upgraded(hostile, b"HTTP/1.1 101 Switching Protocols\r\nx: ", "endless") == b""


async def upgraded(hub: Any, sent: bytes, query: str = "") -> bytes:
    """Return all that a client gets whose upgrade to the channel the process answers with these bytes.

    The bytes stand behind the path of the channel of a worker, so that the hub passes the upgrade on.
    """
    host, _, port = hub.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    worker = hub.server("hostile").worker.name
    path = f"/e/ada/hostile/workers/{worker}/channel?{raw_path(sent, query)}"
    lines = (
        f"GET {path} HTTP/1.1", f"host: {host}:{port}", "upgrade: websocket", "connection: Upgrade",
        "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", "", "",
    )  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    got = b""
    while b"frames" not in got and (part := await reader.read(65536)):
        got += part
    writer.close()
    return got


@pytest.mark.suite("hub-endpoints")
async def test_pages_of_a_process_that_cannot_be_read_get_a_typed_error(
    hostile: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = ("", "no JSON", "[1]", "null", '"ready"', "[" * 2_000, '{"status":[]}', "\udcff")
    async with httpx.AsyncClient(base_url=hostile.address("hostile"), timeout=60) as client:
        for body in bodies:
            content = body.encode("utf-8", "surrogateescape")
            sent = f"HTTP/1.1 200 OK\r\n{JSON}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
            got = await client.get(f"/ready?{raw_path(sent)}")
            assert (got.status_code, got.headers["content-type"]) in ((502, JSON[14:]), (503, JSON[14:])), body[:20]
            metrics = await client.get(f"/metrics?{raw_path(sent)}")
            assert metrics.status_code in (200, 502), body[:20]
        page = await client.get(f"/health?{raw_path(answer('content-type: text/html', body='<script>'))}")
        assert (page.status_code, page.headers["content-type"]) == (502, JSON[14:])
        endless = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
        assert (await client.get(f"/metrics?{raw_path(endless, 'endless')}")).status_code == 503
    assert [record for record in caplog.records if record.exc_info] == []


async def test_every_answer_of_a_hub_says_that_nothing_in_it_may_run_unless_it_is_a_page_of_the_site(hub: Any) -> None:
    paths = (
        "/health", "/metrics", "/index/simple/", "/api/openapi.json", "/api/v1/packages", "/nothing/here/at/all",
        "/e/ada/counter/health", "/e/ada/counter/logs", "/e/ada/counter/metrics", "/e/nobody/nothing/health", "/e/x",
        "/at/0000/e/ada/counter/health", "/.well-known/ai-catalog.json", "/v0.1/servers",
        "/e/ada/counter/mcp/server-card",
    )  # fmt: skip
    async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
        for path in paths:
            got = await client.get(path)
            policy = got.headers["content-security-policy"]
            assert policy.startswith(SANDBOX), path
            assert got.headers["x-content-type-options"] == "nosniff", path
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
            got = await client.get("/e/ada/counter/health", headers=headers)
            assert (got.status_code in (403, 421), got.headers["content-security-policy"]) == (True, SANDBOX)
            assert "--allow-origin" not in got.text
        assert "script-src 'self'" in (await client.get("/")).headers["content-security-policy"]


async def test_pages_of_other_sites_start_no_endpoint_and_read_none(start_hub: Any, tools: Any) -> None:
    hub = await start_hub()
    await hub.publish()
    host = hub.url.removeprefix("http://")
    named = f"counter.ada.localhost:{host.rpartition(':')[2]}"
    foreign: list[dict[str, str]] = [
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"origin": "http://localhost:3000"}, {"origin": "http://127.0.0.1:1"}, {"origin": "null"},
        {"origin": f"http://{named}"}, {"origin": "https://evil.example"},
    ]  # fmt: skip
    async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
        for path in ("/e/ada/counter/health", "/e/ada/counter/play/x", "/at/0000/e/ada/counter/health"):
            assert [(await client.get(path, headers=headers)).status_code for headers in foreign] == [403] * len(
                foreign
            )
        got = await client.get("/health", headers={"host": named, "sec-fetch-site": "cross-site"})
        assert (got.status_code, tools.server_processes()) == (403, [])
        for headers in ({"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}, {}):
            got = await client.get("/e/ada/counter/health", headers=headers)
            assert got.status_code == 200, got.text
        assert (await client.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200
    async with aiohttp.ClientSession(hub.url) as session:
        for origin in ("http://localhost:3000", f"http://{named}", "null"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect("/e/ada/counter/channel", origin=origin)
            assert refused.value.status == 403


async def test_pages_of_other_programs_of_the_machine_send_no_forms_to_an_open_hub(hub: Any) -> None:
    async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
        for origin in ("http://localhost:3000", "http://counter.ada.localhost:8400", "http://127.0.0.1:1"):
            got = await client.post("/api/v1/packages", headers={"origin": origin}, data={"a": "b"})
            assert got.status_code == 403


@pytest.mark.parametrize(
    ("domain", "names"),
    [
        ("hub.example.org", {"public_url": "https://hub.example.org"}),
        ("envs.hub.example.org", {"public_url": "https://hub.example.org:8443/below"}),
        ("envs.example.org", {"public_url": "https://example.org"}),
        ("example.org", {"public_url": "https://hub.example.org"}),
        ("envs.hub.example.org", {"host": "0.0.0.0", "allow_hosts": ("HUB.example.org:443",)}),
        ("envs.example.org", {"host": "0.0.0.0"}),
    ],
)
def test_a_domain_of_endpoints_that_belongs_to_the_hubs_site_is_refused(domain: str, names: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"endpoints\.domain"):
        HubSettings(endpoints=EndpointSettings(domain=domain), **names)


def test_a_domain_apart_from_the_hubs_own_name_is_taken() -> None:
    for domain in ("envs.example.org", "example-envs.net", "localhost"):
        settings = HubSettings(public_url="https://hub.example.org", endpoints=EndpointSettings(domain=domain))
        assert settings.endpoints.domain == domain
