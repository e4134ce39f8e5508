"""Played runs: the hub draws, starts and scores; stock MCP clients play."""

from __future__ import annotations

from hub_results import Player, ResultsHub


async def test_a_stock_mcp_client_plays_a_run_that_the_hub_scores(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=4)
        assert (player.run["state"], player.run["number"], player.run["figures"]) == ("open", 1, None)
        ended = await player.play(right=3, input_tokens=100, output_tokens=10)
        assert ended["state"] == "ended"
        assert ended["figures"]["mean"]["value"] == 0.75
        assert ended["figures"]["ends"] == {"completed": 4}
        assert ended["figures"]["inputTokens"] == 400
        rows = await player.rows()
        assert sorted(row["value"] for row in rows) == [0.0, 1.0, 1.0, 1.0]
        board = (
            await client.get(
                f"/api/v1/environments/{package}/versions/1.0.0/board", params={"environment": "locks", "split": "test"}
            )
        ).json()
        assert [(row["by"], row["mean"]["value"], row["accountRuns"]) for row in board["rows"]] == [("alice", 0.75, 1)]
