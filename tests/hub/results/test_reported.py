"""Reported results: what is kept, what is refused, and how boards stay apart."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx
import pytest
from hubs import kind_of, new_name
from results_hub import OWNER, Player, ResultsHub, board_of, episode, run_params, submission
from sqlalchemy import select, update

from ludus.hub.access.viewers import STRANGER
from ludus.hub.app import parts_of
from ludus.hub.database.tables import Package, Version
from ludus.hub.results.reported import submit
from ludus.registry.types.results import Submission
from ludus.server.auth.principal import Principal

DATABASES: Final = ("sqlite", "postgres")
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    """The database of the hub: both, in the plain run too."""
    return request.param  # type: ignore[no-any-return]


async def sent(client: httpx.AsyncClient, package: str, upload: dict[str, Any], version: str = "1.0.0") -> Any:
    # json.dumps writes NaN, which httpx refuses to
    body = json.dumps(upload)
    return await client.post(f"/api/v1/environments/{package}/versions/{version}/results", content=body)


@pytest.mark.suite("hub", first=1)
async def test_an_upload_is_shown_on_the_board_of_its_version_and_level_alone(hub: ResultsHub) -> None:
    package = f"{OWNER}/{new_name()}"
    digest = hub.publish(package)
    async with hub.client() as client:
        answer = await sent(client, package, submission(digest, 1.0, 0.0, None, 1.0))
        assert answer.status_code == 201, answer.text
        run = answer.json()
        assert (run["level"], run["by"], run["number"], run["byPublisher"]) == ("reported", "alice", 1, False)
        assert run["figures"]["mean"]["value"] == 0.5, "the episode without a reward counts with the lowest one"
        assert (run["figures"]["unscored"], run["figures"]["inputTokens"]) == (1, 40)
        await (await Player.register(client, package, tasks=2)).play(right=2)
        hub.publish(package, "1.1.0")
        lists = [
            (await client.get(f"/api/v1/environments/{package}/versions/{version}/boards")).json()["boards"]
            for version in ("1.0.0", "1.1.0")
        ]
    assert [one["level"] for one in lists[0]] == ["played", "reported"]
    assert lists[1] == [], "a new version starts with empty boards"
    played, reported = await board_of(hub, package), await board_of(hub, package, "reported")
    assert [row["mean"]["value"] for row in played["rows"]] == [1.0]
    assert [row["mean"]["value"] for row in reported["rows"]] == [0.5]


async def test_a_row_of_a_board_has_the_median_over_tasks_next_to_the_mean(hub: ResultsHub) -> None:
    package = f"{OWNER}/{new_name()}"
    digest = hub.publish(package)
    async with hub.client() as client:
        answer = await sent(client, package, submission(digest, 1.0, 0.0, 0.0))
        assert answer.status_code == 201, answer.text
        page = await client.get(f"/{package}/versions/1.0.0/board?environment=locks&split=test&level=reported")
    (row,) = (await board_of(hub, package, "reported"))["rows"]
    assert (row["mean"]["value"], row["median"]) == (pytest.approx(1 / 3), 0.0)
    assert "median 0<" in page.text


@pytest.mark.parametrize("spelling", ["1", "1.0", "1.0.0.0"])
async def test_results_of_every_spelling_of_a_version_are_on_one_board(hub: ResultsHub, spelling: str) -> None:
    package = f"{OWNER}/{new_name()}"
    digest = hub.publish(package)
    async with hub.client() as client:
        for version, rewards in (("1.0.0", (1.0, 0.0)), (spelling, (1.0, 1.0))):
            answer = await sent(client, package, submission(digest, *rewards), version)
            assert (answer.status_code, answer.json()["version"]) == (201, "1.0.0"), answer.text
        params = run_params(tasks=1)
        played = await client.post(f"/api/v1/environments/{package}/versions/{spelling}/runs", json=params)
        assert (played.status_code, played.json()["version"]) == (201, "1.0.0"), played.text
        where, query = f"/api/v1/environments/{package}/versions", {"environment": "locks", "split": "test"}
        for level in ("reported", "played"):
            boards = [
                (await client.get(f"{where}/{version}/board", params={**query, "level": level})).json()
                for version in ("1.0.0", spelling)
            ]
            assert boards[0] == boards[1]


async def test_a_spelling_of_the_version_of_the_environment_is_no_other_version(hub: ResultsHub) -> None:
    package = f"{OWNER}/{new_name()}"
    digest = hub.publish(package)
    async with hub.client() as client:
        info = (await client.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()
        (entry,) = [one for one in info["manifest"]["environments"] if one["name"] == "locks"]
        for version, status in ((f"{entry['version']}.0", 201), (f"{entry['version']}.1", 400)):
            answer = await sent(client, package, submission(digest, 1.0, environmentVersion=version))
            assert answer.status_code == status, answer.text


async def test_an_open_run_is_not_played_on_with_another_wheel_of_an_equal_version(hub: ResultsHub) -> None:
    """An older hub kept both `1.0` and `1.0.0`. After the upgrade it offers one of them."""
    package = f"{OWNER}/{new_name()}"
    hub.publish(package)
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=1)
        with parts_of(hub.app).hub.database.writing() as session:
            kept = select(Package.id).where(Package.owner == OWNER, Package.name == package.partition("/")[2])
            change = update(Version).where(Version.package_id.in_(kept))
            session.execute(change.values(version="1.0", sha256="0" * 64))
        answer = await client.post(f"/api/v1/runs/{player.key}/episodes")
    assert kind_of(answer) == "Conflict"
    assert "the same version as 1.0" in answer.json()["error"]["message"]


async def test_the_publisher_is_marked(hub: ResultsHub, package: str) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client(OWNER) as client:
        run = (await sent(client, package, submission(digest, 1.0))).json()
        assert run["byPublisher"] is True
        page = await client.get(
            f"/{package}/versions/1.0.0/board?environment=locks&split=test&level=reported",
            headers={"accept": "text/html"},
        )
    assert (await board_of(hub, package, "reported"))["rows"][0]["byPublisher"] is True
    assert ">publisher<" in page.text


async def test_the_same_upload_again_is_the_same_run_and_another_account_cannot_copy_it(
    hub: ResultsHub, package: str
) -> None:
    upload = submission((await version_of(hub, package))["sha256"], 1.0, 0.0)
    async with hub.client() as alice, hub.client("bob") as bob:
        answers = await asyncio.gather(*(sent(alice, package, upload) for _ in range(4)))
        assert len({one.json()["key"] for one in answers}) == 1
        assert sorted(one.status_code for one in answers) == [200, 200, 200, 201]
        assert kind_of(await sent(bob, package, upload)) == "Conflict"
    assert [row["accountRuns"] for row in (await board_of(hub, package, "reported"))["rows"]] == [1]


async def test_uploads_at_once_get_numbers_without_gaps(hub: ResultsHub, package: str) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client() as client:
        uploads = [submission(digest, *[1.0] * count) for count in range(1, 6)]
        answers = await asyncio.gather(*(sent(client, package, one) for one in uploads))
    assert sorted(one.json()["number"] for one in answers) == [1, 2, 3, 4, 5]
    row = (await board_of(hub, package, "reported"))["rows"][0]
    assert (row["episodes"], len(row["runs"]), row["accountRuns"]) == (15, 5, 5)


def forged(digest: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the uploads that must be refused, with the class of the refusal."""
    good = submission(digest, 1.0, 0.0)
    two = [{"task": "lock-0", "index": 0, "episodes": [episode(), episode()]}]
    many = [{"task": f"t{index}", "index": index, "episodes": [episode()]} for index in range(10_000)]
    return [
        ("DigestMismatch", good | {"sha256": "0" * 64}),
        ("DigestMismatch", good | {"environmentVersion": "0.9"}),
        ("EnvironmentNotFound", good | {"environment": "lock"}),
        ("SplitNotFound", good | {"split": "tset"}),
        ("InvalidParams", submission(digest, float("nan"))),
        ("InvalidParams", submission(digest, float("inf"))),
        ("InvalidParams", submission(digest, 1.5)),
        ("InvalidParams", submission(digest, -0.5)),
        ("InvalidParams", good | {"mean": 0.75}),
        ("InvalidParams", good | {"mean": None}),
        ("InvalidParams", good | {"scored": 1}),
        ("InvalidParams", good | {"scored": 3}),
        ("InvalidParams", good | {"samples": 2}),
        ("InvalidParams", good | {"tasks": two, "samples": 2, "scored": 2, "mean": 1.0}),
        ("InvalidParams", good | {"tasks": good["tasks"] * 2, "scored": 4}),
        ("InvalidParams", good | {"tasks": [], "scored": 0, "mean": None}),
        ("InvalidParams", good | {"by": "bob"}),
        ("InvalidParams", good | {"level": "played"}),
        ("InvalidParams", good | {"successAt": float("nan")}),
        ("InvalidParams", submission(digest, *[1.0] * 41)),
        ("PayloadTooLarge", good | {"tasks": many, "scored": 10_000, "mean": 1.0}),
        ("InvalidParams", submission(digest, None) | {"tasks": [
            {"task": "lock-0", "index": 0, "episodes": [episode(reward=None, end="x" * 101)]}]}),
        ("InvalidParams", good | {"tasks": [{"task": "lock-0", "index": 2**60, "episodes": [episode()]}], "scored": 1}),
        ("InvalidParams", good | {"declared": {"model": "m", "level": "verified"}}),
        ("PayloadTooLarge", good | {"declared": {"model": "m", "options": {"x": "y" * 5_000_000}}}),
    ]  # fmt: skip


