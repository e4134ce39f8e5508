"""`ludus eval match` and `ludus hub verify` as people use them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from match_hub import Contender, board_of, meet, play, publish
from results_hub import ResultsHub, ludus
from verified_hub import ModelServer

from ludus.registry.match_play import play_matches
from ludus.registry.matches import MatchesClient
from ludus.registry.types.match_receipts import EntrantReceipt, verify_entrant
from ludus.registry.types.matches import OpenMatches
from ludus.registry.types.receipts import ReceiptRefused

POLICY = '''
"""Bids a number when it is its turn."""

from ludus.client import Call


async def act(conversation):
    said = str(conversation.items)
    may_move = ("You are red" in said) != ("It is the move of blue" in said)
    return Call("bid", {"number": NUMBER}) if may_move else Call("wait", {})
'''


@pytest.fixture
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


async def test_two_people_play_matches_with_one_command_each(hub: ResultsHub, package: str, tmp_path: Path) -> None:
    commands = []
    for who, number in (("alice", 7), ("bob", 3)):
        file = tmp_path / f"{who}.py"
        file.write_text(POLICY.replace("NUMBER", str(number)))
        commands.append(
            ludus(hub, "eval", "match", package, "--env", "auction", "--model", f"{file}:act", "--name", f"{who}-1",
                  "--matches", "2", "--out", str(tmp_path / f"{who}.jsonl"), who=who)
        )  # fmt: skip
    (code, out, errors), (other, _, other_errors) = await asyncio.gather(*commands)
    assert (code, other) == (0, 0), errors + other_errors
    assert "2 wins, 0 draws, 0 losses in 2 of 2 matches" in out
    assert errors.count(": win") == 2
    assert "registered for 2 matches" in errors
    lines = (tmp_path / "alice.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert not any('"reward":{' in line for line in lines)
    rows = (await board_of(hub, package))["rows"]
    assert [(row["declared"]["model"], row["wins"]) for row in rows] == [("alice-1", 2), ("bob-1", 0)]


async def test_a_model_that_fails_at_once_is_not_registered_for_matches(hub: ResultsHub, package: str) -> None:
    server = ModelServer(answer=lambda asked: web.json_response({"error": {"message": "no such model"}}, status=404))
    await server.start()
    try:
        name = f"openai:m@{server.url}"
        code, _, errors = await ludus(hub, "eval", "match", package, "--env", "auction", "--model", name)
    finally:
        await server.stop()
    assert code != 0
    assert "nothing was registered" in errors
    assert "no such model" in errors
    async with hub.client() as client:
        found = await client.get(f"/api/v1/environments/{package}/versions/1.0.0/match-boards")
    assert found.json()["boards"] == []


@pytest.mark.suite("hub")
async def test_without_opponents_the_command_stops_and_says_how_to_go_on(
    hub: ResultsHub, package: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.py"
    file.write_text(POLICY.replace("NUMBER", "1"))
    options = ("--env", "auction", "--model", f"{file}:act", "--matches", "1", "--patience", "1")
    code, out, errors = await ludus(hub, "eval", "match", package, *options)
    assert code == 1, errors
    assert "go on with --resume" in out
    code, _, errors = await ludus(hub, "eval", "match", package, "--env", "locks", *options[2:])
    assert code != 0
    assert "no seats" in errors


class Elsewhere(MatchesClient):
    """A client whose open matches are at another process of the hub."""

    async def open_matches(self, entrant: str) -> OpenMatches:
        return OpenMatches(tickets=())


@pytest.mark.suite("hub")
async def test_a_player_without_room_on_the_hub_stops_in_time(start_hub: Any) -> None:
    hub = await start_hub(open_matches=1)
    publish(hub, "ada/full")
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, "ada/full"), await Contender.register(other, "ada/full")
        await meet(alice, bob)
    async with Elsewhere(hub.url, hub.tokens["alice"]) as client, asyncio.timeout(60):
        entrant = await client.entrant(alice.key)
        shown = await play_matches(client, entrant, cast("Any", None), patience=0.5)
    assert (shown.state, shown.matches) == ("open", 0)


@pytest.fixture
async def receipt(hub: ResultsHub, package: str, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The receipt of an entrant with three matches, in a file."""
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice, bob = await Contender.register(one, package), await Contender.register(other, package)
        for numbers in ((2, 1), (1, 1), (1, 2)):
            await play(alice, bob, *numbers)
        whole = (await one.get(f"{alice.path}/receipt")).json()
        key = (await one.get("/api/v1/results/key")).json()["key"]
    (tmp_path / "receipt.json").write_text(json.dumps(whole))
    return tmp_path / "receipt.json", {"key": key, **whole}


@pytest.mark.suite("hub")
async def test_a_receipt_of_an_entrant_is_verified_without_the_hub(
    hub: ResultsHub, receipt: tuple[Path, dict[str, Any]]
) -> None:
    await hub.stop()
    code, out, _ = await ludus(hub, "hub", "verify", str(receipt[0]), "--key", receipt[1]["key"])
    assert code == 0
    assert "3 of 4 matches: 1 wins, 1 draws, 1 losses" in out
    assert "no opponent lost on purpose" in out
    code, _, errors = await ludus(hub, "hub", "verify", str(receipt[0]), "--key", "ed25519:" + "A" * 43 + "=")
    assert code != 0
    assert "not the hub's key" in errors


def _change(whole: dict[str, Any], *path: Any, value: Any) -> EntrantReceipt:
    changed = json.loads(json.dumps(whole))
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return EntrantReceipt.model_validate(changed)


async def test_a_receipt_with_a_changed_dropped_or_added_match_is_refused(
    receipt: tuple[Path, dict[str, Any]],
) -> None:
    whole = receipt[1]
    verify_entrant(EntrantReceipt.model_validate(whole))
    matches = whole["matches"]
    for changed in (
        _change(whole, "matches", value=matches[:-1]), _change(whole, "matches", value=[*matches, matches[0]]),
        _change(whole, "matches", value=matches[::-1]), _change(whole, "matches", 0, "sides", 0, "reward", value=9.0),
        _change(whole, "statement", "wins", value=3), _change(whole, "statement", "by", value="mallory"),
        _change(whole, "matches", 1, "opening", "seed", value=4),
    ):  # fmt: skip
        with pytest.raises(ReceiptRefused):
            verify_entrant(changed)
