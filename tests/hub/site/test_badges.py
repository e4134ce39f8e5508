"""Badges: true, small, safe to embed in any page, and kept by browsers for a short time only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest
from hub_people import PeopleHub, people_hub, publish_private
from hub_sites import SiteHub, as_page
from hubs import Release, new_name, published, release, upload
from rollout_lines import SCRIPT

from ludus.hub.site.badges import draw
from ludus.hub.site.usage import badge_code

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def publisher(site: SiteHub) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        yield client


def drawn(answer: httpx.Response) -> str:
    """Return the text of a badge, which must be a picture in which nothing can run and that loads nothing."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers.get("x-content-type-options", "nosniff") == "nosniff", "which the hub's server adds to all"
    assert "set-cookie" not in answer.headers
    root = ElementTree.fromstring(answer.content)
    assert {one.tag.removeprefix(SVG) for one in root.iter()} == {"svg", "title", "rect", "path", "g", "text"}
    assert not [name for one in root.iter() for name in one.keys() if "href" in name or name.startswith("on")]
    (title,) = root.iter(f"{SVG}title")
    assert root.get("aria-label") == title.text
    return str(title.text)


def sent(client: httpx.Client, one: Release, validation: str) -> None:
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    where = f"/api/v1/environments/{one.manifest.id}/versions"
    answer = client.post(where, data={**one.fields(), "validation": validation}, files=files)
    assert answer.status_code == 201, answer.text


def test_a_badge_says_the_latest_version_and_its_state(publisher: httpx.Client) -> None:
    package = f"local/{new_name('badge')}"
    badge = f"/{package}/badge.svg"
    published(publisher, release(package))
    assert drawn(publisher.get(badge)) == "ludus: 1.0.0 · not validated"
    sent(publisher, release(package, "1.1.0"), '{"passed": true, "reports": []}')
    assert drawn(publisher.get(badge)) == "ludus: 1.1.0 · validated"
    sent(publisher, release(package, "1.2.0"), '{"passed": false, "reports": []}')
    assert drawn(publisher.get(badge)) == "ludus: 1.2.0 · validation failed"
    assert upload(publisher, release(package, "1.3.0", key=None)).status_code == 200
    assert drawn(publisher.get(badge)) == "ludus: 1.3.0 · unsigned"
    assert drawn(publisher.get(f"/{package}/versions/1.1.0/badge.svg")) == "ludus: 1.1.0 · validated"
    reason = {"reason": "<script>alert(1)</script>"}
    assert publisher.post(f"/api/v1/environments/{package}/versions/1.1.0/yank", json=reason).status_code == 200
    assert drawn(publisher.get(f"/{package}/versions/1.1.0/badge.svg")) == "ludus: 1.1.0 · yanked"


def test_a_badge_is_sent_again_only_when_it_has_changed(publisher: httpx.Client) -> None:
    package = f"local/{new_name('kept')}"
    badge = f"/{package}/badge.svg"
    published(publisher, release(package))
    first = publisher.get(badge)
    assert first.headers["cache-control"] == "public, max-age=300"
    tag = first.headers["etag"]
    for wanted in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = publisher.get(badge, headers={"if-none-match": wanted})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), wanted
        assert again.headers["cache-control"] == "public, max-age=300"
    head = publisher.head(badge)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
    published(publisher, release(package, "2.0.0"))
    changed = publisher.get(badge, headers={"if-none-match": tag})
    assert drawn(changed) == "ludus: 2.0.0 · not validated"
    assert changed.headers["etag"] != tag


def test_the_page_of_a_package_has_the_code_of_its_badge(browser: httpx.Client, site: SiteHub) -> None:
    text = as_page(browser.get("/ludus/wordle")).text
    for one in badge_code(site.url, "ludus/wordle"):
        assert one.code in text
        assert f"{site.url}/ludus/wordle/badge.svg" in one.code
    assert drawn(browser.get("/ludus/wordle/badge.svg")).startswith("ludus: 0.1.0 · ")


def test_the_badge_of_a_private_package_is_for_its_readers_and_is_never_kept(tmp_path: Path) -> None:
    with people_hub(tmp_path, None) as people:
        check_private(people)


def check_private(people: PeopleHub) -> None:
    package = f"alice/{new_name()}"
    publish_private(people.of("alice"), release(package))
    badge = f"/{package}/badge.svg"
    shown = people.browser("alice").get(badge)
    assert drawn(shown) == "ludus: 1.0.0 · not validated"
    assert shown.headers["cache-control"] == "private, no-store"
    assert "badge.svg" not in people.browser("alice").get(f"/{package}").text, "nobody else would see it"
    for client in (people.as_(None), people.of("bob"), people.browser("bob")):
        hidden, absent = client.get(badge), client.get("/alice/nosuch/badge.svg")
        assert hidden.status_code == absent.status_code == 404
        tag = {"if-none-match": shown.headers["etag"]}
        assert client.get(badge, headers=tag).status_code == 404
        assert hidden.text.replace(package, "alice/nosuch") == absent.text
        assert hidden.headers.get("cache-control") == absent.headers.get("cache-control")


def test_the_page_of_a_version_shows_the_report_of_its_validation_whatever_its_form(publisher: httpx.Client) -> None:
    package = f"local/{new_name('report')}"
    checks = [
        {"kind": "oracle", "status": "passed", "detail": "the best reward is reached"},
        {"kind": "exploits", "status": "failed", "findings": [f"one pays {SCRIPT}", "another pays"]}, "nonsense", None,
    ]  # fmt: skip
    reports = [{"environment": "toss", "passed": False, "checks": checks}, {"checks": 7}, {}]
    sent(publisher, release(package), json.dumps({"passed": False, "reports": reports}))
    page = as_page(publisher.get(f"/{package}/versions/1.0.0"))
    words = " ".join(page.text.split())
    for shown in ("toss: failed", "oraclepassedthe best reward is reached", f"one pays {SCRIPT} another pays"):
        assert shown in words, words
    assert len(list(page.all("script"))) == 2, "those of every page"
    published(publisher, release(package, "1.1.0"))
    assert "Validation report" not in as_page(publisher.get(f"/{package}/versions/1.1.0")).text


@pytest.mark.parametrize("text", ["", "x" * 5_000, "<script>alert(1)</script>", "\"&'", "1.0.0 · validated"])
def test_any_text_stays_text(text: str) -> None:
    root = ElementTree.fromstring(draw(text, "#000000"))
    last = list(root.iter(f"{SVG}text"))[-1]
    assert (last.text or "") == (text if len(text) <= 60 else text[:59] + "…")
    start, width = int(str(last.get("x"))), int(str(last.get("textLength")))
    assert start + width < int(str(root.get("width"))) < 600


def test_absent_packages_have_no_badge(browser: httpx.Client) -> None:
    for path in ("/ludus/nope/badge.svg", "/nope/nope/badge.svg", "/ludus/wordle/versions/9.9/badge.svg"):
        assert browser.get(path).status_code == 404
