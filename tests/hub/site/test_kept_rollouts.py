"""Kept files of rollouts: the same at every process of a hub, in parts, and taken over from an older hub."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hub_people import PASSWORD, PeopleHub, people_hub
from hub_sites import as_page
from postgres_server import PostgresServer
from rollout_lines import line
from sqlalchemy import func, select

from ludus.hub.database.engine import sqlite_url
from ludus.hub.database.rollout_tables import KeptPart, KeptRollouts
from ludus.hub.parts.hub import Hub, open_database
from ludus.hub.results.rollout_index import RolloutFile, index_of
from ludus.hub.settings.hub import HubSettings
from ludus.hub.site import rollouts
from ludus.hub.site.rollouts import Rollouts
from ludus.protocol.errors import NotFound


def text_of(*episodes: str) -> bytes:
    """A file with episodes of these ids, of different lengths."""
    lines = [json.dumps(line(number, episode=name)) for number, name in enumerate(episodes, start=1)]
    return "".join(f"{one}\n" for one in lines).encode()


@pytest.fixture(params=["sqlite", "postgres"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PeopleHub, PeopleHub]]:
    """Two hubs on one database, each with a data folder of its own."""
    url = sqlite_url(tmp_path / "shared.sqlite")
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    with (
        people_hub(tmp_path / "one", url) as one,
        people_hub(tmp_path / "two", url, names=(), administrator=None) as other,
    ):
        yield one, other


def through(hub: PeopleHub, browser: httpx.Client) -> httpx.Client:
    """The same browser at another process."""
    found = hub.as_(None)
    found.headers["accept"] = "text/html"
    found.cookies.set("ludus_visitor", browser.cookies["ludus_visitor"])
    return found


def keep(browser: httpx.Client, content: bytes) -> str:
    """Keep a file, and return the path of its page."""
    key = as_page(browser.get("/rollouts")).hidden("form_key")
    kept = browser.post("/rollouts", data={"form_key": key}, files={"file": ("a.jsonl", content)})
    assert kept.status_code == 303, kept.text
    return kept.headers["location"]


def rows(hub: Hub) -> tuple[int, int]:
    """How many files and parts the database has."""
    with hub.database.reading() as session:
        counts = [session.scalar(select(func.count()).select_from(table)) or 0 for table in (KeptRollouts, KeptPart)]
    return counts[0], counts[1]


def test_what_is_kept_at_one_process_of_a_hub_is_shown_and_removed_at_every_one(
    two: tuple[PeopleHub, PeopleHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "PART_BYTES", 700)
    content = text_of("first", "second", "third")
    browsers = [two[0].browser("alice")]
    browsers.append(through(two[1], browsers[0]))
    address = keep(browsers[0], content)
    shown = [[browser.get(f"{address}{below}") for below in ("", "/1", "/3", "/download")] for browser in browsers]
    for answers in shown:
        assert {one.status_code for one in answers} == {200}
        assert answers[3].content == content
        assert "saw 3" in as_page(answers[2]).text
    assert [one.text for one in shown[0]] == [one.text for one in shown[1]]
    as_page(through(two[1], two[0].browser("bob")).get(address), 404)
    assert rows(two[1].hub)[0] == 1
    assert rows(two[1].hub)[1] == -(-len(content) // 700) > 3
    key = as_page(browsers[1].get("/rollouts")).hidden("form_key")
    assert browsers[1].post(f"{address}/remove", data={"form_key": key}).status_code == 303
    assert {browser.get(address).status_code for browser in browsers} == {404}
    assert rows(two[0].hub) == (0, 0)


def test_a_deleted_account_leaves_none_of_its_files(two: tuple[PeopleHub, PeopleHub]) -> None:
    keep(two[0].browser("alice"), text_of("mine"))
    keep(two[0].browser("bob"), text_of("his"))
    data = two[1].hub.people.data
    (exported,) = data.export(two[1].account("alice"), "alice")["rollouts"]
    assert exported["lines"].encode() == text_of("mine")
    data.delete("alice", PASSWORD)
    assert rows(two[1].hub) == (1, 1)


def test_the_files_of_an_older_hub_are_taken_over_once_and_broken_ones_stay(tmp_path: Path) -> None:
    folder, content = tmp_path / "rollouts", text_of("old", "older")
    for owner, name in (("alice", "0" * 16), ("x-" + "Ådne".encode().hex(), "1" * 16), ("alice", "2" * 16)):
        (folder / owner).mkdir(parents=True, exist_ok=True)
        (folder / owner / f"{name}.jsonl").write_bytes(content)
        lines = tuple(index_of(io.BytesIO(content)))
        index = RolloutFile(id=name, name=f"{name}.jsonl", size=len(content), kept_at=1.5e9, lines=lines)
        (folder / owner / f"{name}.index").write_text(index.model_dump_json())
    (folder / "alice" / f"{'2' * 16}.jsonl").write_text("{}\n")
    kept = Rollouts(open_database(HubSettings(data=tmp_path)))
    kept.take_over(folder)
    kept.take_over(folder)
    (one,) = kept.files("alice")
    assert (one.name, one.size, one.lines, one.kept_at.timestamp()) == (f"{'0' * 16}.jsonl", len(content), 2, 1.5e9)
    assert b"".join(kept.content(kept.file("alice", one.id))) == content
    assert len(kept.files("Ådne")) == 1
    assert sorted(path.name for path in folder.rglob("*.*")) == [f"{'2' * 16}.index", f"{'2' * 16}.jsonl"]
    kept._database.close()


def test_an_episode_of_a_file_that_was_removed_meanwhile_is_not_found(tmp_path: Path) -> None:
    kept = Rollouts(open_database(HubSettings(data=tmp_path)))
    file = kept.keep("alice", "a.jsonl", io.BytesIO(text_of("one")))
    assert kept.episode(file, 1).episode == "one"
    kept.remove("alice", file.id)
    with pytest.raises(NotFound):
        kept.episode(file, 1)
    with pytest.raises(NotFound):
        list(kept.content(file))
    kept._database.close()
