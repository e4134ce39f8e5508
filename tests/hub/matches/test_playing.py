"""Matches: the hub pairs, starts and scores; entrants of two accounts play."""

from __future__ import annotations

from match_hub import Contender, board_of, play
from results_hub import ResultsHub


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
