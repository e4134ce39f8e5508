"""Requests without a valid credential: how many a client address may send, and who is never hit by that."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from quota_world import Clock

from ludus.client import connect
from ludus.server.auth.quotas import Quotas

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def ask(url: str, method: str = "GET", **options: Any) -> tuple[int, dict[str, str], Any]:
    """The status, the fields and the JSON of an answer."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as answer:
        return answer.status, dict(answer.headers), await answer.json(content_type=None)


@pytest.mark.parametrize(
    ("path", "status"), [("/list_environments", 401), ("/nosuch", 404), ("/metrics", 401), ("/play/play_x/mcp", 404)]
)
async def test_too_many_requests_of_strangers_are_refused_with_the_limit_and_the_time(
    limited: Any, clock: Clock, path: str, status: int
) -> None:
    server = await limited({"lab": None}, stranger_requests=1)
    method = "POST" if path.startswith("/play/") else "GET"
    for _ in range(5):
        assert (await ask(server.url + path, method))[0] == status
    status, fields, body = await ask(server.url + path, method)
    assert status == 429
    error = body["error"]
    assert error["code"] == 4290
    assert (
        "without a valid token or play URL came from your address 127.0.0.1: at most 1 per second" in error["message"]
    )
    assert (error["data"]["limit"], error["data"]["maximum"], error["data"]["burst"]) == (
        "stranger_requests_per_second", 1.0, 5,
    )  # fmt: skip
    assert int(fields["Retry-After"]) >= error["data"]["retryAfter"] > 0
    assert server.quotas.refused["stranger_requests_per_second"] == 1
    clock.now += 1
    assert (await ask(server.url + path, method))[0] != 429


async def test_valid_tokens_and_play_urls_are_never_hit_by_strangers_of_their_address(limited: Any) -> None:
    server = await limited({"lab": None, "new": None}, stranger_requests=1)
    async with connect(server.url, token=server.tokens["lab"]) as client:
        episode = await client.environment("clicker").start(index=0)
        assert episode.play_url is not None
        while (await ask(server.url + "/nosuch"))[0] != 429:
            pass
        for _ in range(20):
            await client.environments()
            assert (await ask(episode.play_url, "POST", json=LIST, headers=ACCEPT))[0] == 200
            token = {"Authorization": f"Bearer {server.tokens['new']}"}
            assert (await ask(server.url + "/list_environments", headers=token))[0] == 200
            assert (await ask(server.url + "/nosuch", headers=token))[0] == 404
        path = urlsplit(episode.play_url).path
        assert (await ask(f"{server.url}{path[:-8]}AAAA/mcp", "POST", json=LIST, headers=ACCEPT))[0] == 429
        assert (await ask(server.url + "/nosuch"))[0] == 429


async def test_requests_with_a_valid_credential_are_not_counted(limited: Any) -> None:
    server = await limited({"lab": None}, stranger_requests=1)
    async with connect(server.url, token=server.tokens["lab"]) as client:
        for _ in range(20):
            await client.environments()
    token = {"X-API-Key": server.tokens["lab"]}
    for _ in range(20):
        assert (await ask(server.url + "/nosuch", headers=token))[0] == 404
    assert server.quotas.table.strangers == 0


async def test_health_checks_are_neither_counted_nor_refused(limited: Any) -> None:
    server = await limited({"lab": None}, stranger_requests=1)
    for _ in range(20):
        assert (await ask(server.url + "/health"))[0] == (await ask(server.url + "/ready"))[0] == 200
    while (await ask(server.url + "/nosuch"))[0] != 429:
        pass
    assert (await ask(server.url + "/health"))[0] == (await ask(server.url + "/ready"))[0] == 200


async def test_behind_a_trusted_proxy_each_forwarded_address_has_its_own_rate(limited: Any) -> None:
    server = await limited(
        {"lab": None}, stranger_requests=1, trusted_proxies=("127.0.0.1",), public_url="http://127.0.0.1:1"
    )

    async def status(client: str) -> int:
        return (await ask(server.url + "/nosuch", headers={"X-Forwarded-For": client, "Host": "127.0.0.1"}))[0]

    assert [await status("203.0.113.5") for _ in range(6)] == [404] * 5 + [429]
    assert await status("203.0.113.6") == 404


async def test_a_forwarded_address_of_an_unlisted_sender_hides_nothing(limited: Any) -> None:
    server = await limited({"lab": None}, stranger_requests=1)
    found = [
        (await ask(server.url + "/nosuch", headers={"X-Forwarded-For": f"203.0.113.{number}"}))[0]
        for number in range(6)
    ]
    assert found == [404] * 5 + [429]


async def test_a_right_token_is_served_from_an_address_of_strangers_and_of_wrong_tokens(limited: Any) -> None:
    server = await limited({"lab": None, "other": None}, wrong_tokens=2, stranger_requests=1)
    wrong = {"Authorization": "Bearer ludus_" + "w" * 43}
    while (await ask(server.url + "/nosuch"))[0] != 429:
        pass
    for _ in range(4):
        await ask(server.url + "/list_environments", headers=wrong)
    assert (await ask(server.url + "/list_environments", headers=wrong))[0] == 429
    for name in ("lab", "other"):
        right = {"Authorization": f"Bearer {server.tokens[name]}"}
        assert (await ask(server.url + "/list_environments", headers=right))[0] == 200


async def test_a_server_without_tokens_has_no_strangers(limited: Any) -> None:
    server = await limited(None, stranger_requests=1)
    assert {(await ask(server.url + "/nosuch"))[0] for _ in range(20)} == {404}


def test_the_table_of_strangers_has_a_fixed_size(clock: Clock) -> None:
    quotas = Quotas(stranger_requests_per_second=1, clock=clock)
    size = len(quotas.table._map)
    for number in range(20_000):
        quotas.strangers.note(f"203.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(quotas.table._map) == size
    for _ in range(5):
        quotas.strangers.note("198.51.100.1")
    assert quotas.strangers.refusal("198.51.100.1") is not None
    assert quotas.strangers.refusal("198.51.100.2") is None
