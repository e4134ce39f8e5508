"""What is published is there, stays as it is, and is found: over SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hubs import KEY, OTHER_KEY, HubProcess, WheelParts, kind_of, new_name, publish, published, release, upload

from ludus.hub.seed import LIBRARY
from ludus.registry.types.packages import VersionInfo
from ludus.registry.types.signing import check_contents, public_key


def versions_of(client: httpx.Client, package: str) -> list[str]:
    answer = client.get(f"/api/v1/environments/{package}/versions")
    return [row["version"] for row in answer.json()["versions"]] if answer.status_code == 200 else []


@pytest.mark.suite("hub", first=1)
def test_a_published_version_is_shown_with_all_that_was_signed(client: httpx.Client) -> None:
    one = release(f"alice/{new_name()}", card="# Card\n\n<script>alert(1)</script>\n", license="MIT")
    published(client, one)
    info = VersionInfo.model_validate(client.get(f"/api/v1/environments/{one.manifest.id}/versions/latest").json())
    assert (info.manifest, info.card, info.sha256, info.signed) == (one.manifest, one.card, one.sha256, True)
    assert info.signature is not None
    check_contents(info.signature, info.manifest, info.card)
    assert client.get(info.url).content == one.wheel


@pytest.mark.suite("hub", first=1)
def test_the_same_upload_again_is_answered_like_the_first(client: httpx.Client) -> None:
    one = release(f"alice/{new_name()}")
    first, second = published(client, one), published(client, one)
    assert first == second
    assert versions_of(client, one.manifest.id) == ["1.0.0"]


@pytest.mark.parametrize(
    "change",
    [{"card": "other"}, {"description": "Other."}, {"key": OTHER_KEY}, {"parts": "other code"}],
    ids=["card", "manifest", "key", "wheel"],
)
def test_a_version_never_changes(client: httpx.Client, change: dict[str, object]) -> None:
    name = f"alice/{new_name()}"
    one = release(name)
    before = published(client, one)
    if "parts" in change:
        change = {"parts": WheelParts(name.replace("/", "-"), module="# other\n" + WheelParts("x").module)}
    answer = publish(client, release(name, **change))  # type: ignore[arg-type]
    assert (answer.status_code, kind_of(answer)) == (409, "VersionConflict")
    assert client.get(f"/api/v1/environments/{name}/versions/1.0.0").json() == before


def test_of_different_uploads_of_one_version_at_once_exactly_one_wins(client: httpx.Client, hub: HubProcess) -> None:
    name = f"alice/{new_name()}"
    rivals = [release(name, card=f"# {number}\n") for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda one: publish(client, one), rivals))
    won = [one for one, answer in zip(rivals, answers, strict=True) if answer.status_code == 201]
    lost = [answer for answer in answers if answer.status_code != 201]
    assert len(won) == 1
    assert {kind_of(answer) for answer in lost} == {"VersionConflict"}
    assert client.get(f"/api/v1/environments/{name}/versions/1.0.0").json()["card"] == won[0].card


def test_the_same_upload_many_times_at_once_always_succeeds(client: httpx.Client) -> None:
    one = release(f"alice/{new_name()}")
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: publish(client, one), range(12)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1


def test_owners_and_packages_that_are_new_at_once_are_all_there(client: httpx.Client) -> None:
    owner = new_name("owner")
    releases = [release(f"{owner}/{new_name()}") for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert {answer.status_code for answer in pool.map(lambda one: publish(client, one), releases)} == {201}
    found = client.get(f"/index/{owner}/simple/", headers={"accept": "application/vnd.pypi.simple.v1+json"}).json()
    assert len(found["projects"]) == 12


def test_the_latest_version_is_the_highest_release_that_is_not_yanked(client: httpx.Client) -> None:
    name = f"alice/{new_name()}"
    where = f"/api/v1/environments/{name}/versions"
    for version in ("1.0.0", "1.10.0", "1.9.0", "2.0.0a1"):
        published(client, release(name, version))

    def latest() -> str:
        return str(client.get(f"{where}/latest").json()["version"])

    assert versions_of(client, name) == ["2.0.0a1", "1.10.0", "1.9.0", "1.0.0"]
    assert latest() == "1.10.0"
    assert client.post(f"{where}/1.10.0/yank", json={"reason": "wrong rewards"}).json()["yanked"] == "wrong rewards"
    assert latest() == "1.9.0"
    assert client.get(f"{where}/1.10.0").json()["yanked"] == "wrong rewards"
    assert client.delete(f"{where}/1.10.0/yank").json()["yanked"] is None
    assert latest() == "1.10.0"


def test_a_yank_needs_a_reason(client: httpx.Client) -> None:
    name = f"alice/{new_name()}"
    published(client, release(name))
    for body in ({}, {"reason": " "}, {"reason": "x" * 501}, {"reason": "x", "else": 1}):
        answer = client.post(f"/api/v1/environments/{name}/versions/1.0.0/yank", json=body)
        assert kind_of(answer) == "InvalidParams"
    assert client.get(f"/api/v1/environments/{name}/versions/1.0.0").json()["yanked"] is None


def test_search_finds_all_words_as_prefixes_and_all_tags(client: httpx.Client) -> None:
    word, tag = new_name("zebra"), new_name("tag")
    near, far = f"alice/{new_name()}", f"alice/{new_name()}"
    published(client, release(near, description=f"A {word} counts.", tags=(tag, "math")))
    published(client, release(far, card=f"# About\n\nThe {word}, and snow_white.\n", tags=("math",)))

    def found(**query: str | list[str]) -> list[str]:
        return [row["id"] for row in client.get("/api/v1/environments", params=query).json()["packages"]]

    assert found(q=word) == [near, far]
    assert found(q=word[:-2].upper()) == [near, far]
    assert found(q=f"{word} white") == [far]
    assert found(q=f"{word} {near}") == [near]
    assert found(q=word, tag=[tag]) == [near]
    assert found(q=word, tag=[tag, "absent"]) == []
    assert found(q=f"{word} absent") == []
    for odd in ('"', "a AND", "NEAR(", "*", "'; --", "a:b", "\\", "%", "&|!", "\0", "()", "ä 'é"):
        assert client.get("/api/v1/environments", params={"q": odd}).status_code in (200, 400)


def test_search_has_pages_and_a_total(client: httpx.Client) -> None:
    tag = new_name("page")
    names = [f"alice/{new_name()}" for _ in range(5)]
    for name in names:
        published(client, release(name, tags=(tag,)))

    def page(number: int) -> tuple[list[str], int]:
        query = {"tag": tag, "page": str(number), "size": "2"}
        answer = client.get("/api/v1/environments", params=query).json()
        return [row["id"] for row in answer["packages"]], answer["total"]

    assert [page(number) for number in (1, 2, 3, 4)] == [
        (names[:2:-1], 5), (names[2:0:-1], 5), (names[:1], 5), ([], 5),
    ]  # fmt: skip


@pytest.mark.suite("hub", first=1)
def test_a_hub_with_nothing_configured_has_the_signed_built_in_library(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    database = request.getfixturevalue("postgres").new_url() if kind == "postgres" else None
    hub = HubProcess(tmp_path / "data", database=database)
    with hub.client() as client:
        for name in (name.replace("_", "-") for name in LIBRARY):
            info = VersionInfo.model_validate(client.get(f"/api/v1/environments/ludus/{name}/versions/latest").json())
            assert info.signature is not None
            check_contents(info.signature, info.manifest, info.card)
            assert info.manifest.environments[0].splits
            assert info.manifest.environments[0].tools or info.manifest.environments[0].gradable
    assert hub.stop() == 0


def test_the_first_key_of_an_owner_is_the_only_one_until_another_is_added(client: httpx.Client) -> None:
    owner = new_name("owner")
    published(client, release(f"{owner}/one"))
    refused = publish(client, release(f"{owner}/two", key=OTHER_KEY))
    assert kind_of(refused) == "SignatureRefused"
    assert client.get(f"/api/v1/environments/{owner}/two").status_code == 404
    keys = f"/api/v1/owners/{owner}/keys"
    assert client.post(keys, json={"key": public_key(OTHER_KEY)}).json()["keys"] == [
        public_key(KEY),
        public_key(OTHER_KEY),
    ]
    published(client, release(f"{owner}/two", key=OTHER_KEY))
    assert client.request("DELETE", keys, params={"key": public_key(KEY)}).json()["keys"] == [public_key(OTHER_KEY)]
    assert kind_of(client.request("DELETE", keys, params={"key": public_key(OTHER_KEY)})) == "Conflict"
    assert kind_of(publish(client, release(f"{owner}/three"))) == "SignatureRefused"


@pytest.mark.parametrize("other", ["alice/two-words", "alice/two.words", "alice/tw0words", "alice/twowords"])
def test_a_package_that_looks_like_another_one_of_its_owner_is_refused(client: httpx.Client, other: str) -> None:
    published(client, release("alice/two_words"))
    answer = publish(client, release(other))
    assert kind_of(answer) == "NameRefused"
    assert "alice/two_words" in answer.json()["error"]["message"]


def test_an_owner_that_looks_like_another_one_is_refused(client: httpx.Client) -> None:
    published(client, release("rnodern/coin"))
    assert kind_of(publish(client, release("modern/coin"))) == "NameRefused"
    assert kind_of(upload(client, release("modern/coin"))) == "NameRefused"


def test_an_upload_of_twine_is_marked_as_unsigned(client: httpx.Client) -> None:
    one = release(f"alice/{new_name()}", key=None)
    assert upload(client, one).status_code == 200
    info = client.get(f"/api/v1/environments/{one.manifest.id}/versions/latest").json()
    assert (info["signed"], info["signature"], info["sha256"]) == (False, None, one.sha256)
    assert info["card"] == "# Coin\n"
    assert info["manifest"]["environments"][0]["source"] == one.manifest.environments[0].source
    assert upload(client, one).status_code == 200
    changed = release(one.manifest.id, parts=WheelParts(one.manifest.id.replace("/", "-"), module="# other"))
    assert kind_of(upload(client, changed)) == "VersionConflict"


@pytest.mark.suite("hub", first=1)
def test_all_is_there_after_a_restart(database_url: str | None, hub: HubProcess, client: httpx.Client) -> None:
    one = release(f"alice/{new_name()}")
    before = published(client, one)
    port = hub.port
    assert hub.stop() == 0
    hub.start(port)
    with hub.client() as again:
        assert again.get(f"/api/v1/environments/{one.manifest.id}/versions/1.0.0").json() == before
        assert again.get(before["url"]).content == one.wheel