@pytest.mark.suite("hub", first=1)
async def test_forged_and_broken_uploads_are_refused(hub: ResultsHub, package: str) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client() as client:
        for kind, upload in forged(digest):
            answer = await sent(client, package, upload)
            assert kind_of(answer) == kind, (str(upload)[:300], answer.text[:300])
            assert len(answer.content) < 4000
        absent = await sent(client, package, submission(digest, 1.0), "9.9")
        assert kind_of(absent) == "PackageNotFound"
        assert (await client.get(f"/api/v1/environments/{package}/versions/1.0.0/boards")).json()["boards"] == []
    async with hub.client(None) as stranger:
        assert kind_of(await sent(stranger, package, submission(digest, 1.0))) == "Unauthenticated"


async def test_results_of_a_yanked_version_are_refused(hub: ResultsHub, package: str) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client(OWNER) as client:
        await client.post(f"/api/v1/environments/{package}/versions/1.0.0/yank", json={"reason": "wrong"})
        assert kind_of(await sent(client, package, submission(digest, 1.0))) == "Conflict"


async def test_html_in_an_upload_is_shown_as_text(hub: ResultsHub, package: str) -> None:
    upload = submission((await version_of(hub, package))["sha256"], 1.0)
    upload["declared"] = {"model": EVIL, "harness": EVIL}
    upload["tasks"][0]["task"] = upload["tasks"][0]["episodes"][0]["end"] = EVIL
    async with hub.client() as client:
        run = (await sent(client, package, upload)).json()
        await client.post(f"/api/v1/runs/{run['key']}/remove", json={"reason": EVIL})
        run = (await sent(client, package, upload | {"successAt": 0.5})).json()
        board = f"/{package}/versions/1.0.0/board?environment=locks&split=test&level=reported"
        for path in (board, f"/runs/{run['key']}", f"/{package}", "/results/log"):
            page = await client.get(path, headers={"accept": "text/html"})
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert "<img" not in page.text
            assert "alert(1)" in page.text or path == "/results/log"


