"""Runs of a blocked version end without a score, and none begins."""

from __future__ import annotations

from hubs import kind_of
from results_hub import Player, ResultsHub, board_of, run_params

from ludus.hub.app import parts_of

REASON = "it sends prompts to a stranger"


async def blocked(hub: ResultsHub, package: str) -> None:
    async with hub.client("root") as root:
        sha256 = (await root.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()["sha256"]
        answer = await root.put(f"/api/v1/blocks/{sha256}", json={"reason": REASON})
        assert answer.status_code == 200, answer.text


async def test_an_open_run_of_a_blocked_version_ends_unscored_and_says_why(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        scored = await Player.register(client, package, tasks=2)
        before = await scored.play(2)
        player = await Player.register(client, package, tasks=3)
        ticket = await player.next()
        assert ticket is not None
        await player.act(ticket, right=True)
        await player.end(ticket)
        live = await player.next()
        assert live is not None
        await blocked(hub, package)
        run = await player.info()
        assert (run["state"], run["figures"], run["removal"]["by"]) == ("ended", None, "root")
        assert REASON in run["removal"]["reason"]
        assert not hub.played._clients, "the live episode was dropped"
        assert await player.next() is None
        assert await player.end(live) in ("infrastructure_error", "not_begun")
        page = await client.get(f"/runs/{player.key}", headers={"accept": "text/html"})
        assert REASON in page.text
        assert (await scored.info())["figures"] == before["figures"], "what had ended keeps its score"
    assert [row["mean"]["value"] for row in (await board_of(hub, package))["rows"]] == [1.0]


async def test_no_run_of_a_blocked_version_begins(hub: ResultsHub, package: str) -> None:
    await blocked(hub, package)
    async with hub.client() as client:
        answer = await client.post(f"/api/v1/environments/{package}/versions/1.0.0/runs", json=run_params())
        assert kind_of(answer) == "VersionBlocked"
        assert REASON in answer.text


async def test_a_run_that_was_registered_while_its_version_was_blocked_is_ended_by_the_watch(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=2)
        sha256 = player.run["sha256"]
        parts_of(hub.app).hub.blocks.end_open({sha256: REASON})
        run = await player.info()
    assert (run["state"], run["figures"]) == ("ended", None)
    assert (await board_of(hub, package))["rows"] == []
