"""Matches: the hub pairs, starts and scores; entrants of two accounts play."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from hubs import kind_of
from match_hub import BROKEN, Contender, bid, board_of, call, entrant_params, matches_of, meet, play, publish, store_of
from mcp import Client as McpClient
from results_hub import ResultsHub

from ludus.hub.results.matches.limits import MatchLimits
from ludus.registry.types.drawing import draw_seats, draw_seed, draw_tasks
from ludus.registry.types.errors import HubUnavailable
from ludus.registry.types.matches import LONGEST_WAIT, MATCHES, MatchOpening
from ludus.registry.types.signing import digest_of


async def test_two_entrants_meet_and_the_board_ranks_them(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=3)
        bob = await Contender.register(other, package, matches=3)
        assert await play(alice, bob, 5, 3) == ("win", "loss")
        assert await play(alice, bob, 5, 3) == ("win", "loss")
        assert await play(alice, bob, 4, 4) == ("draw", "draw")
        board = await board_of(hub, package)
        shown = await alice.info()
        matches = await bob.matches()
    rows = [(row["by"], row["wins"], row["draws"], row["losses"], row["state"]) for row in board["rows"]]
    assert rows == [("alice", 2, 1, 0, "ended"), ("bob", 0, 1, 2, "ended")]
    assert board["rows"][0]["rating"]["value"] > 1500 > board["rows"][1]["rating"]["value"]
    assert (board["seats"], board["matches"]) == (["red", "blue"], 3)
    assert (shown["registered"], shown["matches"], shown["state"]) == (3, 3, "ended")
    assert [match["number"] for match in matches] == [3, 2, 1]
    assert {side["reward"] for side in matches[1]["sides"]} == {1.0, -1.0}
    assert [side["seat"] for side in matches[0]["sides"]] == ["red", "blue"]


async def test_entrants_that_ask_two_processes_meet_at_one(hub: ResultsHub, package: str, tmp_path: Path) -> None:
    other = await hub.neighbor(tmp_path / "reached", peer_port=free_ports(1)[0])
    try:
        async with other.client("alice") as one, hub.client("bob") as two:
            alice, bob = await Contender.register(one, package), await Contender.register(two, package)
            assert (await alice.ask(0))["ticket"] is None, "from now on, this process plays the matches of the board"
            tickets = await meet(alice, bob)
            assert not matches_of(hub)._lobbies
            opened = (await two.get(f"{bob.path}/open")).json()["tickets"]
            assert [ticket["match"] for ticket in opened] == [tickets[0]["match"]]
            await asyncio.gather(bid(tickets[0], 5), bid(tickets[1], 3))
            assert (await bob.end(tickets[1]))["result"] == "loss"
            assert (await alice.end(tickets[0]))["result"] == "win"
            await other.stop()
            assert (await bob.ask(0))["ticket"] is None
            assert matches_of(hub)._lobbies, "when it has ended, another one does"
    finally:
        await other.stop()


async def test_a_stock_mcp_client_plays_a_seat(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)

        async def act(ticket: dict[str, str], number: int) -> None:
            async with McpClient(ticket["playUrl"]) as agent:
                if ticket["seat"] == "blue":
                    await agent.call_tool("wait", {})
                await agent.call_tool("bid", {"number": number})

        await asyncio.gather(act(tickets[0], 1), act(tickets[1], 2))
        await alice.end(tickets[0])
        assert (await bob.end(tickets[1]))["result"] == "win"


async def test_task_seed_and_seats_follow_from_the_secret_and_seats_are_balanced(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=4)
        bob = await Contender.register(other, package, matches=4)
        commitments = []
        for _ in range(4):
            tickets = await meet(alice, bob)
            commitments.append(tickets[0]["commitment"])
            assert tickets[1]["commitment"] == commitments[-1]
            await asyncio.gather(bid(tickets[0], 1), bid(tickets[1], 1))
            await alice.end(tickets[0])
        await matches_of(hub).sweep()
        matches = list(reversed(await alice.matches()))
    seats = []
    for match, commitment in zip(matches, commitments, strict=True):
        opening = MatchOpening.model_validate(match["opening"])
        assert match["commitment"] == commitment == digest_of(opening)
        assert draw_tasks(opening.secret, opening.count, 1) == [opening.index]
        assert opening.seed == draw_seed(opening.secret, opening.index, 0)
        pairs = list(zip(opening.entrants, opening.balances, strict=True))
        assert draw_seats(opening.secret, pairs[0], pairs[1]) == opening.entrants
        assert tuple(side["entrant"] for side in match["sides"]) == opening.entrants
        seats.append(opening.entrants[0] == alice.key)
    assert sum(seats) == 2
    assert seats[0] != seats[1]
    assert seats[2] != seats[3]


async def test_nothing_of_an_open_match_is_shown(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package)
        bob = await Contender.register(other, package, model="secret-model")
        tickets = await meet(alice, bob)
        path = f"/api/v1/matches/{tickets[0]['match']}"
        shown = (await one.get(path)).json()
        assert (shown["state"], shown["sides"], shown["opening"]) == ("open", [], None)
        await bid(tickets[0] if tickets[0]["seat"] == "red" else tickets[1], 3)
        mine = 0 if tickets[0]["seat"] == "red" else 1
        ended = await (alice, bob)[mine].end(tickets[mine])
        assert (ended["state"], ended["result"]) == ("ended", "loss"), "it left before the end"
        assert (await one.get(path)).json()["state"] == "ended"
        text = str(tickets[0])
        assert bob.key not in text
        assert "secret-model" not in text


async def test_who_leaves_or_withdraws_loses(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        assert await alice.end(tickets[0]) == {"match": tickets[0]["match"], "state": "ended", "result": "loss"}
        assert (await bob.end(tickets[1]))["result"] == "win"
        tickets = await meet(alice, bob)
        ended = (await other.post(f"{bob.path}/withdraw")).json()
        assert ended["state"] == "ended"
        assert (await alice.end(tickets[0]))["result"] == "win"
        assert (await bob.ask(0))["left"] == 0
        ends = [{side["end"] for side in match["sides"]} for match in await alice.matches()]
    assert ends == [{"forfeit", "completed"}] * 2


async def test_a_player_that_never_moves_loses(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = dict(zip((alice, bob), await meet(alice, bob), strict=True))
        mover = next(player for player, ticket in tickets.items() if ticket["seat"] == "red")
        waiter = bob if mover is alice else alice
        matches = matches_of(hub)
        began = matches.clock()
        await call(tickets[waiter], "look")
        matches.clock = lambda: began + matches._limits.idle_seconds / 2
        for lobby in matches._lobbies.values():
            lobby.client._clock = lambda: matches.clock()
        await matches.sweep()  # which sees the call of the one who waits
        matches.clock = lambda: began + matches._limits.idle_seconds * 1.2
        await matches.sweep()
        assert (await waiter.end(tickets[waiter]))["result"] == "win"
        assert (await mover.end(tickets[mover]))["result"] == "loss"


async def test_a_match_that_takes_too_long_is_void_and_counts_among_those_that_are_given_again(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        matches = matches_of(hub)
        later = matches.clock() + matches._limits.match_seconds + 1
        matches.clock = lambda: later
        for lobby in matches._lobbies.values():
            lobby.client._clock = matches.clock
        for ticket in tickets:
            await call(ticket, "look")
        await matches.sweep()
        assert [(await alice.end(tickets[0]))["state"], (await bob.end(tickets[1]))["state"]] == ["void", "void"]
        assert [(await alice.info())["voided"], (await bob.info())["voided"]] == [1, 1]


async def test_a_match_whose_infrastructure_broke_is_played_again_a_few_times(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=2)
        bob = await Contender.register(other, package, matches=2)
        for _ in range(2):
            BROKEN["auction"] = 1
            tickets = await meet(alice, bob)
            await call(tickets[0], "look")
            assert (await alice.end(tickets[0]))["state"] == "void"
        assert await play(alice, bob, 3, 1) == ("win", "loss")
        shown = await alice.info()
        assert (shown["voided"], shown["state"]) == (2, "open")
        BROKEN["auction"] = 1
        tickets = await meet(alice, bob)
        await call(tickets[1], "look")
        assert (await bob.end(tickets[1]))["state"] == "void"
        assert (await alice.info())["state"] == "ended", "the third broken match is not given again"
        assert (await alice.ask(0))["left"] == 0


async def test_an_entrant_alone_meets_scripts_in_at_most_half_of_its_matches(start_hub: Any) -> None:
    hub = await start_hub(script_seconds=0.0)
    publish(hub, "ada/lonely")
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, "ada/lonely", matches=5)
        results = []
        for number in (5, 5):  # the scripts say 2 and 8
            ticket = await alice.next(0.0)
            await bid(ticket, number)
            results.append((await alice.end(ticket))["result"])
        assert sorted(map(str, results)) == ["loss", "win"]
        answer = await alice.ask(0.0)
        assert (answer["ticket"], answer["left"]) == (None, 3)
        bob = await Contender.register(other, "ada/lonely", matches=2)
        ticket = await bob.next(0.0)
        assert (await bob.end(ticket))["result"] == "loss", "leaving a script is losing, too"
    board = await board_of(hub, "ada/lonely")
    scripts = {row["declared"]["model"]: row for row in board["rows"] if row["isScript"]}
    assert set(scripts) == {"weak", "strong"}
    assert {row["by"] for row in scripts.values()} == {"(script)"}
    assert scripts["strong"]["rating"]["value"] > scripts["weak"]["rating"]["value"]


async def test_matches_end_and_open_ones_are_void_when_the_hub_stops(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        assert await play(alice, bob, 3, 1) == ("win", "loss")
        tickets = await meet(alice, bob)
    await hub.stop()
    await hub.start()
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = Contender(one, {"key": alice.key}), Contender(other, {"key": bob.key})
        assert (await one.get(f"/api/v1/matches/{tickets[0]['match']}")).json()["state"] == "void"
        assert ((await alice.info())["matches"], (await alice.info())["voided"]) == (1, 0)
        assert (await alice.end(tickets[0]))["result"] is None
        assert await play(alice, bob, 1, 1) == ("draw", "draw")


async def test_another_process_leaves_open_matches_alone_until_theirs_has_ended(
    hub: ResultsHub, package: str, tmp_path: Path
) -> None:
    async with hub.client("alice") as one, hub.client("bob") as two:
        alice, bob = await Contender.register(one, package), await Contender.register(two, package)
        tickets = await meet(alice, bob)
        other = await hub.neighbor(tmp_path / "other")
        try:
            await other.app.state.matches.sweep()
            shown = f"/api/v1/matches/{tickets[0]['match']}"
            assert (await one.get(shown)).json()["state"] == "open"
            await hub.stop()
            await other.app.state.matches.sweep()
            async with other.client("alice") as again:
                assert (await again.get(shown)).json()["state"] == "void"
        finally:
            await other.stop()


async def test_an_entrant_whose_opponent_ends_before_the_start_asks_again_and_learns_nothing(
    hub: ResultsHub, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(hub)
    open_match = store.open_match

    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)

        def withdrawn_before(opening: MatchOpening, now: datetime) -> str:
            store.withdraw(bob.key, now)
            return open_match(opening, now)

        monkeypatch.setattr(store, "open_match", withdrawn_before)
        answers = await asyncio.gather(alice.ask(), bob.ask())
    assert list(answers) == [{"ticket": None, "left": left, "open": 0} for left in (4, 0)]


async def test_an_end_that_cannot_be_written_is_written_later_as_it_was(
    hub: ResultsHub, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise HubUnavailable("the database is away")

    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        with monkeypatch.context() as broken:
            broken.setattr(store_of(hub), "settle", fail)
            assert (await one.post(f"{alice.path}/matches/{tickets[0]['match']}/end")).status_code == 503
            with pytest.raises(HubUnavailable):
                await matches_of(hub).sweep()
        await matches_of(hub).sweep()
        assert [(await alice.end(tickets[0]))["result"], (await bob.end(tickets[1]))["result"]] == ["loss", "win"]
        assert (await alice.info())["voided"] == 0


async def test_a_match_that_was_written_and_never_started_is_void_in_time(hub: ResultsHub, package: str) -> None:
    store, matches = store_of(hub), matches_of(hub)
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=1)
        bob = await Contender.register(other, package, matches=1)
        opening = MatchOpening(
            secret="0a" * 32, environment="auction", split="test", count=30, index=0, task="deal0", seed=None,
            entrants=(alice.key, bob.key), balances=(0, 0),
        )  # fmt: skip
        match = store.open_match(opening, matches.now())
        await matches.sweep()
        assert (await one.get(f"/api/v1/matches/{match}")).json()["state"] == "open"
        assert (await alice.ask(0))["left"] == 0
        later = matches.now() + timedelta(seconds=2 * MatchLimits().match_seconds + 1)
        matches.now = lambda: later
        await matches.sweep()
        assert (await one.get(f"/api/v1/matches/{match}")).json()["state"] == "void"
        assert await play(alice, bob, 2, 1) == ("win", "loss"), "both have their match again"


async def test_a_player_that_comes_back_finds_its_open_match(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        found = (await one.get(f"{alice.path}/open")).json()["tickets"]
    assert [(ticket["match"], ticket["playUrl"]) for ticket in found] == [(tickets[0]["match"], tickets[0]["playUrl"])]


async def test_an_entrant_ends_at_its_deadline_with_the_matches_that_it_has(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        assert await play(alice, bob, 3, 1) == ("win", "loss")
        matches = matches_of(hub)
        now = matches.now()
        matches.now = lambda: now + timedelta(days=8)
        assert (await alice.ask(0))["ticket"] is None
        await matches.sweep()
        shown = await alice.info()
    assert (shown["state"], shown["matches"], shown["registered"]) == ("ended", 1, 4)


async def test_registering_again_adds_matches_to_the_same_rating(hub: ResultsHub, package: str) -> None:
    where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
    async with hub.client("alice") as one:
        first = (await one.post(where, json=entrant_params(2))).json()
        again = (await one.post(where, json=entrant_params(3))).json()
        assert (again["key"], again["registered"]) == (first["key"], 5)
        refused = await one.post(where, json=entrant_params(3, options={"temperature": 1}))
        assert kind_of(refused) == "Conflict"
        assert "another name of the model" in refused.text


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"matches": 0}, "InvalidParams"), ({"matches": MATCHES + 1}, "InvalidParams"), ({"odd": 1}, "InvalidParams"),
        ({"environment": "locks"}, "Unsupported"), ({"environment": "melee"}, "Unsupported"),
        ({"environment": "nope"}, "EnvironmentNotFound"),
        ({"split": "nope"}, "SplitNotFound"), ({"declared": {}}, "InvalidParams"),
    ],
)  # fmt: skip
async def test_registrations_that_cannot_be_played_are_refused(
    hub: ResultsHub, package: str, change: dict[str, object], kind: str
) -> None:
    async with hub.client("alice") as one:
        where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
        answer = await one.post(where, json={**entrant_params(), **change})
    assert kind_of(answer) == kind
    assert answer.status_code < 500


async def test_an_endpoint_that_cannot_be_reached_is_not_named_to_players(hub: ResultsHub, package: str) -> None:
    where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
    async with hub.client("alice") as one, hub.client("bob") as other:
        real, hub.address = hub.address, "http://127.0.0.1:9"
        answers = [await one.post(where, json=entrant_params())]
        hub.address = real
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        hub.address = "http://127.0.0.1:9"
        wait = {"waitSeconds": 20}
        asked = (player.client.post(f"{player.path}/next", json=wait) for player in (alice, bob))
        answers += await asyncio.gather(*asked)
    assert [(answer.status_code, kind_of(answer)) for answer in answers] == [(503, "HubUnavailable")] * 3
    assert not any("127.0.0.1" in answer.text for answer in answers)


async def test_a_yanked_version_takes_no_entrants(hub: ResultsHub, package: str) -> None:
    async with hub.client("ada") as one:
        await one.post(f"/api/v1/environments/{package}/versions/1.0.0/yank", json={"reason": "wrong rules"})
        answer = await one.post(f"/api/v1/environments/{package}/versions/1.0.0/entrants", json=entrant_params())
    assert kind_of(answer) == "Conflict"
    assert "wrong rules" in answer.text


async def test_limits_name_themselves(start_hub: Any) -> None:
    hub = await start_hub(open_entrants=2, entrants_of_account=2, entrants_of_board=5)
    for name in ("ada/limited", "ada/other"):
        publish(hub, name)
    where = "/api/v1/environments/ada/limited/versions/1.0.0/entrants"
    async with hub.client("alice") as one:
        alice = await Contender.register(one, "ada/limited", model="a")
        await Contender.register(one, "ada/limited", model="b")
        answer = await one.post(where, json=entrant_params(model="c"))
        assert (answer.status_code, answer.json()["error"]["data"]["limit"]) == (429, "open_entrants")
        await one.post(f"{alice.path}/withdraw")
        answer = await one.post(where, json=entrant_params(model="c"))
        assert answer.json()["error"]["data"]["limit"] == "entrants_of_account"
        await Contender.register(one, "ada/other", model="c")
    async with hub.client("bob") as other:
        await Contender.register(other, "ada/limited")
        answer = await other.post(where, json=entrant_params(model="n"))
        assert answer.json()["error"]["data"]["limit"] == "entrants_of_board", "two scripts and three entrants"


def test_the_limits_are_those_of_the_docs() -> None:
    limits = MatchLimits()
    assert (limits.open_entrants, limits.entrants_of_account, limits.entrants_of_board) == (8, 20, 200)
    assert (limits.open_matches, limits.matches_of_pair, MATCHES, LONGEST_WAIT) == (4, 50, 1_000, 30.0)
    assert (limits.entrant_seconds, limits.match_seconds, limits.idle_seconds) == (7 * 24 * 3600, 3600, 300)
    assert (limits.voided_share, limits.allowed_voids(1), limits.allowed_voids(50)) == (0.1, 2, 5)
    assert limits.script_seconds == 10