async def test_a_removed_run_leaves_a_tombstone_and_a_line_in_the_log(hub: ResultsHub, package: str) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client() as alice, hub.client("bob") as bob, hub.client("root") as root:
        run = (await sent(alice, package, submission(digest, 1.0))).json()
        other = (await sent(bob, package, submission(digest, 0.0, 1.0))).json()
        where = f"/api/v1/runs/{run['key']}/remove"
        assert kind_of(await bob.post(where, json={"reason": "I lose"})) == "Forbidden"
        assert kind_of(await alice.post(where, json={"reason": ""})) == "InvalidParams"
        async with hub.client(OWNER) as publisher:
            assert kind_of(await publisher.post(where, json={"reason": "I compete"})) == "Forbidden"
        removed = (await root.post(where, json={"reason": "made up"})).json()
        assert (removed["removal"]["by"], removed["removal"]["reason"]) == ("root", "made up")
        assert removed["figures"] is None
        assert kind_of(await root.post(where, json={"reason": "again"})) == "Conflict"
        log = (await bob.get("/api/v1/results/log")).json()["entries"]
        assert (log[0]["run"], log[0]["kind"], log[0]["reason"]) == (run["key"], "removed", "made up")
    board = await board_of(hub, package, "reported")
    assert [row["runs"] for row in board["rows"]] == [[other["key"]]]
    assert board["removedRuns"] == 1


