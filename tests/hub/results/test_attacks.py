"""Ways to a better place on a board of played runs; each of them fails."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hubs import kind_of
from results_hub import BROKEN, OWNER, Player, ResultsHub, board_of
from sqlalchemy import update

from ludus.hub.app import parts_of
from ludus.hub.database.result_tables import ResultEpisode
from ludus.registry.types.receipts import Receipt, verify_receipt


async def whole_run(client: httpx.AsyncClient, package: str, right: int, **params: Any) -> Player:
    player = await Player.register(client, package, tasks=4, **params)
    await player.play(right=right)
    return player


@pytest.mark.suite("hub")
async def test_the_best_of_many_runs_is_not_what_a_board_shows(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        for right in (0, 4, 1):
            await whole_run(client, package, right)
        await whole_run(client, package, 3, model="renamed")
        open_run = await Player.register(client, package)
        shown = await open_run.info()
        assert (shown["number"], shown["of"]) == (5, 5)
    rows = (await board_of(hub, package))["rows"]
    assert [(row["model"], len(row["runs"]), row["episodes"], row["accountRuns"]) for row in rows] == [
        ("renamed", 1, 4, 5), ("m", 3, 12, 5),
    ]  # fmt: skip
    assert rows[1]["mean"]["value"] < 0.75, "the good run counts together with the bad ones"


async def test_taking_back_a_bad_run_takes_back_the_good_ones_too(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        bad = await whole_run(client, package, 0)
        good = await whole_run(client, package, 4)
        opened = await Player.register(client, package)
        assert kind_of(await client.post(f"/api/v1/runs/{opened.key}/remove", json={"reason": "x"})) == "Conflict"
        await client.post(f"/api/v1/runs/{bad.key}/remove", json={"reason": "a bug of mine"})
        assert (await good.info())["removal"]["reason"] == "a bug of mine"
        later = await whole_run(client, package, 4)
        assert (await later.info())["number"] == 4
    board = await board_of(hub, package)
    assert [(row["runs"], row["accountRuns"]) for row in board["rows"]] == [([later.key], 4)]
    assert board["removedRuns"] == 2


async def test_episodes_that_are_dropped_closed_or_broken_stay_in_the_mean(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=4)
        tickets = [await player.next() for _ in range(3)]
        for place, ticket in enumerate(tickets):
            assert ticket is not None
            if place == 0:
                await player.act(ticket, right=True)
            else:
                await player.call(ticket, "kick" if place == 1 else "look")
            await player.end(ticket)
        ended = (await client.post(f"/api/v1/runs/{player.key}/end")).json()
    assert (ended["figures"]["episodes"], ended["figures"]["mean"]["value"]) == (4, 0.25)


async def test_an_episode_is_given_out_once_and_ends_once(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=2)
        first, second = await player.next(), await player.next()
        assert first is not None
        assert second is not None
        assert first["place"] != second["place"]
        assert await player.next() is None
        await player.act(first, right=False)
        ends = [await player.end(first) for _ in range(3)]
        assert ends == ["completed"] * 3
        await player.call(first, "turn", number=0)
        await player.end(second)
        rows = await player.rows()
    assert [row["attempts"] for row in rows] == [1, 1]
    assert [(row["end"], row["value"]) for row in rows] == [("completed", 0.0), ("closed", 0.0)]


async def test_breaking_the_infrastructure_on_purpose_gives_few_further_attempts(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=6)
        opening = hub.store.opening(player.key)
        assert opening is not None
        for task in opening.tasks:
            BROKEN[task.task] = 1
        while (ticket := await player.next()) is not None:
            await player.call(ticket, "look")
            await player.end(ticket)
        ended = await player.info()
    BROKEN.clear()
    assert ended["reruns"] == 2
    assert ended["figures"]["ends"]["infrastructure_error"] == 4


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("who", ["bob", OWNER, "root", None])
async def test_the_run_of_another_account_is_out_of_reach(hub: ResultsHub, package: str, who: str | None) -> None:
    refusal = "Forbidden" if who else "Unauthenticated"
    async with hub.client() as client, hub.client(who) as other:
        player = await Player.register(client, package)
        ticket = await player.next()
        assert ticket is not None
        run = f"/api/v1/runs/{player.key}"
        for path in ("/episodes", f"/episodes/{ticket['place']}/end", "/end"):
            assert kind_of(await other.post(run + path, json={})) == refusal, path
        assert kind_of(await other.get(f"{run}/episodes")) == refusal
        assert (await player.info())["state"] == "open"
        await player.act(ticket, right=True)
        assert await player.end(ticket) == "completed"


async def test_a_new_version_does_not_change_what_a_run_plays(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package)
        digest = player.run["sha256"]
        hub.publish(package, "2.0.0")
        hub.asked.clear()
        ended = await player.play(right=3)
        assert set(hub.asked) == {(package, "1.0.0")}
        assert (ended["version"], ended["sha256"]) == ("1.0.0", digest)
        boards = (await client.get(f"/api/v1/environments/{package}/versions/2.0.0/boards")).json()
    assert boards["boards"] == []


async def test_the_play_url_is_no_credential_of_the_hubs_api(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package)
        ticket = await player.next()
        assert ticket is not None
    capability = ticket["playUrl"].partition("/play/")[2].partition("/")[0]
    headers = {"authorization": f"Bearer {capability}"}
    async with httpx.AsyncClient(base_url=hub.url, headers=headers, timeout=60) as thief:
        for path in ("/episodes", f"/episodes/{ticket['place']}/end", "/end"):
            assert kind_of(await thief.post(f"/api/v1/runs/{player.key}{path}", json={})) == "Unauthenticated"


async def test_nothing_at_the_play_url_closes_forks_or_reads_rewards(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package)
        ticket = await player.next()
        assert ticket is not None
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as agent:
            for method in ("episodes/close", "episodes/rewards", "episodes/fork", "episodes/get", "episodes/grade",
                           "episodes/start", "groups/score", "tasks/get", "tasks/list"):  # fmt: skip
                for params in ({}, {"episode": ticket["place"]}):
                    request = {"jsonrpc": "2.0", "id": 1, "method": f"dev.ludus/{method}", "params": params}
                    answer = await agent.post(ticket["playUrl"], json=request)
                    assert "result" not in answer.text, (method, answer.text)
                    assert "reward" not in answer.text.replace("episodes/rewards", "")
        await player.act(ticket, right=True)
        assert await player.end(ticket) == "completed"


async def test_only_the_operator_scores_again_and_the_log_has_both_means(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client, hub.client("root") as root:
        player = await whole_run(client, package, 2)
        where, reason = f"/api/v1/runs/{player.key}/rescore", {"reason": "other rules"}
        assert kind_of(await client.post(where, json=reason)) == "Forbidden"
        with parts_of(hub.app).hub.database.writing() as session:
            session.execute(update(ResultEpisode).values(value=1.0))  # as an earlier version could have counted
        assert (await root.post(where, json=reason)).json()["figures"]["mean"]["value"] == 0.5
        entry = (await client.get("/api/v1/results/log")).json()["entries"][0]
        assert (entry["kind"], entry["run"], entry["by"], entry["after"]) == ("rescored", player.key, "root", 0.5)
        receipt = Receipt.model_validate((await client.get(f"/api/v1/runs/{player.key}/receipt")).json())
        verify_receipt(receipt, receipt.episodes)
        opened = await Player.register(client, package)
        assert kind_of(await root.post(f"/api/v1/runs/{opened.key}/rescore", json=reason)) == "Conflict"
    assert [row["mean"]["value"] for row in (await board_of(hub, package))["rows"]] == [0.5]
