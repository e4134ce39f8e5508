"""The pages of matches: what they show, their size, and that nothing of an open match is on them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hub_sites import Page, as_page
from match_hub import Contender, board_of, entrant_params, matches_of, meet, play, store_of
from results_hub import ResultsHub
from sqlalchemy import insert, select

from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant
from ludus.hub.results.matches.reading import read_board
from ludus.hub.site import match_pages

LARGEST_PAGE = 60_000
HTML = {"accept": "text/html"}


@pytest.fixture
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


def board_path(package: str, split: str = "test") -> str:
    return f"/{package}/versions/1.0.0/matches?environment=auction&split={split}"


async def shown(client: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    answer = await client.get(path, headers=HTML)
    page = as_page(answer, status)
    assert len(answer.content) <= LARGEST_PAGE, path
    assert not any("style" in one or any(name.startswith("on") for name in one) for _, one in page.elements)
    assert all(one.get("aria-label") for one in page.all("svg"))
    assert all(one.get("scope") for one in page.all("th"))
    return page


async def test_board_entrant_and_match_show_ratings_results_and_what_is_not_proved(
    hub: ResultsHub, package: str
) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, model="model-of-alice", matches=3)
        bob = await Contender.register(other, package, model="model-of-bob", matches=2)
        assert "No match of this split has ended yet" in (await shown(one, board_path(package))).text
        await play(alice, bob, 2, 1)
        await play(alice, bob, 1, 1)
        await board_of(hub, package)
        board = await shown(one, board_path(package))
        for part in ("model-of-alice", "model-of-bob", "1 – 1 – 0", "1–1–0", "2 of 3", "2 of 2", "The seat red",
                     "nor that no opponent lost on purpose", "ludus eval match"):  # fmt: skip
            assert part in board.text, part
        assert [svg["aria-label"] for svg in board.all("svg")] == ["Rating by model"]
        entrant = await shown(one, f"/entrants/{alice.key}")
        for part in ("This entrant is open", "model-of-bob", "win", "draw", "signed receipt"):
            assert part in entrant.text, part
        match = (await alice.matches())[0]
        page = await shown(one, f"/matches/{match['key']}")
        for part in ("model-of-alice", "model-of-bob", match["commitment"], match["opening"]["secret"], "completed"):
            assert part in page.text, part
        assert "Rating by model" in str((await shown(one, f"/{package}")).elements)
        assert any(link["href"].endswith("/matches?environment=auction&split=test")
                   for link in (await shown(one, f"/{package}")).all("a"))  # fmt: skip


async def test_nothing_of_an_open_match_is_on_a_page(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, model="model-of-alice")
        bob = await Contender.register(other, package, model="model-of-bob")
        tickets = await meet(alice, bob)
        for path in (f"/matches/{tickets[0]['match']}", f"/entrants/{alice.key}", board_path(package), f"/{package}"):
            text = (await shown(one, path)).text
            assert "model-of-bob" not in text, path
            assert bob.key not in text, path
        assert "This match is open" in (await shown(one, f"/matches/{tickets[0]['match']}")).text


async def test_removals_are_on_the_pages_and_in_the_log(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=1)
        bob = await Contender.register(other, package, matches=1)
        await play(alice, bob, 2, 1)
        await one.post(f"{alice.path}/remove", json={"reason": "wrong prompt"})
        await board_of(hub, package)
        assert "wrong prompt" in (await shown(one, f"/entrants/{alice.key}")).text
        assert "Removed entrants: 1." in (await shown(one, board_path(package))).text
        log = (await shown(one, "/results/log")).text
    assert "wrong prompt" in log
    assert "still count for its opponents" in log


async def test_absent_boards_entrants_and_matches_are_pages_that_say_so(hub: ResultsHub, package: str) -> None:
    async with hub.client() as one:
        for path in (board_path(package, "nope"), "/entrants/nope", f"/matches/{'a' * 22}", "/matches/x"):
            await shown(one, path, 404)
        await shown(one, board_path(package) + "&page=0", 400)


async def test_a_full_board_is_small_and_shows_groups_apart(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one:
        await Contender.register(one, package)
        filled(hub, 60, islands=2)
        board = await board_of(hub, package)
        assert (board["lines"], {row["rating"]["group"] for row in board["rows"]}) == (60, {0, 1})
        page = await shown(one, board_path(package) + "&page=1")
        last = await shown(one, board_path(package) + "&page=2")
    assert "Not connected" not in page.text
    assert "Not connected with those above" in last.text
    assert "cannot be compared" in last.text
    assert any(link.get("rel") == "next" for link in page.all("a"))


def filled(hub: ResultsHub, count: int, islands: int = 1) -> None:
    """Put entrants of as many accounts on the only board, each with matches against the next ones of its island."""
    now = matches_of(hub).now()
    with store_of(hub).database.writing() as session:
        board = session.scalars(select(MatchBoardRow)).one()
        fields: dict[str, Any] = {
            "board_id": board.id, "by_publisher": False, "is_script": False, "harness": "h" * 60, "registered": 9,
            "declared": '{"model": "%s"}' % ("m" * 60), "state": "ended", "voided": 0, "created_at": now,
            "deadline": now, "wins": 0, "draws": 0, "losses": 0, "still_counts": True,
        }  # fmt: skip
        keys = [f"{number:022}" for number in range(count)]
        session.execute(
            insert(MatchEntrant), [{**fields, "key": key, "principal": f"p{key}", "model": f"m{key}"} for key in keys]
        )
        found = session.execute(select(MatchEntrant.id).where(MatchEntrant.key.in_(keys)).order_by(MatchEntrant.key))
        ids = list(found.scalars())
        size = count // islands
        rows = []
        for place, one in enumerate(ids):
            island = place // size * size
            for step in (1, 2, 3):
                other = ids[island + (place - island + step) % size]
                board.numbers += 1
                rows.append({
                    "key": f"M{board.numbers:021}", "board_id": board.id, "number": board.numbers, "first_id": one,
                    "second_id": other, "state": "ended", "score": (place * 7 + step) % 3 / 2, "commitment": "0" * 64,
                    "opening": "{}", "created_at": now,
                })  # fmt: skip
        session.execute(insert(Match), rows)
        board.changes += 1


async def test_names_with_markup_are_text(hub: ResultsHub, package: str) -> None:
    async with hub.client("alice") as one:
        where = f"/api/v1/environments/{package}/versions/1.0.0/entrants"
        answer = await one.post(where, json=entrant_params(model="<script>alert(1)</script>"))
        page = await shown(one, f"/entrants/{answer.json()['key']}")
    assert not any("alert" in str(attributes) for _, attributes in page.elements)
    assert "<script>alert(1)</script>" in page.text


async def test_a_seat_advantage_of_almost_nothing_is_not_minus_zero(
    hub: ResultsHub, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hub.client("alice") as one, hub.client("bob") as other:
        alice = await Contender.register(one, package, matches=1)
        bob = await Contender.register(other, package, matches=1)
        await play(alice, bob, 2, 1)
        await board_of(hub, package)

        def read(*arguments: Any) -> Any:
            board = read_board(*arguments)
            assert board is not None
            assert board.seat_advantage is not None
            small = board.seat_advantage.model_copy(update={"value": -0.3, "low": -0.4, "high": 0.2})
            return board.model_copy(update={"seat_advantage": small})

        monkeypatch.setattr(match_pages, "read_board", read)
        assert "is worth +0 points (+0 to +0)" in (await shown(one, board_path(package))).text
