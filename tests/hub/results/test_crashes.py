"""A hub that is killed while a run is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from played_hubs import ENDED, act, kill, start
from results_hub import Player

from ludus.environments.guess_number import GuessNumber


@pytest.mark.suite("hub")
async def test_rows_of_a_killed_hub_stay_and_the_run_goes_on_to_its_end(serve: Any, tmp_path: Path) -> None:
    ludus = await serve(GuessNumber)
    process, url = start(tmp_path / "data", ludus.url)
    params = {"environment": "guess_number", "split": "test", "tasks": 4, "declared": {"model": "m"}}
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            answer = await client.post("/api/v1/environments/ludus/guess-number/versions/latest/runs", json=params)
            player = Player(client, answer.json())
            assert await player.end(await act(player, whole=True)) in ENDED
            cut = await act(player, whole=False)
    finally:
        kill(process)
    process, url = start(tmp_path / "data", ludus.url)
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            player = Player(client, player.run)
            again = await act(player, whole=True)
            assert (again["place"], again["playUrl"] != cut["playUrl"]) == (cut["place"], True)
            await player.end(again)
            await player.end(await act(player, whole=True))
            ended = (await client.post(f"/api/v1/runs/{player.key}/end")).json()
            rows = await player.rows()
    finally:
        kill(process)
    assert [row["attempts"] for row in rows] == [1, 2, 1, 0]
    assert [row["end"] in ENDED for row in rows] == [True, True, True, False]
    assert rows[3]["end"] == "not_begun"
    assert ended["figures"]["episodes"] == 4
