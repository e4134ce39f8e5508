"""The pages of training runs: their size, what changes while a run goes on, comparisons, forms and rollouts."""

from __future__ import annotations

import math
import re

import httpx
import pytest
from hub_people import PeopleHub
from hub_sites import Page, as_page
from training_hub import TrainingRun, opened, trajectory

LARGEST_PAGE = 60_000
NAMES = (
    "reward/mean", "evaluation/toss/mean", "evaluation/toss/mean_low", "evaluation/toss/mean_high",
    "evaluation/toss/pass@1", "evaluation/toss/pass@2", "loss/total", "loss/entropy", "loss/kl", "loss/gradient_norm",
    "throughput/trained_tokens", "throughput/sampled_tokens", "rollout/tokens", "rollout/failed", "time/wait",
    "time/update", "time/sync", "ends/completed", "ends/step_limit", "loss/learning_rate",
    *(f"other/{n}" for n in range(20)),
)  # fmt: skip


@pytest.fixture(scope="module")
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


@pytest.fixture(scope="module")
def long_run(people: PeopleHub) -> TrainingRun:
    """A run of 10,000 steps with 40 metrics."""
    run = opened(people.of("alice"), steps=10_000, config={f"key{n}": "x" * 100 for n in range(300)})
    for start in range(1, 10_000, 500):
        points = [
            (step, {name: math.sin(step * (n + 1) / 97) + step / 1000 for n, name in enumerate(NAMES)})
            for step in range(start, start + 500)
        ]
        assert run.send(points).status_code == 200
    return run


def weight(client: httpx.Client, answer: httpx.Response) -> int:
    """The bytes of a page with all files that it loads, as a browser receives them."""
    page = Page(answer.text)
    addresses = [one["href"] for one in page.all("link")] + [one["src"] for one in page.all("script")]
    sizes = [int(client.get(address).headers["content-length"]) for address in addresses]
    return len(answer.content) + sum(sizes)


@pytest.mark.suite("hub")
def test_pages_of_a_long_run_are_small_and_nothing_inline_may_run(people: PeopleHub, long_run: TrainingRun) -> None:
    other = opened(people.of("alice"))
    other.send([(step, {name: float(step) for name in NAMES}) for step in range(1, 200)])
    browser, here = people.browser("alice"), f"/training/{long_run.key}"
    titles: list[str] = []
    for path in (
        here, f"{here}?page=2", f"{here}?page=3", f"{here}?chart=loss/total", f"{here}?chart=time/wait", "/training",
        f"/training/compare?run={long_run.key}&run={other.key}",
        f"/training/compare?run={long_run.key}&run={other.key}&metric=loss/total",
    ):  # fmt: skip
        answer = browser.get(path)
        page = as_page(answer)
        assert not any("style" in one or any(name.startswith("on") for name in one) for _, one in page.elements)
        assert all("src" in one for one in page.all("script"))
        assert all(one.get("aria-label") or one.get("aria-hidden") for one in page.all("svg")), path
        assert weight(browser, answer) <= LARGEST_PAGE, path
        if path.partition("?page")[0] == here and "chart" not in path:
            titles += re.findall(r'\?chart=[^"]+">([^<]+)<', answer.text)
    assert titles[:5] == ["Reward", "Entropy", "Length", "Episodes lost", "Pass rate"]
    assert {"Loss", "KL", "Throughput", "Time", "Ends", "other/19"} <= set(titles)
    assert len(titles) == len(set(titles))


@pytest.mark.suite("hub")
def test_the_page_shows_every_metric_once_and_its_latest_value(people: PeopleHub, long_run: TrainingRun) -> None:
    page = as_page(people.browser("alice").get(f"/training/{long_run.key}"))
    for name in NAMES:
        assert page.text.count(name) >= 1, name
    assert "step 10,000 of 10,000" in page.text
    assert "This is the beginning" in page.text


def test_a_browser_asks_for_what_is_new_and_gets_nothing_while_nothing_is(people: PeopleHub) -> None:
    run = opened(people.of("alice"))
    run.steps(1, 3)
    browser = people.browser("alice")
    first = as_page(browser.get(f"/training/{run.key}"))
    address = next(one["hx-get"] for one in first.all("div") if one.get("hx-get"))
    assert address is not None
    again = browser.get(address)
    assert (again.status_code, again.content) == (204, b"")
    run.steps(4, 9)
    changed = browser.get(address)
    assert changed.status_code == 200
    assert "step 9" in changed.text
    assert address not in changed.text, "it asks for what comes after"
    same = browser.get(f"/training/{run.key}/part", headers={"if-none-match": changed.headers["etag"]})
    assert same.status_code == 304
    run.client.post(f"{run.path}/end", json={"attempt": run.attempt})
    assert "hx-get" not in browser.get(address).text, "an ended run is not asked for again"
    assert "Refresh" in first.text, "without JavaScript, a link does the same"


