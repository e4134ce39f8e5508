"""Each limit of a token, over each wire: who is refused, what the refusal says, and what is not counted."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import aiohttp
import pytest
from quota_world import Clock

from ludus.client import connect
from ludus.client.transports.channel import ChannelWire
from ludus.protocol.episodes import GradeParams, StartParams, StepParams
from ludus.protocol.errors import CapacityError
from ludus.protocol.identifiers import STEP_META_KEY
from ludus.protocol.methods import GRADE, START, STEP
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.quotas import Account
from ludus.server.durability.journal import MemoryJournal
from ludus.server.hosting.places import survey


@pytest.mark.requirement("QUO-1")
async def test_steps_beyond_the_rate_are_refused_with_the_limit_its_value_and_the_time(
    limited: Any, client_of: Any, clock: Clock
) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=2, step_burst=3)})
    client = await client_of(server, "lab")
    async with client.environment("clicker").episode() as episode:
        for _ in range(3):
            await episode.call("click")
        with pytest.raises(
            CapacityError, match=r"'lab' may have at most 2 steps per second.*steps_per_second"
        ) as caught:
            await episode.call("click")
        assert caught.value.data == {"limit": "steps_per_second", "maximum": 2.0, "burst": 3, "retryAfter": 0.5}
        clock.now += caught.value.retry_after or math.inf
        assert (await episode.call("click")).content[0].text == "4"
    assert server.quotas.refused == {"steps_per_second": 1}


async def test_the_final_answer_is_no_step_and_is_never_refused(limited: Any, client_of: Any) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=1, step_burst=1)})
    client = await client_of(server, "lab")
    async with client.environment("clicker").episode() as episode:
        await episode.call("click")
        graded = await episode.grade("1")
        assert graded.reward is not None
        assert graded.reward.value == 1.0


async def test_a_token_uses_up_nothing_of_another(limited: Any, client_of: Any) -> None:
    tight = TokenLimits(steps_per_second=1, step_burst=1, open_episodes=1)
    server = await limited({"lab": tight, "other": tight})
    for name in server.tokens:
        client = await client_of(server, name)
        async with client.environment("clicker").episode() as episode:
            await episode.call("click")
            with pytest.raises(CapacityError, match=f"'{name}'"):
                await episode.call("click")


async def test_limits_of_a_token_take_the_place_of_the_servers_and_the_others_hold(
    limited: Any, client_of: Any
) -> None:
    server = await limited(
        {"lab": TokenLimits(step_burst=5), "plain": None}, TokenLimits(steps_per_second=1, step_burst=1)
    )
    for name, burst in (("lab", 5), ("plain", 1)):
        client = await client_of(server, name)
        async with client.environment("clicker").episode() as episode:
            for _ in range(burst):
                await episode.call("click")
            with pytest.raises(CapacityError, match=f"{burst} at one time"):
                await episode.call("click")


async def test_without_tokens_all_callers_share_the_limits_of_the_server(limited: Any, client_of: Any) -> None:
    server = await limited(None, TokenLimits(open_episodes=1))
    client = await client_of(server)
    async with client.environment("clicker").episode():
        with pytest.raises(CapacityError, match="callers of this server may have at most 1 open episodes"):
            await (await client_of(server)).environment("clicker").start()


async def test_requests_beyond_the_rate_are_refused(limited: Any, client_of: Any, clock: Clock) -> None:
    server = await limited({"lab": TokenLimits(requests_per_second=10, request_burst=4)})
    client = await client_of(server, "lab")

    async def ask_often() -> None:
        for _ in range(9):
            await client.environments()

    with pytest.raises(CapacityError, match="10 requests per second") as caught:
        await ask_often()
    assert caught.value.data["limit"] == "requests_per_second"
    clock.now += caught.value.retry_after or math.inf
    await client.environments()


async def test_open_episodes_are_refused_before_anything_is_set_up_and_freed_by_every_end(
    limited: Any, client_of: Any
) -> None:
    server = await limited({"lab": TokenLimits(open_episodes=2)})
    client = await client_of(server, "lab")
    environment = client.environment("clicker")
    first, second = await environment.start(), await environment.start()
    with pytest.raises(CapacityError, match="'lab' may have at most 2 open episodes.*close episodes") as caught:
        await environment.start()
    assert (caught.value.data["maximum"], caught.value.retry_after) == (2, 2.0)
    assert server.host.stats().running == 2
    await first.grade("0")
    await second.close()
    await second.close()
    await first.close()
    assert server.quotas.accounts["lab"].episodes == 0
    third, fourth = await environment.start(), await environment.start()
    with pytest.raises(CapacityError):
        await environment.start()
    for episode in (third, fourth):
        await episode.close()


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_groups_and_forks_count_for_each_episode(limited: Any, client_of: Any) -> None:
    server = await limited({"lab": TokenLimits(open_episodes=3)})
    client = await client_of(server, "lab")
    environment = client.environment("clicker")
    with pytest.raises(CapacityError, match="a group of 4 can never fit") as caught:
        await environment.start_group(4)
    assert caught.value.retry_after is None
    async with environment.group(2) as group:
        with pytest.raises(CapacityError):
            await environment.start_group(2)
        await group[0].call("click")
        async with await group[0].fork() as fork:
            with pytest.raises(CapacityError):
                await group[1].fork()
            await fork.call("click")
    assert server.quotas.accounts["lab"].episodes == 0


async def test_the_steps_that_a_fork_repeats_are_not_counted(limited: Any, clock: Clock) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=1, step_burst=3)})
    async with connect(server.url, token=server.tokens["lab"], patience_seconds=0) as client:
        async with client.environment("clicker").episode() as episode:
            await episode.call("click")
            await episode.call("click")
            async with await episode.fork() as fork:
                assert (await fork.call("click")).step == 3
                with pytest.raises(CapacityError):
                    await fork.call("click")


async def test_a_start_that_fails_gives_its_place_back(limited: Any, client_of: Any, monkeypatch: Any) -> None:
    from quota_world import Clicker

    def broken(self: Any) -> None:
        raise RuntimeError("no disk")

    server = await limited({"lab": TokenLimits(open_episodes=1)})
    client = await client_of(server, "lab")
    monkeypatch.setattr(Clicker, "setup", broken)
    with pytest.raises(Exception, match="incident|broke|fail"):
        await client.environment("clicker").start()
    assert server.quotas.accounts["lab"].episodes == 0


async def test_a_token_that_stores_too_much_may_neither_step_nor_start_until_its_episodes_are_gone(
    limited: Any, client_of: Any
) -> None:
    journal = MemoryJournal()
    server = await limited({"lab": TokenLimits(stored_bytes=100_000)}, journal=journal)
    client = await client_of(server, "lab")
    episode = await client.environment("clicker").start()
    await episode.call("fill", size=60_000)
    await survey(server.quotas, server.host.store, journal)
    await episode.call("fill", size=60_000)
    await survey(server.quotas, server.host.store, journal)
    for request in (episode.call("click"), client.environment("clicker").start()):
        with pytest.raises(CapacityError, match="100000 bytes of episodes.*close episodes") as caught:
            await request
        assert (caught.value.data["limit"], caught.value.retry_after) == ("stored_bytes", 5.0)
    await episode.grade("0")
    await episode.close()
    server.host.store.evict(math.inf)
    await survey(server.quotas, server.host.store, journal)
    await (await client.environment("clicker").start()).close()


@pytest.mark.requirement("QUO-3")
@pytest.mark.parametrize("kind", ["channel", "mcp"])
async def test_a_repeated_step_is_answered_and_not_counted(limited: Any, kind: str) -> None:
    from ludus.client.transports.mcp import McpWire

    server = await limited({"lab": TokenLimits(steps_per_second=1, step_burst=2)})
    wire: Any = (ChannelWire if kind == "channel" else McpWire)(server.url, server.tokens["lab"])
    started = (await wire.request(START, StartParams(environment="clicker", split="train", key="s"))).episodes[0]
    step = StepParams(episode=started.episode, step=1, tool="click", arguments={}, key="one")
    answers = [await wire.request(STEP, step) for _ in range(5)]
    second = step.model_copy(update={"step": 2, "key": "two"})
    answers.append(await wire.request(STEP, second))
    with pytest.raises(CapacityError):
        await wire.request(STEP, step.model_copy(update={"step": 3, "key": "three"}))
    answers += [await wire.request(STEP, one) for one in (step, second)]
    assert [answer.content[0].text for answer in answers] == ["1"] * 5 + ["2", "1", "2"]
    await wire.request(GRADE, GradeParams(episode=started.episode, answer="2", key="g"))
    await wire.close()


async def test_the_steps_of_an_agent_count_for_the_owner_of_its_episode(limited: Any) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=1, step_burst=2)})
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    async with (
        connect(server.url, token=server.tokens["lab"], patience_seconds=0) as client,
        client.environment("clicker").episode() as episode,
        aiohttp.ClientSession(headers=headers) as agent,
    ):

        async def click(key: str) -> dict[str, Any]:
            params = {"name": "click", "arguments": {}, "_meta": {STEP_META_KEY: {"key": key}}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            assert episode.play_url is not None
            async with agent.post(episode.play_url, json=call) as answer:
                reply: dict[str, Any] = await answer.json()
                return reply

        await episode.call("click")
        assert (await click("a"))["result"]["content"][0]["text"] == "2"
        refused = (await click("b"))["error"]
        assert (refused["code"], refused["data"]["limit"], refused["data"]["retryAfter"]) == (
            4290, "steps_per_second", 1.0,
        )  # fmt: skip
        assert (await click("a"))["result"]["content"][0]["text"] == "2"
        async with client.environment("clicker").episode() as another:
            with pytest.raises(CapacityError):
                await another.call("click")


@pytest.mark.requirement("QUO-2")
@pytest.mark.parametrize("path", ["/mcp", "/list_environments", "/channel"])
async def test_a_refused_http_request_says_in_its_head_when_to_come_back(limited: Any, path: str) -> None:
    server = await limited({"lab": TokenLimits(requests_per_second=0.1, request_burst=1)})
    headers = {
        "Authorization": f"Bearer {server.tokens['lab']}", "X-Ludus-ORS": "0", "Accept": "application/json",
    }  # fmt: skip
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{server.url}/list_environments") as first:
            assert first.status == 200
        if path == "/channel":
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(server.url + path, protocols=("ludus.channel.v0.2",))
            assert caught.value.headers is not None
            status, after = caught.value.status, caught.value.headers["Retry-After"]
        else:
            send = session.get if path == "/list_environments" else session.post
            async with send(server.url + path, json={}) as answer:
                status, after = answer.status, answer.headers["Retry-After"]
                assert "requests_per_second" in await answer.text()
        assert (status, int(after) >= 10) == (429, True)


@pytest.mark.requirement("LIM-10")
async def test_our_client_waits_and_succeeds_over_every_wire(limited: Any, client_of: Any, clock: Clock) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=200, step_burst=1, requests_per_second=400)})
    client = await client_of(server, "lab", patience_seconds=60)
    async with client.environment("clicker").episode() as episode:
        clock.step = 0.001
        texts = [(await episode.call("click")).content[0].text for _ in range(20)]
    assert texts == [str(number) for number in range(1, 21)]
    assert server.quotas.refused["steps_per_second"] > 0


async def test_steps_that_were_sent_behind_a_refused_one_wait_for_it_and_keep_their_order(
    limited: Any, clock: Clock
) -> None:
    server = await limited({"lab": TokenLimits(steps_per_second=500, step_burst=2)})
    async with connect(server.url, token=server.tokens["lab"], patience_seconds=60) as client:
        async with client.environment("clicker").episode() as episode:
            clock.step = 0.0005
            results = await asyncio.gather(*(episode.call("click") for _ in range(30)))
            assert [result.content[0].text for result in results] == [str(number) for number in range(1, 31)]  # type: ignore[union-attr]
            assert (await episode.info()).steps == 30
    assert server.quotas.refused["steps_per_second"] > 0


async def test_a_client_that_waits_long_enough_gets_its_place(limited: Any, client_of: Any, monkeypatch: Any) -> None:
    refused, refusal = asyncio.Event(), Account.refusal

    def noted(self: Account, *args: Any, **given: Any) -> CapacityError:
        refused.set()
        return refusal(self, *args, **given)

    monkeypatch.setattr(Account, "refusal", noted)
    monkeypatch.setattr("ludus.server.auth.quotas.EPISODES_RETRY_SECONDS", 0.01)
    server = await limited({"lab": TokenLimits(open_episodes=1)})
    client = await client_of(server, "lab", patience_seconds=60)
    environment = client.environment("clicker")
    first = await environment.start()
    waiting = asyncio.ensure_future(environment.start())
    await refused.wait()
    await first.close()
    await (await waiting).close()


async def test_refusals_are_counted_by_limit_in_the_metrics(limited: Any, client_of: Any) -> None:
    server = await limited(None, TokenLimits(open_episodes=1), metrics_open=True)
    client = await client_of(server)
    async with client.environment("clicker").episode():
        for _ in range(2):
            with pytest.raises(CapacityError):
                await client.environment("clicker").start()
    async with aiohttp.ClientSession() as session, session.get(server.url + "/metrics") as answer:
        count = server.quotas.refused["open_episodes"]
        assert count >= 2
        assert f'ludus_quota_refusals_total{{limit="open_episodes"}} {count}.0' in await answer.text()