@pytest.mark.suite("hub", first=1)
async def test_trajectories_are_uploaded_by_their_account_and_never_of_a_test_split(
    hub: ResultsHub, package: str
) -> None:
    digest = (await version_of(hub, package))["sha256"]
    async with hub.client() as alice, hub.client("bob") as bob:
        test = (await sent(alice, package, submission(digest, 1.0))).json()["key"]
        train = (await sent(alice, package, submission(digest, 1.0, split="train"))).json()["key"]
        line = b'{"not": "a trajectory"}\n'
        assert kind_of(await alice.post(f"/api/v1/runs/{test}/rollouts", content=line)) == "Conflict"
        assert kind_of(await bob.post(f"/api/v1/runs/{train}/rollouts", content=line)) == "Forbidden"
        assert kind_of(await alice.post(f"/api/v1/runs/{train}/rollouts", content=line)) == "InvalidParams"
        assert kind_of(await alice.post(f"/api/v1/runs/{train}/rollouts", content=b"")) == "InvalidParams"
        assert kind_of(await alice.get(f"/api/v1/runs/{train}/rollouts")) == "NotFound"
    assert not list((hub.data / "blobs" / "incoming").iterdir()), "what was refused leaves nothing behind"


async def version_of(hub: ResultsHub, package: str) -> dict[str, Any]:
    async with hub.client(None) as client:
        found: dict[str, Any] = (await client.get(f"/api/v1/environments/{package}/versions/1.0.0")).json()
        return found


async def test_an_upload_that_was_cut_off_before_its_figures_gets_them_from_the_sweeper(
    hub: ResultsHub, package: str
) -> None:
    upload = submission((await version_of(hub, package))["sha256"], 1.0, 0.0)
    owner, _, name = package.partition("/")
    record = parts_of(hub.app).hub.catalog_of(STRANGER).version(owner, name)

    def cut(*arguments: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(
            hub.store, cut, Principal("alice", frozenset()), record, Submission.model_validate(upload),
            by_publisher=False,
        )  # fmt: skip
    assert (await board_of(hub, package, "reported"))["rows"] == []
    await hub.played.sweep()
    rows = (await board_of(hub, package, "reported"))["rows"]
    assert [row["mean"]["value"] for row in rows] == [0.5]
    async with hub.client() as client:
        assert (await sent(client, package, upload)).status_code == 200
