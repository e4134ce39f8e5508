"""Played runs: the hub draws, starts and scores; stock MCP clients play."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hubs import kind_of
from results_hub import BROKEN, Player, ResultsHub, act_as_stock_client, board_of, run_params

from ludus.hub.app import parts_of
from ludus.hub.results.personal import PersonalResults
from ludus.hub.results.rollouts import FILE_BYTES
from ludus.hub.settings.results import ResultLimits
from ludus.registry.types.drawing import draw_seed, draw_tasks
from ludus.registry.types.results import SUBMISSION_EPISODES, Opening
from ludus.registry.types.signing import digest_of


async def test_a_stock_mcp_client_plays_a_run_that_the_hub_scores(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=4, priceIn=2.0, priceOut=1.0)
        assert (player.run["state"], player.run["number"], player.run["figures"]) == ("open", 1, None)
        for right in (True, True, False, True):
            ticket = await player.next()
            assert ticket is not None
            said = await act_as_stock_client(ticket, right=right)
            assert "reward" not in "".join(said)
            await player.end(ticket, inputTokens=1000, outputTokens=100)
        ended = await player.info()
    figures = ended["figures"]
    assert (ended["state"], figures["mean"]["value"], figures["ends"]) == ("ended", 0.75, {"completed": 4})
    assert (figures["inputTokens"], figures["outputTokens"], figures["cost"]) == (4000, 400, 0.0084)
    board = await board_of(hub, package)
    assert [(row["by"], row["mean"]["value"], row["accountRuns"]) for row in board["rows"]] == [("alice", 0.75, 1)]
    assert sum(board["difficulty"]) == 4
    assert (board["difficulty"][0], board["difficulty"][-1]) == (1, 3)


async def test_rewards_tasks_and_secret_stay_hidden_until_the_run_ends(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package)
        ticket = await player.next()
        assert ticket is not None
        await player.act(ticket, right=True)
        ended = await client.post(f"/api/v1/runs/{player.key}/episodes/{ticket['place']}/end", json={})
        assert ended.json() == {"place": ticket["place"], "end": "completed"}
        for path in ("rows", "receipt"):
            assert kind_of(await client.get(f"/api/v1/runs/{player.key}/{path}")) == "Conflict"
        shown = await client.get(f"/api/v1/runs/{player.key}")
        page = await client.get(f"/runs/{player.key}", headers={"accept": "text/html"})
        board = await client.get(f"/api/v1/environments/{package}/versions/1.0.0/board?environment=locks&split=test")
        opening = hub.store.opening(player.key)
        assert opening is not None
        for text in (shown.text, page.text, board.text, str(ticket)):
            assert opening.secret not in text
            assert "lock-" not in text


async def test_the_commitment_opens_to_tasks_and_seeds_that_follow_from_the_secret(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=3, samples=2)
        commitment = player.run["commitment"]
        await player.play(right=6)
        answer = (await client.get(f"/api/v1/runs/{player.key}/rows")).json()
    opening = Opening.model_validate(answer["opening"])
    assert digest_of(opening) == commitment
    assert [task.index for task in opening.tasks] == draw_tasks(opening.secret, 40, 3)
    assert [row["index"] for row in answer["episodes"]] == [task.index for task in opening.tasks] * 2
    for row in answer["episodes"]:
        assert row["seed"] == draw_seed(opening.secret, row["index"], row["sample"])
    assert len({row["seed"] for row in answer["episodes"]}) == 6


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize(("environment", "lowest"), [("locks", 0.0), ("debts", -1.0)])
async def test_every_way_out_of_an_episode_counts_with_the_lowest_reward(
    hub: ResultsHub, package: str, environment: str, lowest: float
) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, environment=environment, tasks=5)
        first = await player.next()
        assert first is not None
        await player.act(first, right=True)
        assert await player.end(first) == "completed"
        closed = await player.next()
        assert closed is not None
        assert await player.end(closed) == "closed"
        kicked = await player.next()
        assert kicked is not None
        await player.call(kicked, "kick")
        assert await player.end(kicked) == "environment_error"
        assert await player.next() is not None
        ended = (await client.post(f"/api/v1/runs/{player.key}/end")).json()
        assert ended["figures"]["ends"] == {"completed": 1, "closed": 2, "environment_error": 1, "not_begun": 1}
        assert ended["figures"]["unscored"] == 4
        assert ended["figures"]["mean"]["value"] == pytest.approx((1.0 + 4 * lowest) / 5)
        assert sorted(row["value"] for row in await player.rows()) == [*[lowest] * 4, 1.0]
        assert await player.next() is None


async def test_an_episode_whose_infrastructure_broke_is_started_again_by_the_hub_alone(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=2)
        opening = hub.store.opening(player.key)
        assert opening is not None
        BROKEN[opening.tasks[0].task] = 1
        first = await player.next()
        assert first is not None
        await player.call(first, "look")
        assert await player.end(first) is None
        ended = await player.play(right=2)
        rows = await player.rows()
    assert (ended["reruns"], ended["figures"]["mean"]["value"]) == (1, 1.0)
    assert [row["attempts"] for row in rows] == [2, 1]


async def test_what_breaks_again_and_again_counts_with_the_lowest_reward(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=3)
        opening = hub.store.opening(player.key)
        assert opening is not None
        for task in opening.tasks:
            BROKEN[task.task] = 100
        starts = 0
        while (ticket := await player.next()) is not None:
            starts += 1
            await player.call(ticket, "look")
            await player.end(ticket)
        ended = await player.info()
    BROKEN.clear()
    assert starts == 5, "three episodes, and two of them once more"
    assert ended["figures"]["ends"] == {"infrastructure_error": 3}
    assert ended["figures"]["mean"]["value"] == 0.0


async def test_a_run_ends_at_its_deadline_and_what_is_missing_counts(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=4)
        first = await player.next()
        assert first is not None
        await player.act(first, right=True)
        await player.end(first)
        assert await player.next() is not None
        now = hub.played.now()
        hub.played.now = lambda: now + timedelta(days=2)
        assert await player.next() is None
        await hub.played.sweep()
        ended = await player.info()
    assert (ended["state"], ended["figures"]["mean"]["value"]) == ("ended", 0.25)
    assert ended["figures"]["ends"] == {"completed": 1, "expired": 1, "not_begun": 2}


async def test_an_episode_that_takes_too_long_expires_and_one_that_ended_is_found(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=2)
        first, second = await player.next(), await player.next()
        assert first is not None
        assert second is not None
        await player.act(first, right=True)
        await hub.played.sweep()
        assert (await player.info())["state"] == "open"
        began = hub.played.clock()
        for client_of_run in hub.played._clients.values():
            for live in client_of_run.episodes.values():
                assert live.started <= began
                live.started -= hub.limits.episode_seconds + 1
        await hub.played.sweep()
        ended = await player.info()
    assert ended["figures"]["ends"] == {"completed": 1, "expired": 1}
    assert ended["figures"]["mean"]["value"] == 0.5


async def test_a_run_that_was_deleted_while_it_was_played_does_not_keep_others_open(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client() as alice, hub.client("bob") as bob:
        gone, stays = await Player.register(alice, package), await Player.register(bob, package)
        assert await gone.next() is not None
        first = await stays.next()
        assert first is not None
        await stays.act(first, right=True)
        whole = parts_of(hub.app).hub
        await asyncio.to_thread(
            PersonalResults(whole.database, whole.blobs, parts_of(hub.app).results.rollouts).delete, "alice"
        )
        await hub.played.sweep()
        assert gone.key not in hub.played._clients
        now = hub.played.now()
        hub.played.now = lambda: now + timedelta(days=2)
        await hub.played.sweep()
        ended = await stays.info()
    assert (ended["state"], ended["figures"]["ends"]["completed"]) == ("ended", 1)


async def test_a_run_goes_on_at_the_next_hub_and_rows_that_were_written_stay(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=3)
        first = await player.next()
        assert first is not None
        await player.act(first, right=True)
        await player.end(first)
        assert await player.next() is not None
    await hub.stop()
    await hub.start()
    async with hub.client() as client:
        again = Player(client, player.run)
        tickets = (await client.get(f"/api/v1/runs/{player.key}/episodes")).json()["tickets"]
        assert tickets == []
        ended = await again.play(right=2)
        assert ended["figures"]["ends"] == {"completed": 3}
        assert [row["attempts"] for row in await again.rows()] == [1, 2, 1]


async def test_a_player_that_comes_back_finds_its_open_episodes(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package)
        ticket = await player.next()
        assert ticket is not None
        found = (await client.get(f"/api/v1/runs/{player.key}/episodes")).json()["tickets"]
    assert [(one["place"], one["playUrl"]) for one in found] == [(ticket["place"], ticket["playUrl"])]


async def test_limits_name_themselves(start_hub: Any) -> None:
    hub: ResultsHub = await start_hub(open_runs=1, open_episodes=1, run_episodes=4, runs_of_board=2)
    hub.publish("ada/limited")
    where = "/api/v1/environments/ada/limited/versions/1.0.0/runs"
    async with hub.client() as client:
        player = await Player.register(client, "ada/limited", tasks=2)
        second = await client.post(where, json=run_params())
        assert (second.status_code, second.json()["error"]["data"]["limit"]) == (429, "open_runs")
        assert kind_of(await client.post(where, json=run_params(tasks=3, samples=2))) == "InvalidParams"
        where_next = f"/api/v1/runs/{player.key}/episodes"
        answers = await asyncio.gather(*(client.post(where_next) for _ in range(4)))
        assert sorted(one.status_code for one in answers) == [200, 429, 429, 429]
        full = next(one for one in answers if one.status_code == 429)
        assert full.json()["error"]["data"]["limit"] == "open_episodes"
        await client.post(f"/api/v1/runs/{player.key}/end")
        last = (await client.post(where, json=run_params())).json()["key"]
        await client.post(f"/api/v1/runs/{last}/end")
        answer = await client.post(where, json=run_params())
        assert (answer.status_code, answer.json()["error"]["data"]["limit"]) == (429, "runs_of_board")


REFUSED: dict[str, list[dict[str, Any]]] = {
    "EnvironmentNotFound": [{"environment": "nope"}],
    "SplitNotFound": [{"split": "nope"}],
    "InvalidParams": [
        {"tasks": 41}, {"tasks": 0}, {"tasks": 10**9}, {"samples": 0}, {"model": ""}, {"model": "a\nb"}, {"by": "bob"},
    ],
}  # fmt: skip


async def test_a_run_that_cannot_be_played_is_refused(hub: ResultsHub, package: str) -> None:
    where = f"/api/v1/environments/{package}/versions/1.0.0/runs"
    async with hub.client() as client:
        for kind, many in REFUSED.items():
            for params in many:
                answer = await client.post(where, json=run_params(**params))
                assert kind_of(answer) == kind, (params, answer.text)
        assert kind_of(await client.post(where, json={**run_params(), "by": "bob"})) == "InvalidParams"
        assert kind_of(await client.post(where, content=b"nonsense")) == "InvalidParams"
        boards = await client.get(f"/api/v1/environments/{package}/versions/1.0.0/boards")
    assert boards.json()["boards"] == []


async def test_a_yanked_version_is_not_played_and_its_boards_stay(hub: ResultsHub, package: str) -> None:
    async with hub.client("ada") as client:
        await (await Player.register(client, package)).play(right=3)
        yanked = await client.post(
            f"/api/v1/environments/{package}/versions/1.0.0/yank", json={"reason": "wrong answers"}
        )
        assert yanked.status_code == 200
        answer = await client.post(f"/api/v1/environments/{package}/versions/1.0.0/runs", json=run_params())
        assert kind_of(answer) == "Conflict"
        assert "wrong answers" in answer.text
    assert len((await board_of(hub, package))["rows"]) == 1


def test_the_limits_are_those_of_the_docs() -> None:
    limits = ResultLimits()
    assert (limits.open_runs, limits.runs_of_board, limits.run_episodes, limits.open_episodes) == (4, 200, 2_000, 16)
    assert (limits.run_seconds, limits.episode_seconds) == (24 * 3600, 3600)
    assert (limits.attempts, limits.reruns_share) == (3, 0.1)
    assert (SUBMISSION_EPISODES, limits.submission_bytes, FILE_BYTES) == (5_000, 4 << 20, 32 << 20)


async def test_requests_for_episodes_that_meet_the_end_of_the_run_find_none_left(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        for _ in range(5):
            player = await Player.register(client, package, tasks=2)
            tickets = [await player.next(), await player.next()]
            for ticket in tickets:
                assert ticket is not None
                await player.act(ticket, right=True)

            async def end_and_ask(one: dict[str, Any], run: Player = player) -> list[Any]:
                await run.end(one)
                return [await run.next(), await run.next()]

            left = await asyncio.gather(*(end_and_ask(one) for one in tickets if one is not None))
            assert left == [[None, None], [None, None]]
            assert (await player.info())["figures"]["ends"] == {"completed": 2}


async def test_registrations_at_one_time_do_not_exceed_the_limit_on_open_runs(start_hub: Any) -> None:
    hub: ResultsHub = await start_hub(open_runs=2)
    hub.publish("ada/crowded")
    where = "/api/v1/environments/ada/crowded/versions/1.0.0/runs"
    async with hub.client() as client:
        bodies = [
            run_params(environment=name, split=split) for name in ("locks", "debts") for split in ("train", "test")
        ]
        answers = await asyncio.gather(*(client.post(where, json=body) for body in bodies * 2))
    assert sorted(one.status_code for one in answers) == [201, 201, *[429] * 6]
