"""Uploaded trajectories of runs in the viewer: which episode a row leads to, who sees them, and hostile content."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import pytest
from hub_sites import Page, as_page
from hubs import kind_of
from results_hub import OWNER, ResultsHub, episode, submission
from rollout_lines import PIXEL, SCRIPT, line

from ludus.hub.app import parts_of
from ludus.hub.results.personal import PersonalResults
from ludus.hub.results.rollout_index import LINE_VALUES, LINES, EpisodeLine, index_of, read_episode
from ludus.hub.results.rollouts import INDEXES
from ludus.protocol.errors import PayloadTooLarge

HTML = {"accept": "text/html"}


@pytest.fixture
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


def of_task(task: str, sample: int = 0, **more: Any) -> dict[str, Any]:
    row = {"id": task, "split": "train", "index": 0, "fields": {}}
    return {**line(2, task=row, sample=sample), "environment": "locks", **more}


async def uploaded(hub: ResultsHub, package: str, *lines: dict[str, Any] | bytes, who: str = "alice") -> str:
    """Submit a run of two tasks with two samples each and trajectories, and return its key."""
    async with hub.client(who) as client:
        digest = (await client.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()["sha256"]
        tasks = [
            {"task": f"train-{index}", "index": index, "episodes": [episode(sample) for sample in range(2)]}
            for index in range(2)
        ]
        upload = submission(digest, split="train", samples=2, tasks=tasks, scored=4, mean=1.0)
        answer = await client.post(f"/api/v1/environments/{package}/versions/1.0.0/results", json=upload)
        assert answer.status_code in (200, 201), answer.text
        key: str = answer.json()["key"]
        content = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)
        kept = await client.post(f"/api/v1/runs/{key}/rollouts", content=content)
        assert kept.status_code == 200, kept.text
        return key


def links(page: Page, key: str) -> list[str]:
    return [one["href"] for one in page.all("a") if one["href"].startswith(f"/runs/{key}/rollouts/")]


async def shown(client: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    return as_page(await client.get(path, headers=HTML), status)


async def test_each_row_leads_to_the_last_attempt_at_its_episode_and_forks_are_left_out(
    hub: ResultsHub, package: str
) -> None:
    branch = {"parent": "e1", "step": 1, "turn": 1, "place": "1.0"}
    key = await uploaded(
        hub, package, of_task("train-1", 1), of_task("train-0", 1, policy="failed-once"), b"",
        of_task("train-0", 1, episode="e1"), of_task("train-0", 1, episode="e2", branch=branch), of_task("train-0"),
    )  # fmt: skip
    async with hub.client(None) as stranger:
        page = await shown(stranger, f"/runs/{key}")
        rows = f"/runs/{key}/rollouts"
        assert links(page, key) == [f"{rows}/6", f"{rows}/4", f"{rows}/1"], "the third row has no trajectory"
        seen = await shown(stranger, f"{rows}/4")
        for words in ("saw 2", "reward 0.5", "evidence 2", SCRIPT, "Forks: 1.0"):
            assert words in " ".join(seen.text.split())
        assert any(one.get("id") == "turn-2" for one in seen.all("h2"))
        fork = await shown(stranger, f"{rows}/5?turn=2")
        assert f"{rows}/4?turn=1#turn-1" in [one["href"] for one in fork.all("a")]
        listed = await shown(stranger, rows)
        assert len(set(links(listed, key))) == 5
        await shown(stranger, f"{rows}/3", 404)


async def test_episodes_of_two_runs_are_side_by_side(hub: ResultsHub, package: str) -> None:
    other = await uploaded(hub, package, of_task("train-0", policy="the-other"), who="bob")
    answers = []
    async with hub.client(OWNER) as owner:  # the same upload of two accounts is refused, so this one differs
        digest = (await owner.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()["sha256"]
        run = await owner.post(
            f"/api/v1/environments/{package}/versions/1.0.0/results", json=submission(digest, 1.0, split="train")
        )
        key = run.json()["key"]
        await owner.post(f"/api/v1/runs/{key}/rollouts", content=json.dumps(of_task("lock-0")))
    async with hub.client(None) as stranger:
        both = await shown(stranger, f"/rollouts/compare?a={key}:1&b={other}:1")
        assert "the-other" in both.text
        for wrong in (f"{other}:2", f"{'a' * 22}:1"):
            answers.append((await stranger.get(f"/rollouts/compare?a={key}:1&b={wrong}", headers=HTML)).status_code)
        answers.append((await stranger.get(f"/rollouts/compare?a={key}:1&b={'f' * 16}:1", headers=HTML)).status_code)
    assert answers == [404, 404, 303], "a kept file takes an account"


async def test_trajectories_of_removed_runs_private_packages_and_deleted_accounts_are_absent(
    hub: ResultsHub, package: str
) -> None:
    key = await uploaded(hub, package, of_task("train-0"), who="bob")
    paths = [f"/runs/{key}/rollouts", f"/runs/{key}/rollouts/1", f"/runs/{key}/rollouts/1/images/0",
             f"/rollouts/compare?a={key}:1&b={key}:1"]  # fmt: skip
    absent = [one.replace(key, "z" * 22) for one in paths]
    async with hub.client(None) as stranger, hub.client(OWNER) as owner, hub.client("bob") as bob:
        hide = {"private": True}
        assert (await owner.put(f"/api/v1/environments/{package}/access", json=hide)).status_code == 200
        for path, other in zip(paths, absent, strict=True):
            private, missing = await stranger.get(path, headers=HTML), await stranger.get(other, headers=HTML)
            assert private.status_code == missing.status_code == 404
            assert private.text == missing.text
        await owner.put(f"/api/v1/environments/{package}/access", json={"private": False})
        await shown(stranger, paths[1])
        assert (await bob.post(f"/api/v1/runs/{key}/remove", json={"reason": "a mistake"})).status_code == 200
        for path in paths:
            assert (await stranger.get(path, headers=HTML)).status_code == 404
        assert links(await shown(stranger, f"/runs/{key}"), key) == []
    kept = list((hub.data / INDEXES).iterdir())
    assert len(kept) == 1
    parts = parts_of(hub.app)
    PersonalResults(parts.hub.database, parts.hub.blobs, parts.results.rollouts).delete("bob")
    assert list((hub.data / INDEXES).iterdir()) == []


async def test_an_index_that_is_lost_or_broken_is_made_again(hub: ResultsHub, package: str) -> None:
    key = await uploaded(hub, package, of_task("train-0"))
    (index,) = (hub.data / INDEXES).iterdir()
    async with hub.client(None) as stranger:
        for damage in ("", "{", '{"lines": 3}', None):
            index.unlink() if damage is None else index.write_text(damage)
            assert len(links(await shown(stranger, f"/runs/{key}"), key)) == 1
            await shown(stranger, f"/runs/{key}/rollouts/1")


async def test_a_run_is_shown_while_its_file_is_lost_and_says_so(hub: ResultsHub, package: str) -> None:
    key = await uploaded(hub, package, of_task("train-0"))
    digest = hub.store.rollouts(key)
    assert digest is not None
    parts_of(hub.app).hub.blobs.remove(digest)
    parts_of(hub.app).results.rollouts.remove_index(digest)
    async with hub.client(None) as stranger:
        assert "cannot be shown now" in (await shown(stranger, f"/runs/{key}")).text
        answer = await stranger.get(f"/runs/{key}/rollouts/1", headers=HTML)
        assert answer.status_code >= 400
        assert "Traceback" not in answer.text


def hostile() -> list[dict[str, Any]]:
    deep: Any = "end"
    for _ in range(150):
        deep = [deep]
    image = of_task("train-1")
    image["items"][0]["content"] = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {"type": "input_image", "image_url": "https://evil.example/x.png"},
        {"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2Zz4="},
    ]
    nested = of_task("train-0", policy=SCRIPT * 50)
    nested["steps"][0]["metadata"] = {"deep": deep, SCRIPT: SCRIPT}
    nested["steps"][0]["reward"]["components"] = {f"{SCRIPT}{n}": {"value": 1.0, "weight": 1.0} for n in range(500)}
    huge = of_task("train-0", 1)
    huge["items"][1]["arguments"] = json.dumps({"x": SCRIPT * 100_000})
    huge["items"][2]["output"] = "[" * 200_000 + SCRIPT
    return [image, nested, huge]


async def test_hostile_trajectories_are_shown_small_and_run_nothing(hub: ResultsHub, package: str) -> None:
    key = await uploaded(hub, package, *hostile())
    async with hub.client(None) as stranger:
        for path in ("", "/1", "/2", "/3"):
            answer = await stranger.get(f"/runs/{key}/rollouts{path}", headers=HTML)
            page = as_page(answer)
            assert len(answer.content) < 60_000, path
            assert len(list(page.all("script"))) == 2
            assert all(source["src"].startswith(f"/runs/{key}/") for source in page.all("img"))
        statuses = [(await stranger.get(f"/runs/{key}/rollouts/1/images/{n}")).status_code for n in range(3)]
        assert statuses == [200, 404, 404]


NO_EPISODES = (
    b"\n" * 100_000, b"[" * 100_000, b'{"a":' * 5_000, b"\xff\xfe", b"null", b'"\\ud800"', b"[]", b"1e999", b"NaN", b"",
)  # fmt: skip


async def test_files_without_episodes_are_refused_and_leave_nothing(hub: ResultsHub, package: str) -> None:
    key = await uploaded(hub, package, of_task("train-0"))
    before = hub.store.rollouts(key)
    async with hub.client() as alice:
        for content in NO_EPISODES:
            answer = await alice.post(f"/api/v1/runs/{key}/rollouts", content=content)
            assert kind_of(answer) == "InvalidParams", content[:20]
    assert hub.store.rollouts(key) == before
    assert len(list((hub.data / INDEXES).iterdir())) == 1
    assert not list((hub.data / "blobs" / "incoming").iterdir())


def test_lines_with_too_many_values_are_never_parsed_and_too_many_lines_are_refused() -> None:
    def index(text: str) -> list[EpisodeLine]:
        return list(index_of(io.BytesIO(text.encode())))

    good = json.dumps(of_task("train-0"))
    first, second = index(f'{{"a": [{"[]," * LINE_VALUES}[]]}}\n{good}\n')
    assert "JSON values" in first.problem
    assert not second.problem
    assert len(index("\n" * LINES + "1\n" * LINES)) == LINES, "empty lines do not count"
    with pytest.raises(PayloadTooLarge):
        index("1\n" * (LINES + 1))


def test_reading_an_episode_reads_its_line_alone() -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    content = b"".join(json.dumps(of_task(f"t{n}")).encode() + b"\n" for n in range(50))
    lines = list(index_of(io.BytesIO(content)))
    file = Counting(content)
    assert read_episode(file, lines[33]).task.id == "t33"
    assert file.taken == lines[33].end - lines[33].start
