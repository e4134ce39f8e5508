"""Ways to a better place on a board of matches; each of them fails."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hubs import kind_of
from match_hub import Contender, bid, board_of, call, entrant_params, matches_of, meet, play, publish
from results_hub import OWNER, ResultsHub, StartHub
from sqlalchemy import select

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.hub.database.match_tables import Match, MatchBoardRow
from ludus.protocol.errors import LudusError


async def test_entrants_of_one_account_never_meet(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one:
        main = await Contender.register(one, package, model="main")
        sybil = await Contender.register(one, package, model="sybil")
        answers = await asyncio.gather(main.ask(0.5), sybil.ask(0.5))
    assert [answer["ticket"] for answer in answers] == [None, None]


async def test_matches_between_entrants_of_one_account_would_not_count(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        sybil = await Contender.register(one, package, model="sybil")
        await play(alice, bob, 1, 2)
        await play(sybil, bob, 1, 2)
        with hub.app.state.hub.database.writing() as session:
            matches = session.scalars(select(Match).order_by(Match.id)).all()
            ids = {one for match in matches for one in (match.first_id, match.second_id)}
            common = {matches[0].first_id, matches[0].second_id} & {matches[1].first_id, matches[1].second_id}
            matches[0].first_id, matches[0].second_id = ids - common  # as if the two had met
            session.get_one(MatchBoardRow, matches[0].board_id).changes += 1
    board = await board_of(hub, package)
    assert sum(row["matches"] for row in board["rows"]) == 2


async def test_two_accounts_meet_a_bounded_number_of_times(start_hub: Any) -> None:
    hub = await start_hub(matches_of_pair=2)
    publish(hub, "ada/friends")
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client(OWNER) as third:
        alice = await Contender.register(one, "ada/friends")
        bob = await Contender.register(other, "ada/friends")
        for _ in range(2):
            assert await play(alice, bob, 2, 1) == ("win", "loss")
        renamed = await Contender.register(other, "ada/friends", model="renamed")
        answers = await asyncio.gather(alice.ask(0.5), bob.ask(0.5), renamed.ask(0.5))
        assert [answer["ticket"] for answer in answers] == [None] * 3
        ada = await Contender.register(third, "ada/friends")
        assert await play(alice, ada, 2, 1) == ("win", "loss")
        board = await board_of(hub, "ada/friends")
    assert [row["byPublisher"] for row in board["rows"] if row["by"] == OWNER] == [True]


async def test_breaking_matches_that_are_lost_loses_them_soon(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client(OWNER) as third:
        cheat = await Contender.register(one, package)
        bob, honest = await Contender.register(other, package), await Contender.register(third, package)
        for _ in range(2):
            tickets = await meet(cheat, bob)
            await call(tickets[0], "kick")
            assert (await cheat.end(tickets[0]))["state"] == "void"
        tickets = await meet(cheat, honest)
        await call(tickets[0], "kick")
        ended = await cheat.end(tickets[0])
        assert (ended["state"], ended["result"]) == ("ended", "loss")
        assert (await honest.end(tickets[1]))["result"] == "win"
        assert (await cheat.info())["voided"] == 2


async def test_requests_at_one_time_do_not_exceed_the_limits(start_hub: Any) -> None:
    hub = await start_hub(open_matches=2)
    publish(hub, "ada/crowd")
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, "ada/crowd", matches=3)
        bob = await Contender.register(other, "ada/crowd", matches=10)
        where = f"{alice.path}/next"
        asked = [asyncio.create_task(one.post(where, json={"waitSeconds": 10})) for _ in range(6)]
        refused: list[Any] = []
        while len(refused) < 4:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            refused += [one.result() for one in done]
            asked = [one for one in asked if one not in done]
        assert {answer.status_code for answer in refused} == {429}, "two wait, and the others are refused at once"
        assert all(answer.json()["error"]["data"]["limit"] == "open_matches" for answer in refused)
        tickets = [await bob.next(), await bob.next()]
        assert kind_of(await other.post(f"{bob.path}/next", json={"waitSeconds": 0})) == "CapacityError"
        mine = [(await one_asked).json() for one_asked in asked]
        assert {answer["ticket"]["match"] for answer in mine} == {ticket["match"] for ticket in tickets}
        for ticket in tickets:
            await bob.end(ticket)
        answers = await asyncio.gather(*(one.post(where, json={"waitSeconds": 0.2}) for _ in range(2)))
        assert sorted(answer.json()["left"] for answer in answers if answer.status_code == 200) == [1, 1]


async def test_an_end_that_is_sent_again_changes_nothing(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        await asyncio.gather(bid(tickets[0], 2), bid(tickets[1], 1))
        ends = [await alice.end(tickets[0]) for _ in range(3)] + [await bob.end(tickets[1])]
        assert [end["result"] for end in ends] == ["win", "win", "win", "loss"]
        await call(tickets[0], "look")
        assert (await alice.end(tickets[0]))["result"] == "win"
        assert (await board_of(hub, package))["matches"] == 1


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("who", ["bob", OWNER, "root", None])
async def test_the_entrant_of_another_account_is_out_of_reach(hub: ResultsHub, package: str, who: str | None) -> None:
    refusal = "Forbidden" if who else "Unauthenticated"
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client(who) as thief:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = await meet(alice, bob)
        for path in ("/next", f"/matches/{tickets[0]['match']}/end", "/withdraw"):
            assert kind_of(await thief.post(alice.path + path, json={})) == refusal, path
        assert kind_of(await thief.get(f"{alice.path}/open")) == refusal
        await asyncio.gather(bid(tickets[0], 2), bid(tickets[1], 1))
        assert (await alice.end(tickets[0]))["result"] == "win"


async def test_a_player_cannot_end_a_match_of_others(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client(OWNER) as third:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        ada = await Contender.register(third, package)
        tickets = await meet(alice, bob)
        for match in (tickets[0]["match"], "A" * 22):
            assert kind_of(await third.post(f"{ada.path}/matches/{match}/end")) == "NotFound"
        await asyncio.gather(bid(tickets[0], 2), bid(tickets[1], 1))
        assert (await bob.end(tickets[1]))["result"] == "loss"


async def test_a_seat_sees_nothing_of_the_other_one(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = {ticket["seat"]: ticket for ticket in await meet(alice, bob)}
        async with open_agent_endpoint(tickets["red"]["playUrl"]) as red:
            async with open_agent_endpoint(tickets["blue"]["playUrl"]) as blue:
                assert "ruby" in str(red.prompt)
                assert "sea" in str(blue.prompt)
                await red.call("bid", number=7)
                seen = [str(blue.prompt), str(await blue.call("wait")), str(await blue.call("look"))]
        assert not any("ruby" in text or "reward=1" in text or "Reward" in text for text in seen)
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as agent:
            for method in ("episodes/get", "episodes/rewards", "episodes/close", "episodes/fork", "episodes/start"):
                request = {"jsonrpc": "2.0", "id": 1, "method": f"dev.ludus/{method}", "params": {}}
                assert "result" not in (await agent.post(tickets["blue"]["playUrl"], json=request)).text, method
        with pytest.raises(LudusError):
            async with open_agent_endpoint(tickets["red"]["playUrl"] + "x", reconnect_seconds=0.1):
                pass


async def test_taking_back_an_entrant_keeps_its_losses_for_the_others(hub: ResultsHub, package: str) -> None:
    where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=2)
        bob = await Contender.register(other, package, matches=2)
        remove = f"{alice.path}/remove"
        assert kind_of(await one.post(remove, json={"reason": "a bug"})) == "Conflict", "it is open"
        for _ in range(2):
            assert await play(alice, bob, 1, 2) == ("loss", "win")
        assert kind_of(await other.post(remove, json={"reason": "mine"})) == "Forbidden"
        removed = (await one.post(remove, json={"reason": "a bug"})).json()
        assert (removed["removal"]["reason"], removed["rating"]) == ("a bug", None)
        board = await board_of(hub, package)
        assert [(row["by"], row["wins"]) for row in board["rows"]] == [("bob", 2)]
        assert board["removedEntrants"] == 1
        assert kind_of(await one.post(where, json=entrant_params(2))) == "Conflict", "not again under this name"
        log = (await one.get("/api/v1/results/removed-entrants")).json()["entries"]
        assert [(line["entrant"], line["by"], line["stillCounts"]) for line in log] == [(alice.key, "alice", True)]


async def test_matches_of_an_entrant_that_the_operator_removed_count_no_more(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other, hub.client("root") as root:
        alice = await Contender.register(one, package, matches=2)
        bob = await Contender.register(other, package, matches=2)
        for _ in range(2):
            assert await play(alice, bob, 2, 1) == ("win", "loss")
        assert (await board_of(hub, package))["rows"][0]["by"] == "alice"
        answer = await root.post(f"{bob.path}/remove", json={"reason": "lost on purpose"})
        assert answer.status_code == 200
        board = await board_of(hub, package)
        assert (board["rows"], board["matches"]) == ([], 0)
        log = (await one.get("/api/v1/results/removed-entrants")).json()["entries"]
        assert [(line["by"], line["reason"], line["stillCounts"]) for line in log] == [
            ("root", "lost on purpose", False)
        ]  # fmt: skip


async def stall(
    hub: ResultsHub, package: str, seconds: float, *, tool: str = "look", calls: int = 1
) -> tuple[str | None, str | None]:
    """Let the first seat make calls that are no moves, while the clock of the hub goes on; return both results.

    Every 100 s, both players call a tool, and the hub looks at the match.
    """
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        tickets = dict(zip((alice, bob), await meet(alice, bob), strict=True))
        staller = next(player for player, ticket in tickets.items() if ticket["seat"] == "red")
        honest = bob if staller is alice else alice
        matches = matches_of(hub)
        began, passed = matches.clock(), 0.0
        matches.clock = lambda: began + passed
        for lobby in matches._lobbies.values():
            lobby.client._clock = lambda: matches.clock()
        while passed <= seconds:
            await call(tickets[honest], "look")
            for _ in range(calls):
                await call(tickets[staller], tool)
            await matches.sweep()
            passed += 100.0
        found = []
        for player in (staller, honest):
            state = (await player.client.get(f"/api/v1/matches/{tickets[player]['match']}")).json()["state"]
            found.append(None if state == "open" else (await player.end(tickets[player]))["result"])
        return found[0], found[1]


async def duel(hub: ResultsHub, package: str, *rounds: tuple[str, str]) -> tuple[str, ...]:
    """Let two seats that move at the same time make these calls; return its state, and the results of red and blue.

    Every 100 s, red makes the first call and blue the second one, and the hub looks at the match.
    """
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, environment="duel")
        bob = await Contender.register(other, package, environment="duel")
        tickets = {ticket["seat"]: ticket for ticket in await meet(alice, bob)}
        matches = matches_of(hub)
        began, passed = matches.clock(), 0.0
        matches.clock = lambda: began + passed
        for lobby in matches._lobbies.values():
            lobby.client._clock = lambda: matches.clock()
        for red, blue in rounds:
            await call(tickets["red"], red)
            await call(tickets["blue"], blue)
            await matches.sweep()
            passed += 100.0
        found = (await one.get(f"/api/v1/matches/{tickets['red']['match']}")).json()
        results = {side["seat"]: side["result"] for side in found["sides"]}  # of ended matches only
        return found["state"], *(results[seat] for seat in ("red", "blue") if results)


LOOK, THROW = "look", "throw"


async def test_of_two_seats_that_move_at_the_same_time_the_one_that_does_not_move_loses(start_hub: StartHub) -> None:
    hub = await start_hub(move_seconds=450.0)
    publish(hub, "ada/duel")
    red_loses, blue_loses = ("ended", "loss", "win"), ("ended", "win", "loss")
    waits = [(LOOK, THROW), *[(LOOK, LOOK)] * 5]
    assert await duel(hub, "ada/duel", *waits) == red_loses
    assert await duel(hub, "ada/duel", *[(blue, red) for red, blue in waits]) == blue_loses
    both = [(THROW, THROW), *[(LOOK, LOOK)] * 3, (THROW, LOOK), *[(LOOK, LOOK)] * 3]
    assert await duel(hub, "ada/duel", *both) == blue_loses, "after an equal first round, blue does not move"
    assert await duel(hub, "ada/duel", *[(LOOK, LOOK)] * 6) == ("void",), "neither has moved"


async def test_of_two_seats_that_move_at_the_same_time_the_slower_one_loses_a_match_that_takes_too_long(
    start_hub: StartHub,
) -> None:
    hub = await start_hub(move_seconds=450.0, match_seconds=900.0)
    publish(hub, "ada/duel")
    slow = [*[(LOOK, LOOK)] * 3, (LOOK, THROW), (THROW, LOOK)] * 2
    assert await duel(hub, "ada/duel", *slow, (LOOK, LOOK)) == ("ended", "loss", "win")
    quick = [(LOOK, LOOK), (THROW, THROW), *[(LOOK, LOOK)] * 2]
    assert await duel(hub, "ada/duel", *quick) == ("open",), "both may think"


async def test_a_player_that_stalls_with_calls_that_are_no_moves_loses(hub: ResultsHub, package: str) -> None:
    limits = matches_of(hub)._limits
    assert await stall(hub, package, limits.move_seconds - 100.0) == (None, None), "it may think"
    assert await stall(hub, package, limits.move_seconds + 100.0) == ("loss", "win")
    assert limits.move_seconds < limits.match_seconds / 2


async def test_a_player_that_stalls_with_very_many_calls_loses(start_hub: StartHub) -> None:
    hub = await start_hub(move_calls=5)
    publish(hub, "ada/many")
    assert await stall(hub, "ada/many", 100.0, calls=2) == (None, None)
    assert await stall(hub, "ada/many", 100.0, calls=6) == ("loss", "win")


async def test_a_player_that_delays_until_the_match_takes_too_long_loses_it(start_hub: StartHub) -> None:
    hub = await start_hub(move_seconds=10_000.0, match_seconds=1_000.0)
    publish(hub, "ada/slow")
    assert await stall(hub, "ada/slow", 900.0) == (None, None)
    assert await stall(hub, "ada/slow", 1_100.0) == ("loss", "win"), "not void, so there is nothing to gain"
