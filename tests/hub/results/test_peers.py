"""Two hub processes that reach each other: each answers for what the other one plays, until that is killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from free_ports import free_ports
from hubs import WheelParts, kind_of, published, release
from played_hubs import ENDED, act, kill, start
from postgres_server import PostgresServer
from results_hub import Player

from ludus.environments.guess_number import GuessNumber
from ludus.hub.core.peers import FORWARDED
from ludus.registry.types.packages import EnvironmentEntry

pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("hub")]
PARAMS = {"environment": "guess_number", "split": "test", "tasks": 4, "declared": {"model": "m"}}
PACKAGE = "local/guess"
RUNS = f"/api/v1/environments/{PACKAGE}/versions/1.0.0/runs"
LEASE = "10"


@dataclass
class Two:
    """Two hub processes on one PostgreSQL database, each with a data folder of its own."""

    processes: list[Popen[bytes]]
    urls: list[str]

    def client(self, number: int, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.urls[number], timeout=60, headers=headers)


@pytest.fixture
async def two(serve: Any, tmp_path: Path, postgres: PostgresServer) -> Any:
    ludus, url, found = await serve(GuessNumber), postgres.new_url(), Two([], [])
    try:
        for name, port in zip("ab", free_ports(2), strict=True):
            (tmp_path / name).mkdir()
            process, address = start(tmp_path / name / "data", ludus.url, url, LEASE, str(port))
            found.processes.append(process)
            found.urls.append(address)
        parts = WheelParts(PACKAGE.replace("/", "-"))
        parts.entry_points = f"[ludus.environments]\nguess_number = {parts.package}:Toss\n"
        entry = EnvironmentEntry(name="guess_number", source=f"{parts.package}:Toss")
        with httpx.Client(base_url=found.urls[0], timeout=60) as client:
            published(client, release(PACKAGE, parts=parts, environments=(entry,)))
        yield found
    finally:
        for one in found.processes:
            if one.poll() is None:
                kill(one)
    for name in "ab":
        assert "Traceback" not in (tmp_path / name / "hub.log").read_text()


async def test_a_run_is_played_through_any_process_and_one_of_them_has_its_episodes(two: Two) -> None:
    async with two.client(0) as first, two.client(1) as second, two.client(1, **{FORWARDED: "1"}) as looping:
        player = Player(first, (await first.post(RUNS, json=PARAMS)).json())
        ticket = await act(player, whole=False)
        where = f"/api/v1/runs/{player.key}/episodes"
        for client in (second, first):
            shown = (await client.get(where)).json()["tickets"]
            assert [(one["place"], one["playUrl"]) for one in shown] == [(ticket["place"], ticket["playUrl"])]
        await refused_alike(first, second, f"{where}/{ticket['place']}/end")
        once = await looping.post(where)
        assert (once.status_code, kind_of(once)) == (503, "HubUnavailable"), "it is passed on once"
        assert float(once.headers["retry-after"]) > 0
        player.client = second
        assert await player.end(ticket) == "closed"
        for client in (second, first):
            player.client = client
            assert await player.end(await act(player, whole=True)) in ENDED
        player.client = second
        await act(player, whole=False)
        player.client = first
        ended = await first.post(f"/api/v1/runs/{player.key}/end")
        assert (ended.status_code, ended.json()["state"]) == (200, "ended")
        rows = await player.rows()
    assert [row["attempts"] for row in rows] == [1, 1, 1, 1]
    assert [rows[0]["end"], rows[3]["end"]] == ["closed", "closed"]


async def refused_alike(first: httpx.AsyncClient, second: httpx.AsyncClient, where: str) -> None:
    """Check that what is wrong is refused by the process that passes a request on as by the one that plays."""
    for body, status in ((b"{", 400), (b'{"nothing": 1}', 400), (b"x" * 70_000, 413)):
        answers = [await client.post(where, content=body) for client in (first, second)]
        assert [one.status_code for one in answers] == [status, status]
        assert answers[0].json() == answers[1].json()
    evil = await second.post(where, json={}, headers={"origin": "https://evil.example"})
    assert evil.status_code == 403
    for path in ("/at/", "/at/x/e/a/b", f"/at/{'0' * 32}/e/{PACKAGE}/play/x/mcp", f"/at/{'0' * 32}"):
        answer = await second.get(path)
        assert (answer.status_code, kind_of(answer)) == (404, "NotFound"), path


async def test_a_run_whose_process_is_killed_goes_on_at_another_one(two: Two) -> None:
    async with two.client(0) as first, two.client(1) as second:
        player = Player(first, (await first.post(RUNS, json=PARAMS)).json())
        assert await player.end(await act(player, whole=True)) in ENDED
        cut = await act(player, whole=False)
        kill(two.processes[0])
        player.client = second
        path = f"/api/v1/runs/{player.key}/episodes"
        refused = 0
        while (answer := await second.post(path)).status_code != 200:
            assert (answer.status_code, kind_of(answer)) == (503, "HubUnavailable"), answer.text
            assert float(answer.headers["retry-after"]) > 0
            refused += 1
        again = answer.json()["ticket"]
        assert again["place"] == cut["place"]
        await player.end(again)
        while (ticket := (await second.post(path)).json()["ticket"]) is not None:
            await player.end(ticket)
        rows = await player.rows()
    assert refused, "the killed process counted as alive for a while"
    assert [row["attempts"] for row in rows] == [1, 2, 1, 1]
