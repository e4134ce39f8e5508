"""Endpoints at host names of their own."""

from __future__ import annotations

from typing import Any

import aiohttp
import httpx
import pytest

from ludus.hub.endpoints.hosts import host_address, path_of_host
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("counter.ada.localhost:8400", "/e/ada/counter"),
        ("COUNTER.ada.LOCALHOST", "/e/ada/counter"),
        ("1-2-0.two_words-3.ada.localhost", "/e/ada/two_words-3@1.2.0"),
        ("localhost:8400", None),
        ("ada.localhost", None),
        ("a.b.c.ada.localhost", None),
        ("counter.ada.localhost.evil.example", None),
        ("counter.adalocalhost", None),
        ("-counter.ada.localhost", None),
        ("counter.ada.localhost:80:90", None),
        ("\udcff.ada.localhost", None),
    ],
)
def test_a_host_name_means_the_path_of_one_endpoint_or_nothing(host: str, path: str | None) -> None:
    assert path_of_host(host.encode("utf-8", "surrogateescape"), "localhost") == path


def test_every_address_leads_back_to_its_endpoint_and_names_with_dots_have_none() -> None:
    assert host_address("http://127.0.0.1:8400", "localhost", "ada", "counter") == "http://counter.ada.localhost:8400"
    pinned = host_address("https://hub.example.org", "envs.example.org", "ada", "counter", "1.2.0")
    assert pinned == "https://1-2-0.counter.ada.envs.example.org"
    assert host_address("http://127.0.0.1:8400", "localhost", "ada", "two.words") is None
    assert host_address("http://127.0.0.1:8400", "localhost", "ada", "counter", "1.0+local") is None


async def test_the_domain_of_the_settings_is_answered_and_no_other(start_hub: Any) -> None:
    hub = await start_hub(domain="envs.example.org")
    await hub.publish()
    async with httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
        answers = [
            await client.get("/list_environments", headers={"host": f"counter.ada.{domain}"})
            for domain in ("envs.example.org", "localhost")
        ]
    assert [answer.status_code for answer in answers] == [200, 421]


@pytest.mark.suite("hub-endpoints")
async def test_every_transport_answers_at_the_host_name(hub: Any) -> None:
    await hub.publish(version="1.1.0")
    host = hub.url.replace("http://127.0.0.1", "counter.ada.localhost")
    async with httpx.AsyncClient(base_url=hub.url, headers={"host": host}, timeout=60) as client:
        assert (await client.get("/list_environments")).json() == ["counter"]
        splits = await client.get("/counter/splits", headers={"host": f"1-0-0.{host}"})
        assert [split["name"] for split in splits.json()] == ["train"]
        missing = await client.get("/health", headers={"host": "nothing.ada.localhost"})
        assert missing.status_code == 404
        other = await client.get("/list_environments", headers={"host": "counter.ada.elsewhere.example"})
        assert other.status_code == 421
    async with aiohttp.ClientSession(hub.url, headers={"host": host}) as session:
        async with session.ws_connect("/channel", protocols=(CHANNEL_SUBPROTOCOL,)) as channel:
            await channel.send_json({"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/environments/list", "params": {}})
            answer = await channel.receive_json()
            assert answer["result"]["environments"][0]["name"] == "counter"
