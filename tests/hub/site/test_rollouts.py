"""The rollout viewer: what it shows of a file, what it refuses, and content that tries to attack its readers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hub_sites import as_page
from rollout_lines import PIXEL, SCRIPT, line


def keep(browser: httpx.Client, *lines: dict[str, Any], data: bytes | None = None) -> httpx.Response:
    key = as_page(browser.get("/rollouts")).hidden("form_key")
    content = data if data is not None else "".join(json.dumps(one) + "\n" for one in lines).encode()
    return browser.post("/rollouts", data={"form_key": key}, files={"file": (f"a{SCRIPT}.jsonl", content)})


def test_an_episode_is_shown_turn_by_turn_with_rewards_and_components(browser: httpx.Client) -> None:
    kept = keep(browser, line())
    assert as_page(kept).text.count("looking") == 1
    page = as_page(browser.get(f"{kept.url.path}/1"))
    for words in ("saw 1", "saw 3", "reward 0.5", "evidence 2", SCRIPT, "Turn 3"):
        assert words in page.text
    assert len(list(page.all("script"))) == 2


def test_a_link_to_a_turn_leads_to_its_page(browser: httpx.Client) -> None:
    kept = keep(browser, line(400))
    answer = browser.get(f"{kept.url.path}/1?turn=333")
    assert any(one.get("id") == "turn-333" for one in as_page(answer).all("h2"))
    assert len(answer.content) < 40_000


def test_two_episodes_are_side_by_side_and_forks_lead_to_each_other(browser: httpx.Client) -> None:
    branch = {"parent": "e1", "step": 1, "turn": 1, "place": "1.0"}
    kept = keep(browser, line(episode="e1"), line(5, episode="e2", branch=branch))
    name = kept.url.path.rpartition("/")[2]
    assert "Forks: 1.0" in " ".join(as_page(browser.get(f"{kept.url.path}/1")).text.split())
    assert "after turn 1 of episode 1" in as_page(browser.get(f"{kept.url.path}/2")).text
    both = as_page(browser.get(f"/rollouts/compare?a={name}:1&b={name}:2"))
    identifiers = [one["id"] for _, one in both.elements if "id" in one]
    assert {"left-turn-1", "right-turn-5"} <= set(identifiers)
    assert len(identifiers) == len(set(identifiers))


def test_episodes_of_two_files_are_compared_by_the_address_of_a_page(browser: httpx.Client) -> None:
    one, other = keep(browser, line(2)).url, keep(browser, line(3)).url
    first = f"{one.path.rpartition('/')[2]}:1"
    assert "with an episode of another file" in as_page(browser.get(f"{one.path}/1")).text
    written = [f"{other}/1", f" {other.path}/1?turn=2#turn-2 ", f"{other.path.removeprefix('/')}/1"]
    for address in written:
        both = as_page(browser.get("/rollouts/compare", params={"a": first, "b": address}))
        identifiers = {one["id"] for _, one in both.elements if "id" in one}
        assert {"left-turn-2", "right-turn-3"} <= identifiers
        assert "left-turn-3" not in identifiers
    for address in ("", "x", "/rollouts/nope/1", f"{other.path}/1/../2", f"{other.path}/", "/" * 400, "http://[" * 50):
        answer = browser.get("/rollouts/compare", params={"a": first, "b": address})
        assert "must be an episode" in as_page(answer, 400).text, address


def test_images_are_served_as_images_only(browser: httpx.Client) -> None:
    one = line(1)
    addresses = (f"data:image/png;base64,{PIXEL}", "https://evil.example/x.png", "data:image/svg+xml;base64,PHN2Zz4=")
    one["items"][0]["content"] = [{"type": "input_image", "image_url": address} for address in addresses]
    kept = keep(browser, one)
    sources = [image["src"] for image in as_page(browser.get(f"{kept.url.path}/1")).all("img")]
    assert all(source.startswith("/rollouts/") for source in sources)
    answers = [browser.get(source) for source in sources]
    assert [answer.status_code for answer in answers] == [200, 404, 404]
    assert answers[0].headers["content-type"] == "image/png"
    assert "sandbox" in answers[0].headers["content-security-policy"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"not json\n", b'{"a": 1}\n', b"\xff\xfe\x00" * 100, b"[" * 100_000])
def test_a_file_without_episodes_is_refused_and_not_kept(browser: httpx.Client, data: bytes) -> None:
    before = as_page(browser.get("/rollouts")).text
    assert "This did not work" in as_page(keep(browser, data=data), 400).text
    assert as_page(browser.get("/rollouts")).text == before


def test_a_file_that_is_too_large_is_refused(browser: httpx.Client) -> None:
    assert keep(browser, data=b"x" * (33 * 1024 * 1024)).status_code == 413


def test_broken_lines_are_named_and_the_others_are_shown(browser: httpx.Client) -> None:
    data = json.dumps(line()).encode() + b"\n{broken\n" + json.dumps(line(2)).encode() + b"\n"
    kept = keep(browser, data=data)
    assert "broken: not JSON" in as_page(kept).text
    assert browser.get(f"{kept.url.path}/3").status_code == 200
    assert browser.get(f"{kept.url.path}/2").status_code == 404


def test_a_removed_file_is_gone(browser: httpx.Client) -> None:
    kept = keep(browser, line())
    assert browser.get(f"{kept.url.path}/download").headers["content-disposition"].startswith("attachment")
    key = as_page(browser.get("/rollouts")).hidden("form_key")
    assert browser.post(f"{kept.url.path}/remove", data={"form_key": "0"}).status_code == 403
    assert browser.post(f"{kept.url.path}/remove", data={"form_key": key}).status_code == 200
    assert browser.get(kept.url.path).status_code == 404
