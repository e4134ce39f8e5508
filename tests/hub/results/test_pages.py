"""The pages of boards and runs: what they show, their size, and that levels stay apart."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hub_sites import Page, as_page
from results_hub import Player, ResultsHub

from ludus.hub.access.viewers import STRANGER
from ludus.hub.app import parts_of
from ludus.hub.results.receipts import concluding
from ludus.hub.results.reported import submit
from ludus.protocol.evaluation import EpisodeFigures, TaskFigures
from ludus.registry.types.results import Declared, Submission
from ludus.server.auth.principal import Principal

LARGEST_PAGE = 60_000
HTML = {"accept": "text/html"}


@pytest.fixture
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


def board_path(package: str, level: str, split: str = "test") -> str:
    return f"/{package}/versions/1.0.0/board?environment=locks&split={split}&level={level}"


async def weight(client: httpx.AsyncClient, answer: httpx.Response) -> int:
    """The bytes of a page with all files that it loads, as a browser receives them."""
    page = Page(answer.text)
    addresses = [one["href"] for one in page.all("link")] + [one["src"] for one in page.all("script")]
    sizes = [int((await client.get(address)).headers["content-length"]) for address in addresses]
    return len(answer.content) + sum(sizes)


async def test_a_board_shows_its_level_alone_and_says_what_it_proves(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        await (await Player.register(client, package, model="the-played-one")).play(right=2)
        filled(hub, package, 3)
        played = as_page(await client.get(board_path(package, "played"), headers=HTML)).text
        reported = as_page(await client.get(board_path(package, "reported"), headers=HTML)).text
        environment = as_page(await client.get(f"/{package}", headers=HTML))
    assert "the-played-one" in played
    assert "model-1" not in played
    assert "does not prove which model" in " ".join(played.split())
    assert "the-played-one" not in reported
    assert "Nothing here is proved" in reported
    assert len([one for one in environment.all("svg") if "Pass rate" in one["aria-label"]]) == 2
    assert len([one for one in environment.all("svg") if "by pass rate" in one["aria-label"]]) == 2


async def test_pages_of_results_are_small_and_nothing_inline_may_run(hub: ResultsHub, package: str) -> None:
    filled(hub, package, 40, tasks=40)
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=40, samples=2)
        await client.post(f"/api/v1/runs/{player.key}/end")
        for path in (board_path(package, "reported"), board_path(package, "reported") + "&page=2",
                     board_path(package, "played"), f"/runs/{player.key}", f"/runs/{player.key}?page=2", f"/{package}",
                     "/results/log"):  # fmt: skip
            answer = await client.get(path, headers=HTML)
            page = as_page(answer)
            assert not any("style" in one or any(name.startswith("on") for name in one) for _, one in page.elements)
            assert all("src" in one for one in page.all("script"))
            assert all(one.get("aria-label") for one in page.all("svg"))
            assert await weight(client, answer) <= LARGEST_PAGE, path


async def test_a_run_shows_ends_with_counts_and_the_opened_commitment(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=3)
        shown = as_page(await client.get(f"/runs/{player.key}", headers=HTML)).text
        assert "This run is open" in shown
        assert player.run["commitment"] in shown
        ticket = await player.next()
        assert ticket is not None
        await player.act(ticket, right=True)
        await player.end(ticket)
        await client.post(f"/api/v1/runs/{player.key}/end")
        shown = as_page(await client.get(f"/runs/{player.key}", headers=HTML)).text
        opening = hub.store.opening(player.key)
    assert opening is not None
    for part in ("not begun", "completed", opening.secret, "run 1 of 1", "signed receipt", "2, which count"):
        assert part in shown


async def test_absent_boards_and_runs_are_pages_that_say_so(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        as_page(await client.get(board_path(package, "played"), headers=HTML))
        for path in (board_path(package, "played", "nope"), "/runs/nope", f"/runs/{'a' * 22}",
                     "/ada/absent/versions/1.0.0/board?environment=locks&split=test"):  # fmt: skip
            as_page(await client.get(path, headers=HTML), 404)
        for path in (board_path(package, "proved"), board_path(package, "played") + "&page=0"):
            as_page(await client.get(path, headers=HTML), 400)


def filled(hub: ResultsHub, package: str, count: int, tasks: int = 4) -> None:
    """Put reported runs of as many models on the board of the test split."""
    owner, _, name = package.partition("/")
    record: Any = parts_of(hub.app).hub.catalog_of(STRANGER).version(owner, name)
    conclude = concluding(parts_of(hub.app).results.receipt_key)
    for number in range(count):
        rewards = [float((task * 7 + number) % 3 == 0) for task in range(tasks)]
        episodes = [
            TaskFigures(task=f"lock-{index}", index=index, episodes=(EpisodeFigures(
                sample=0, seed=number, reward=reward, end="completed", input_tokens=10_000, output_tokens=900),))
            for index, reward in enumerate(rewards)
        ]  # fmt: skip
        declared = Declared(
            model=f"model-{number}-with-a-long-name-{'x' * 60}", harness=f"harness {number} {'y' * 60}",
            price_in=1.0, price_out=5.0,
        )  # fmt: skip
        upload = Submission(
            sha256=record.sha256, environment="locks", split="test", samples=1, success_at=1.0, declared=declared,
            mean=sum(rewards) / len(rewards), scored=tasks, tasks=tuple(episodes),
        )  # fmt: skip
        submit(hub.store, conclude, Principal(f"account{number}", frozenset()), record, upload, by_publisher=False)