def test_a_continued_run_marks_where(people: PeopleHub) -> None:
    run = opened(people.of("alice"))
    run.steps(1, 20)
    run.again("attempt-2", 10).steps(11, 30)
    page = as_page(people.browser("alice").get(f"/training/{run.key}"))
    assert [one["class"] for one in page.all("path") if one.get("class") == "m"] == ["m"]
    assert "from step 10" in page.text


def test_compared_runs_have_lines_of_their_own_and_a_legend(people: PeopleHub) -> None:
    runs = [opened(people.of("alice"), name=f"run {n}") for n in range(3)]
    for n, run in enumerate(runs):
        run.send([(step, {"loss": 1.0 * step * n + step, f"only {n}": float(step)}) for step in range(1, 9)])
    query = "&".join(f"run={run.key}" for run in runs)
    answer = people.browser("alice").get(f"/training/compare?{query}&metric=loss")
    page = as_page(answer)
    assert [one["class"] for one in page.all("path") if one.get("class") in ("s0", "s1", "s2")] == [
        "s0", "s1", "s2", "s0", "s1", "s2",
    ]  # fmt: skip
    assert [label for label in ("1 run 0", "2 run 1", "3 run 2") if label in page.text] == [
        "1 run 0",
        "2 run 1",
        "3 run 2",
    ]
    style = next(one["href"] for one in page.all("link") if "charts.css" in (one["href"] or ""))
    assert style is not None
    css = people.browser().get(style).text
    dashes = [re.search(rf"\.s{n} {{[^}}]*?(stroke-dasharray: [^;]+)?; }}", css) for n in range(8)]
    assert len({found[1] for found in dashes if found}) == 8, "no two lines are told apart by color only"
    for bad in (f"run={runs[0].key}", "", "&".join(f"run={n:022d}" for n in range(9))):
        assert people.browser("alice").get(f"/training/compare?{bad}").status_code == 400


def test_an_owner_makes_a_run_public_and_deletes_it_and_both_are_in_the_audit_log(people: PeopleHub) -> None:
    run = opened(people.of("carol"), name="soon gone")
    run.steps(1, 2)
    browser = people.browser("carol")
    assert "soon gone" in browser.get("/account").text
    key = re.search(r'name="form_key" value="(\w+)"', browser.get(f"/training/{run.key}").text)
    assert key is not None
    fields = {"form_key": key[1], "visibility": "public"}
    assert browser.post(f"/training/{run.key}/visibility", data=fields).status_code == 303
    assert people.browser().get(f"/training/{run.key}").status_code == 200
    assert browser.post(f"/training/{run.key}/delete", data={"form_key": "0" * 64}).status_code == 403
    assert browser.post(f"/training/{run.key}/delete", data={"form_key": key[1]}).status_code == 303
    assert browser.get(f"/training/{run.key}").status_code == 404
    actions = [event.action for event in people.hub.people.audit.events("carol")]
    assert actions[:3] == ["training run deleted", "training run made public", "training run created"]


def test_an_administrator_deletes_the_run_of_another_account(people: PeopleHub) -> None:
    from ludus.registry.types.people import HubScope

    run = opened(people.of("bob"))
    assert people.of("root", [HubScope.ADMIN]).delete(run.path).status_code == 204
    assert run.client.get(run.path).status_code == 404
    event = people.hub.people.audit.events("bob")[0]
    assert (event.action, event.actor, event.account) == ("training run deleted", "root", "bob")


def test_sample_rollouts_open_in_the_viewer_and_are_downloaded(people: PeopleHub) -> None:
    run = opened(people.of("alice"))
    for step in (3, 4):
        body = {"attempt": run.attempt, "step": step, "trajectory": trajectory(f"the coin of step {step}")}
        assert run.client.post(f"{run.path}/rollouts", json=body).status_code == 200
    browser = people.browser("alice")
    assert "2 sample rollouts" in browser.get(f"/training/{run.key}").text
    assert "task-7" in as_page(browser.get(f"/training/{run.key}/rollouts")).text
    shown = as_page(browser.get(f"/training/{run.key}/rollouts/2")).text
    assert "the coin of step 4" in shown
    for absent in (3, 2**31, 10**30):
        assert browser.get(f"/training/{run.key}/rollouts/{absent}").status_code == 404
    lines = run.client.get(f"{run.path}/rollouts").text.splitlines()
    assert ["the coin of step 3" in lines[0], "the coin of step 4" in lines[1], len(lines)] == [True, True, 2]


def test_a_run_without_points_and_one_with_a_single_point_have_pages(people: PeopleHub) -> None:
    run = opened(people.of("alice"))
    browser = people.browser("alice")
    assert "no points yet" in browser.get(f"/training/{run.key}").text
    run.send([(1, {"loss": 0.5, "bad": "NaN"})])
    page = as_page(browser.get(f"/training/{run.key}"))
    assert "0.5" in page.text
    assert "1 not finite" in page.text
