"""People on the site: signing in with a token, and plays that are left alone."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from hub_sites import as_page
from hubs import HubProcess

from ludus.environments.guess_number import GuessNumber
from ludus.hub.parts.hub import open_database
from ludus.hub.settings.hub import HubSettings
from ludus.hub.site import rollouts
from ludus.hub.site.plays import Play, PlayLimits, Plays, PlayTarget
from ludus.hub.site.rollouts import Rollouts
from ludus.protocol.errors import NotFound, PayloadTooLarge
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.serving.serve import serving


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, str]]:
    """A hub with tokens, and the token of alice."""
    folder = tmp_path_factory.mktemp("people")
    token, record = new_token("alice", ("tasks:read",))
    write_token_file(folder / "tokens.json", TokenFile(tokens=(record,)))
    process = HubProcess(folder / "data", "--no-seed", "--token-file", str(folder / "tokens.json"))
    yield process, token
    assert process.stop() == 0


@pytest.mark.suite("hub")
def test_on_a_hub_with_tokens_rollouts_are_shown_after_signing_in_and_not_after_signing_out(
    guarded: tuple[HubProcess, str],
) -> None:
    hub, token = guarded
    page = {"accept": "text/html"}
    with httpx.Client(base_url=hub.url, headers=page, follow_redirects=True, timeout=60) as browser:
        assert "/login?next=/rollouts" in browser.get("/rollouts").text
        form_key = as_page(browser.get("/login")).hidden("form_key")
        wrong = browser.post("/login", data={"form_key": form_key, "token": "ludus_wrong", "next": "/rollouts"})
        assert "does not know this token" in as_page(wrong, 401).text
        answer = browser.post("/login", data={"form_key": form_key, "token": token, "next": "/rollouts"})
        shown = as_page(answer)
        assert answer.url.path == "/rollouts"
        assert "alice" in shown.text
        assert any(one.get("type") == "file" for one in shown.all("input"))
        assert token not in answer.text
        browser.post("/logout", data={"form_key": shown.hidden("form_key")})
        assert "/login?next=/rollouts" in browser.get("/rollouts").text


def test_a_sign_in_from_another_site_is_refused_and_leads_to_no_other_site(guarded: tuple[HubProcess, str]) -> None:
    hub, token = guarded
    with httpx.Client(base_url=hub.url, headers={"accept": "text/html"}, timeout=60) as browser:
        assert browser.post("/login", data={"form_key": "", "token": token, "next": "/"}).status_code == 403
        form_key = as_page(browser.get("/login")).hidden("form_key")
        answer = browser.post("/login", data={"form_key": form_key, "token": token, "next": "//evil.example/"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def left_alone() -> Play:
    """A play that has ended because its person did nothing."""
    async with serving([GuessNumber]) as server, asyncio.timeout(60):
        target = PlayTarget(server.url, None, "ludus/guess-number", "0.1.0", "guess_number", "train", 0)
        play = Play("browser", target, PlayLimits(idle_seconds=0.05), time.monotonic, "")
        await asyncio.wait([play._task])
        return play


async def test_a_play_whose_person_takes_too_long_ends_and_keeps_its_record() -> None:
    play = await left_alone()
    assert play.problem is None
    assert play.trajectory is not None
    assert play.trajectory.environment == "guess_number"
    assert play.trajectory.end_reason is not None
    assert not play.is_waiting


async def test_an_ended_play_is_forgotten_after_a_while_and_belongs_to_its_browser() -> None:
    now = 0.0
    async with serving([GuessNumber]) as server, asyncio.timeout(60):
        target = PlayTarget(server.url, None, "ludus/guess-number", "0.1.0", "guess_number", "train", 0)
        plays = Plays(PlayLimits(kept_seconds=10.0), clock=lambda: now)
        play = await plays.start("browser", target)
        with pytest.raises(NotFound):
            plays.get("another browser", play.id)
        await play.act(None)
        await asyncio.wait([play._task])
        now = 9.0
        assert plays.get("browser", play.id) is play
        now = 11.0
        with pytest.raises(NotFound):
            plays.get("browser", play.id)
        await plays.close()


async def test_an_owner_keeps_so_many_files_of_such_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (rollouts.OWNER_FILES, rollouts.FILE_BYTES) == (100, 32 * 1024 * 1024), "as docs/hub.md says"
    record = (await left_alone()).trajectory
    assert record is not None
    file = io.BytesIO(record.model_dump_json(by_alias=True).encode() + b"\n")
    monkeypatch.setattr(rollouts, "OWNER_FILES", 1)
    with closing(open_database(HubSettings(data=tmp_path))) as database:
        kept = Rollouts(database)
        kept.keep("alice", "one.jsonl", file)
        with pytest.raises(PayloadTooLarge, match="remove some first"):
            kept.keep("alice", "two.jsonl", file)
        kept.keep("bob", "one.jsonl", file)
        monkeypatch.setattr(rollouts, "FILE_BYTES", 10)
        with pytest.raises(PayloadTooLarge, match="larger"):
            kept.keep("carol", "one.jsonl", file)
