"""Wrong tokens: how many a client address may send, and what that means for the right ones."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from quota_world import Clock

from ludus.client import connect
from ludus.protocol.errors import CapacityError, Unauthenticated
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Quotas, network_of
from ludus.server.auth.tokens import UnknownToken

WRONG = "ludus_" + "w" * 43


async def test_too_many_wrong_tokens_are_refused_with_the_limit_and_the_time(
    limited: Any, wire: str, clock: Clock
) -> None:
    server = await limited({"lab": None}, wrong_tokens=3)
    async with connect(server.url, token=WRONG, wire=wire, patience_seconds=0) as client:  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                await client.environments()
        with pytest.raises(CapacityError) as caught:
            await client.environments()
        assert caught.value.retry_after in (20, 21)  # a refused upgrade has only the head, in whole seconds
        clock.now += 20
        with pytest.raises(Unauthenticated):
            await client.environments()


@pytest.mark.requirement("QUO-4")
async def test_a_right_token_is_accepted_from_an_address_whose_wrong_ones_are_refused(limited: Any, wire: str) -> None:
    server = await limited({"lab": None}, wrong_tokens=2)
    async with connect(server.url, token=WRONG, wire=wire, patience_seconds=0) as guesser:  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await guesser.environments()
        for _ in range(3):
            with pytest.raises(CapacityError):
                await guesser.environments()
            async with connect(server.url, token=server.tokens["lab"], wire=wire, patience_seconds=0) as lab:  # type: ignore[arg-type]
                assert await lab.environments()
        with pytest.raises(CapacityError):
            await guesser.environments()


def test_only_wrong_tokens_are_counted() -> None:
    quotas = Quotas(wrong_tokens_per_minute=2, clock=Clock())
    for _ in range(100):
        assert _recognize(quotas, "192.0.2.1", "right").name == "lab"
    for error in (UnknownToken, UnknownToken, CapacityError, CapacityError):
        with pytest.raises(error):
            _recognize(quotas, "192.0.2.1")
        assert _recognize(quotas, "192.0.2.1", "right").name == "lab"


async def test_behind_a_trusted_proxy_the_address_is_the_forwarded_one(limited: Any) -> None:
    server = await limited(
        {"lab": None}, wrong_tokens=2, trusted_proxies=("127.0.0.1",), public_url="http://127.0.0.1:1"
    )

    async def status(client: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": client, "Host": "127.0.0.1"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(server.url + "/list_environments") as answer,
        ):
            return answer.status

    assert [await status("203.0.113.5", WRONG) for _ in range(3)] == [401, 401, 429]
    assert await status("203.0.113.6", server.tokens["lab"]) == 200
    assert await status("203.0.113.6", WRONG) == 401
    assert await status("203.0.113.5", server.tokens["lab"]) == 200
    assert await status("203.0.113.5", WRONG) == 429


async def test_without_the_trust_a_forwarded_address_hides_nothing(limited: Any) -> None:
    server = await limited({"lab": None}, wrong_tokens=2)
    seen = []
    for number in range(3):
        headers = {"Authorization": f"Bearer {WRONG}", "X-Forwarded-For": f"203.0.113.{number}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(server.url + "/list_environments") as answer,
        ):
            seen.append(answer.status)
    assert seen == [401, 401, 429]


async def test_a_request_without_a_token_is_no_guess(limited: Any) -> None:
    server = await limited({"lab": None}, wrong_tokens=1)
    async with aiohttp.ClientSession() as session:
        for _ in range(5):
            async with session.get(server.url + "/list_environments") as answer:
                assert answer.status == 401


def _recognize(quotas: Quotas, address: str, token: str = WRONG) -> Principal:
    def authenticate(token: str) -> Principal:
        if token == "right":
            return Principal("lab", frozenset())
        raise UnknownToken("this token is not known")

    return quotas.guesses.recognize(token, address, authenticate)


def test_an_ipv6_network_counts_as_one_address_and_ipv4_is_itself_in_every_spelling() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("") == "-"


def test_many_addresses_take_no_more_memory_and_a_quiet_one_gives_way() -> None:
    clock = Clock()
    quotas = Quotas(wrong_tokens_per_minute=1, clock=clock)
    for number in range(20_000):
        clock.now += 0.001
        with pytest.raises(UnknownToken):
            _recognize(quotas, f"198.51.{number // 256}.{number % 256}")
    with pytest.raises(CapacityError):
        _recognize(quotas, f"198.51.{19_999 // 256}.{19_999 % 256}")


def test_the_limit_can_be_turned_off() -> None:
    quotas = Quotas(wrong_tokens_per_minute=None, clock=Clock())
    for _ in range(500):
        with pytest.raises(UnknownToken):
            _recognize(quotas, "192.0.2.1")
    assert quotas.refused == {}


def test_limits_are_read_from_texts_and_mistakes_are_named() -> None:
    assert TokenLimits.parse(["stored_bytes=2GiB", "steps_per_second=0.5"]).given() == {
        "stored_bytes": 2 * 1024**3, "steps_per_second": 0.5,
    }  # fmt: skip
    assert TokenLimits.parse(["step_burst=off"]) == TokenLimits()
    for text, why in {
        "steps_burst=1": "did you mean 'step_burst'",
        "nothing": "there are requests_per_second",
        "step_burst": "give a number",
        "step_burst=many": "give a number",
        "open_episodes=2GiB": "give a number",
        "step_burst=-1": "give a number",
        "stored_bytes=2GB": "with a unit such as 2GiB",
    }.items():
        with pytest.raises(ValueError, match=why):
            TokenLimits.parse([text])
    with pytest.raises(ValueError, match="twice"):
        TokenLimits.parse(["step_burst=1", "step_burst=2"])
