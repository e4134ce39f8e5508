"""Playing an episode by hand, without JavaScript: forms, mistakes, the end, and the saved demonstration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
from hub_sites import Page, SiteHub, as_page

from ludus.client.trajectory_files import read_trajectories


def start(browser: httpx.Client, package: str, what: str, index: str = "") -> tuple[str, Page]:
    """Start an episode; return its address and its page."""
    first = as_page(browser.get(f"/{package}/play"))
    fields = {name: first.hidden(name) for name in ("form_key", "version")}
    answer = browser.post(f"/{package}/play", data={**fields, "what": what, "index": index})
    return answer.url.path, as_page(answer)


def guess(browser: httpx.Client, address: str, shown: Page, **entries: str) -> httpx.Response:
    fields = {name: shown.hidden(name) for name in ("form_key", "turn", "tool")}
    return browser.post(address, data={**fields, **{f"a.{name}": value for name, value in entries.items()}})


def won(browser: httpx.Client) -> tuple[str, Page]:
    """Play guess-number to its end by binary search."""
    address, shown = start(browser, "ludus/guess-number", "guess_number/train", "0")
    low, high = (int(number.replace(",", "")) for number in re.findall(r"from (\d+) to (\d+)", shown.text)[0])
    for _ in range(12):
        if "The episode has ended" in shown.text:
            break
        number = (low + high) // 2
        before = shown.text.count(str(number))
        shown = as_page(guess(browser, address, shown, number=str(number)))
        assert shown.text.count(str(number)) > before
        last = shown.text.rsplit("answer of guess", 1)[-1].lower()
        low, high = (number + 1, high) if "is higher" in last else (low, number - 1)
    return address, shown


def test_a_person_plays_to_the_end_and_sees_the_reward_only_then(browser: httpx.Client, tmp_path: Path) -> None:
    address, shown = won(browser)
    assert "The episode has ended" in shown.text
    assert "reward" in shown.text
    saved = browser.get(f"{address}/demonstration")
    assert saved.headers["content-disposition"].startswith("attachment")
    path = tmp_path / "demonstration.jsonl"
    path.write_bytes(saved.content)
    (trajectory,) = read_trajectories(path)
    assert (trajectory.policy, trajectory.environment) == ("person", "guess_number")
    assert trajectory.value is not None
    view = [sys.executable, "-m", "ludus.cli", "view", str(path)]
    done = subprocess.run(view, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "guess_number" in done.stdout


def test_no_page_of_a_running_episode_holds_a_reward(browser: httpx.Client) -> None:
    address, shown = start(browser, "ludus/wordle", "wordle/train", "1")
    for word in ("crane", "mount"):
        shown = as_page(guess(browser, address, shown, word=word))
        assert "Your turn" in shown.text
        assert "reward" not in shown.text.lower()
    assert browser.get(f"{address}/demonstration").status_code == 400


def test_a_wrong_entry_is_shown_again_with_its_problem_and_changes_nothing(browser: httpx.Client) -> None:
    address, shown = start(browser, "ludus/guess-number", "guess_number/train")
    wrong = as_page(guess(browser, address, shown, number="<b>five</b>"), 422)
    assert "Enter a whole number, not “<b>five</b>”" in wrong.text
    field = next(one for one in wrong.all("input") if one.get("name") == "a.number")
    assert (field["aria-invalid"], field["value"]) == ("true", "<b>five</b>")
    assert wrong.hidden("turn") == shown.hidden("turn")
    missing = as_page(guess(browser, address, shown, number=" "), 422)
    assert "This is needed." in missing.text


def test_a_person_acts_at_the_agent_endpoint_like_any_agent(browser: httpx.Client, site: SiteHub) -> None:
    def requests() -> float:
        lines = httpx.get(f"{site.server}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('ludus_requests_total{wire="play"}'))

    address, shown = start(browser, "ludus/wordle", "wordle/train", "3")
    before = requests()
    guess(browser, address, shown, word="crane")
    assert requests() == before + 1


def test_a_form_sent_twice_acts_once(browser: httpx.Client) -> None:
    address, shown = start(browser, "ludus/wordle", "wordle/train", "2")
    once = as_page(guess(browser, address, shown, word="crane"))
    twice = as_page(guess(browser, address, shown, word="crane"))
    assert once.hidden("turn") == twice.hidden("turn") == "2"


def test_a_person_can_end_the_episode(browser: httpx.Client) -> None:
    address, shown = start(browser, "ludus/wordle", "wordle/train")
    key = shown.hidden("form_key")
    ended = as_page(browser.post(address, data={"form_key": key, "give_up": "1"}))
    assert "The episode has ended" in ended.text
    kept = browser.post(f"{address}/keep", data={"form_key": key})
    assert kept.url.path.startswith("/rollouts/")
    assert "wordle" in as_page(kept).text


def test_the_episode_belongs_to_its_browser(browser: httpx.Client, site: SiteHub) -> None:
    address, _ = start(browser, "ludus/wordle", "wordle/train")
    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}, timeout=60) as other:
        for path in ("", "/demonstration", "/images/0"):
            assert other.get(address + path).status_code == 404
    assert browser.get(address.replace("wordle", "countdown")).status_code == 404


def test_forms_of_other_sites_are_refused(browser: httpx.Client, site: SiteHub) -> None:
    address, shown = start(browser, "ludus/wordle", "wordle/train")
    turn = shown.hidden("turn")
    entries = {"turn": turn, "tool": "guess", "a.word": "crane"}
    for form_key in ("", "0" * 64, shown.hidden("form_key")[::-1]):
        assert browser.post(address, data={**entries, "form_key": form_key}).status_code == 403
    stolen = {**entries, "form_key": shown.hidden("form_key")}
    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}, timeout=60) as other:
        assert other.post(address, data=stolen).status_code == 403
    cross = browser.post(address, data=stolen, headers={"origin": "https://evil.example"})
    assert cross.status_code == 403
    assert as_page(browser.get(address)).hidden("turn") == turn


def test_bad_choices_get_a_clear_answer(browser: httpx.Client) -> None:
    first = as_page(browser.get("/ludus/wordle/play"))
    fields = {name: first.hidden(name) for name in ("form_key", "version")}
    for what, index in (("wordle/nope", ""), ("nope", ""), ("wordle/train", "-1"), ("wordle/train", "999999")):
        answer = browser.post("/ludus/wordle/play", data={**fields, "what": what, "index": index})
        assert answer.status_code == 400
        assert "This did not work" in as_page(answer, 400).text
    assert browser.get("/ludus/nope/play").status_code == 404


def test_one_browser_has_few_episodes_at_a_time(site: SiteHub) -> None:
    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}, timeout=60, follow_redirects=True) as one:
        addresses = [start(one, "ludus/wordle", "wordle/train")[0] for _ in range(4)]
        first = as_page(one.get("/ludus/wordle/play"))
        fields = {name: first.hidden(name) for name in ("form_key", "version")}
        assert one.post("/ludus/wordle/play", data={**fields, "what": "wordle/train"}).status_code == 429
        for address in addresses:
            one.post(address, data={"form_key": fields["form_key"], "give_up": "1"})
        start(one, "ludus/wordle", "wordle/train")


def test_the_saved_line_is_json_without_the_credential(browser: httpx.Client) -> None:
    address, _ = won(browser)
    line = json.loads(browser.get(f"{address}/demonstration").content)
    assert "/play/" not in json.dumps(line)
