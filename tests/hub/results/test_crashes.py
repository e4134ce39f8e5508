"""A hub that is killed while a run is played."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from results_hub import Player

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.environments.guess_number import GuessNumber

ENDED = ("step_limit", "completed")
"""The ends of an episode in which the lowest number is guessed again and again; seldom it is the right one."""

HUB = Path(__file__).parents[2] / "support" / "hub_sites.py"


def start(data: Path, play_url: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a hub in a process of its own, and return its address."""
    with (data.parent / "hub.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, str(HUB), str(data), play_url], stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], 60)
    line = process.stdout.readline().decode() if readable else ""
    assert " at http" in line, (data.parent / "hub.log").read_text()
    return process, line.split(" at ")[1].split()[0]


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


async def act(player: Player, *, whole: bool) -> dict[str, Any]:
    """Play the next episode of a run to its end, or begin it."""
    ticket = await player.next()
    assert ticket is not None
    async with open_agent_endpoint(ticket["playUrl"]) as episode:
        found = re.search(r"from (\d+) to", str(episode.prompt[0].content))
        assert found is not None
        while whole and not episode.ended:
            await episode.call("guess", number=int(found[1]))
    return ticket


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
