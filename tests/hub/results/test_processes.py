"""Two hubs on one database: each plays its own episodes, and takes those of the other only when that one has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_ports
from hubs import kind_of
from played_hubs import ENDED, act, kill, start
from postgres_server import PostgresServer
from results_hub import Player, ResultsHub
from sqlalchemy import select, update

from ludus.environments.guess_number import GuessNumber
from ludus.hub.database import engine
from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.database.result_tables import HubProcess
from ludus.hub.results.processes import ProcessLease
from ludus.registry.types.errors import HubUnavailable

Join = Callable[[], Any]


@pytest.fixture
async def join(hub: ResultsHub, tmp_path: Path) -> AsyncIterator[Join]:
    """`other = await join()`: a second hub on the database of `hub`, with a data folder of its own."""
    hubs: list[ResultsHub] = []

    async def joined() -> ResultsHub:
        hubs.append(await hub.neighbor(tmp_path / f"other-{len(hubs)}"))
        return hubs[-1]

    yield joined
    for one in hubs:
        await one.stop()


async def begun(client: httpx.AsyncClient, package: str, tasks: int = 2) -> tuple[Player, dict[str, Any]]:
    """A run of which one episode is open."""
    player = await Player.register(client, package, tasks=tasks)
    ticket = await player.next()
    assert ticket is not None
    return player, ticket


async def test_a_hub_leaves_the_open_episodes_of_another_one_and_says_where_they_are(
    hub: ResultsHub, package: str, join: Join
) -> None:
    async with hub.client() as client:
        player, ticket = await begun(client, package)
        other = await join()
        await other.played.sweep()
        async with other.client() as at_other:
            where = f"/api/v1/runs/{player.key}"
            for path in ("episodes", "end", f"episodes/{ticket['place']}/end"):
                answer = await at_other.post(f"{where}/{path}", json={})
                assert (kind_of(answer), answer.status_code) == ("RunElsewhere", 409), path
            assert kind_of(await at_other.get(f"{where}/episodes")) == "RunElsewhere"
            await player.act(ticket, right=True)
            assert await player.end(ticket) == "completed"
            player.client = at_other  # none of its episodes is open now, so any hub goes on with it
            ended = await player.play(right=1)
    assert (ended["figures"]["mean"]["value"], ended["reruns"], ended["figures"]["episodes"]) == (1.0, 0, 2)


async def test_a_hub_passes_requests_on_to_the_one_that_plays_the_run(
    hub: ResultsHub, package: str, tmp_path: Path
) -> None:
    other = await hub.neighbor(tmp_path / "reached", peer_port=free_ports(1)[0])
    try:
        async with other.client() as at_other, hub.client() as client, hub.client("bob") as stranger:
            player, ticket = await begun(at_other, package)
            where = f"/api/v1/runs/{player.key}/episodes"
            assert (await client.get(where)).json()["tickets"][0]["playUrl"] == ticket["playUrl"]
            denied = await stranger.post(f"{where}/{ticket['place']}/end", json={})
            assert (denied.status_code, kind_of(denied)) == (403, "Forbidden"), "the other one checks who asks"
            player.client = client
            await player.act(ticket, right=True)
            assert await player.end(ticket) == "completed"
            ended = await player.play(right=1)
    finally:
        await other.stop()
    assert (ended["figures"]["mean"]["value"], ended["reruns"]) == (1.0, 0)


async def test_overdue_runs_are_ended_by_the_hub_that_plays_them(
    start_hub: Any, package: str, hub: ResultsHub, join: Join
) -> None:
    other = await join()
    async with hub.client() as client:
        player, ticket = await begun(client, package)
        late = player.run["deadline"].replace("+00:00", "")
        for one in (hub, other):
            one.played.now = lambda: _after(late)
        await other.played.sweep()
        assert (await player.info())["state"] == "open"
        await player.act(ticket, right=True)
        await hub.played.sweep()
        ended = await player.info()
        assert ended["figures"]["ends"] == {"completed": 1, "not_begun": 1}


def _after(text: str) -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime.fromisoformat(text.rstrip("Z")).replace(tzinfo=UTC) + timedelta(seconds=1)


async def test_what_a_stopped_hub_leaves_open_is_played_again_by_another_one(
    hub: ResultsHub, package: str, join: Join
) -> None:
    other = await join()
    async with other.client() as client:
        player, _ = await begun(client, package)
    await other.stop()
    await hub.played.sweep()
    async with hub.client() as client:
        player.client = client
        ended = await player.play(right=2)
        rows = await player.rows()
    assert ended["figures"]["mean"]["value"] == 1.0
    assert [row["attempts"] for row in rows] == [2, 1]


async def test_a_hub_that_lost_its_lease_writes_nothing_and_goes_on_under_a_new_one(
    hub: ResultsHub, package: str, join: Join
) -> None:
    other = await join()
    async with hub.client() as client, other.client() as at_other:
        player, ticket = await begun(client, package)
        before = hub.store.process
        hub.played._lease.end()  # as if it had been paused until its time was over
        await other.played.sweep()
        player.client = at_other
        again = await player.next()
        assert again is not None
        assert (again["place"], again["playUrl"] != ticket["playUrl"]) == (ticket["place"], True)
        await player.act(ticket, right=True)  # the old address still answers
        await hub.played.sweep()
        await player.act(again, right=False)
        assert await player.end(again) == "completed"
        await hub.played.renew()
        assert hub.store.process not in ("", before)
        player.client = client
        ended = await player.play(right=0)
        rows = await player.rows()
    assert [row["reward"] for row in rows] == [0.0, 0.0], "the episode of the hub without lease counts nowhere"
    assert ended["figures"]["episodes"] == 2


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database with all tables."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "hub.sqlite")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    found = Database(open_engine(url))
    migrate(found.engine)
    return found


def test_a_lease_is_kept_while_it_is_renewed_and_lost_once_another_process_has_taken_it(
    database: Database, tmp_path: Path
) -> None:
    first, second = (ProcessLease(database, tmp_path / name, 1e-6) for name in ("a", "b"))
    first.begin()
    assert first.renew(), "late, but no other process has noticed"
    second.begin()
    second.reclaim()
    assert not first.renew()
    before = first.id
    first.begin()
    assert first.id != before
    assert first.renew()
    first.end()
    second.end()
    database.close()


def test_a_process_of_the_same_folder_that_died_is_not_waited_for_and_one_that_lives_is_not_robbed(
    database: Database, tmp_path: Path
) -> None:
    first, second = (ProcessLease(database, tmp_path / "same", 3600.0) for _ in range(2))
    first.begin()
    second.begin()
    second.reclaim()
    assert first.renew()
    assert first._lock is not None
    first._lock.close()  # as the operating system does when a process dies
    second.reclaim()
    assert not first.renew()
    assert second.renew()
    assert [path.name for path in (tmp_path / "same").iterdir()] == [second.id]
    second.end()
    assert not list((tmp_path / "same").iterdir())
    database.close()


def test_a_process_that_is_paused_in_the_midst_of_a_transaction_is_not_waited_for(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_url()
    paused, other = Database(open_engine(url)), Database(open_engine(url))
    first, second = ProcessLease(paused, tmp_path / "a", 1e-6), ProcessLease(other, tmp_path / "b", 3600.0)
    migrate(other.engine)
    second.begin()
    monkeypatch.setattr(engine, "IDLE_SECONDS", 2.0)  # for connections from now on
    first.begin()

    def be_paused() -> None:
        with paused.writing() as session:
            session.execute(update(HubProcess).where(HubProcess.id == first.id).values(expires_at=0.0))
            second.reclaim()  # waits for the row, until the database ends the session that has it
            session.execute(select(1))

    with pytest.raises(HubUnavailable):
        be_paused()
    assert not first.renew(), "it goes on with a new connection, and finds that its lease was lost"
    first.end()
    second.end()
    for database in (paused, other):
        database.close()


@pytest.mark.timeout(300)  # as for other tests that start two hubs
@pytest.mark.suite("hub")
@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_two_hub_processes_on_one_postgres_take_episodes_of_a_lost_one_only(
    serve: Any, tmp_path: Path, postgres: PostgresServer, how: str
) -> None:
    ludus, url = await serve(GuessNumber), postgres.new_url()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, at_first = start(tmp_path / "a" / "data", ludus.url, url, "2")
    second, at_second = start(tmp_path / "b" / "data", ludus.url, url, "2")
    params = {"environment": "guess_number", "split": "test", "tasks": 3, "declared": {"model": "m"}}
    where = "/api/v1/environments/ludus/guess-number/versions/latest/runs"
    try:
        async with httpx.AsyncClient(base_url=at_first, timeout=60) as client:
            player = Player(client, (await client.post(where, json=params)).json())
            assert await player.end(await act(player, whole=True)) in ENDED
            cut = await act(player, whole=False)
        async with httpx.AsyncClient(base_url=at_second, timeout=60) as client:
            player.client = client
            path = f"/api/v1/runs/{player.key}/episodes"
            assert kind_of(await client.post(path)) == "RunElsewhere"
            os.kill(first.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            while (answer := await client.post(path)).status_code != 200:
                expected = {409: "RunElsewhere", 503: "HubUnavailable"}  # 503 if the lease ends in the midst of it
                assert kind_of(answer) == expected[answer.status_code]
            assert answer.json()["ticket"]["place"] == cut["place"]
            os.kill(first.pid, signal.SIGCONT) if how == "paused" else None
            await player.end(answer.json()["ticket"])
            assert await player.end(await act(player, whole=True)) in ENDED
            rows = await player.rows()
    finally:
        kill(first)
        kill(second)
    assert [row["attempts"] for row in rows] == [1, 2, 1]
    assert rows[1]["end"] == "closed"
