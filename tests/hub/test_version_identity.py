"""Spellings of one version, such as `1`, `1.0` and `1.0.0`, are one version wherever a hub reads or keeps one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hubs import KEY, kind_of, new_name, publish, published, release, upload

from ludus.hub.endpoints.releases import parse_address
from ludus.registry.client import RegistryClient
from ludus.registry.installing import verify
from ludus.registry.keys import Pins
from ludus.registry.types.signing import public_key

PUBLISHED = "1.0"
OTHER_SPELLINGS = ("1", "1.0.0", "1.0.0.0")
EQUAL = [
    ("1.0", "1"),
    ("1", "1.0.0"),
    ("1.0rc1", "1rc1"),
    ("1.0.post1", "1.post1"),
    ("1.10", "1.10.0"),
]
DIFFERENT = ["1.1", "1.0.1", "10", "1.0rc1", "1.0.post1", "1.0.dev0"]
JSON = {"accept": "application/vnd.pypi.simple.v1+json"}


@pytest.fixture
def package(client: httpx.Client) -> str:
    """A package with the version 1.0."""
    name = f"alice/{new_name()}"
    published(client, release(name, PUBLISHED))
    return name


def versions_of(client: httpx.Client, package: str) -> list[str]:
    return [row["version"] for row in client.get(f"/api/v1/environments/{package}/versions").json()["versions"]]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_a_second_upload_of_an_equal_version_is_refused_by_both_ways_to_upload(
    client: httpx.Client, first: str, second: str
) -> None:
    name = f"alice/{new_name()}"
    published(client, release(name, first))
    for answer in (publish(client, release(name, second)), upload(client, release(name, second))):
        assert (answer.status_code, kind_of(answer)) == (409, "VersionConflict")
        message = answer.json()["error"]["message"]
        assert f"the version {first}, and {second} is the same version" in message
        assert "another version" in message
    assert versions_of(client, name) == [first]
    index = client.get(f"/index/simple/{name.replace('/', '-')}/", headers=JSON).json()
    assert (index["versions"], len(index["files"])) == ([first], 1)


def test_versions_that_pip_keeps_apart_are_all_kept(client: httpx.Client, package: str) -> None:
    for version in DIFFERENT:
        published(client, release(package, version))
    assert set(versions_of(client, package)) == {PUBLISHED, *DIFFERENT}


def test_a_signed_version_with_an_epoch_is_published_listed_downloaded_and_newest(client: httpx.Client) -> None:
    name = f"alice/{new_name()}"
    for version in ("2.0", "1!1.0"):
        published(client, release(name, version))
    project = client.get(f"/index/simple/{name.replace('/', '-')}/", headers=JSON).json()
    assert set(project["versions"]) == {"2.0", "1!1.0"}
    file = next(file for file in project["files"] if "1!1.0" in file["filename"])
    assert client.get(file["url"]).status_code == 200
    assert client.get(f"/api/v1/environments/{name}").json()["version"] == "1!1.0"
    assert client.get(f"/{name}/versions/1!1", headers={"accept": "text/html"}).status_code == 200


def test_of_all_spellings_uploaded_at_once_exactly_one_is_kept(client: httpx.Client) -> None:
    name = f"alice/{new_name()}"
    spellings = [PUBLISHED, *OTHER_SPELLINGS, "1.0.0.0.0", "1.0.0.0.0.0"]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda version: publish(client, release(name, version)), spellings))
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]
    assert len(versions_of(client, name)) == 1


@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
def test_every_page_and_document_of_a_version_is_found_under_each_spelling(
    client: httpx.Client, package: str, spelling: str
) -> None:
    published(client, release(package, "2.0"))
    api = f"/api/v1/environments/{package}/versions"
    for path in ("", "/boards", "/server.json"):
        found = client.get(f"{api}/{spelling}{path}")
        assert (found.status_code, found.json()) == (200, client.get(f"{api}/{PUBLISHED}{path}").json()), path
    assert client.get(f"{api}/{spelling}").json()["version"] == PUBLISHED
    for path in ("", "/card", "/badge.svg", "/files", "/diff?from=2"):
        pages = [client.get(f"/{package}/versions/{one}{path}", headers={"accept": "text/html"})
                 for one in (PUBLISHED, spelling)]  # fmt: skip
        assert [page.status_code for page in pages] == [200, 200], path
    assert client.get(f"/{package}/versions/2/diff?from={spelling}", headers={"accept": "text/html"}).status_code == 200
    listed = client.get("/v0.1/servers", params={"search": package.partition("/")[2], "version": spelling}).json()
    assert [one["server"]["version"] for one in listed["servers"]] == [PUBLISHED]


@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
def test_a_yank_of_any_spelling_yanks_the_version(client: httpx.Client, package: str, spelling: str) -> None:
    api = f"/api/v1/environments/{package}/versions"
    answer = client.post(f"{api}/{spelling}/yank", json={"reason": "wrong rewards"}).json()
    assert (answer["version"], answer["yanked"]) == (PUBLISHED, "wrong rewards")
    assert kind_of(publish(client, release(package, spelling))) == "VersionConflict"
    files = client.get(f"/index/simple/{package.replace('/', '-')}/", headers=JSON).json()["files"]
    assert [file["yanked"] for file in files] == ["wrong rewards"]
    assert client.delete(f"{api}/{spelling}/yank").json()["yanked"] is None


@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
async def test_an_installation_of_any_spelling_gets_and_locks_the_published_version(
    client: httpx.Client, package: str, spelling: str, tmp_path: Path
) -> None:
    hub = str(client.base_url).rstrip("/")
    async with RegistryClient(hub) as registry:
        found = await verify(registry, f"{package}@{spelling}", Pins(tmp_path / "pins.json"))
    assert (found.package.version, found.package.key) == (PUBLISHED, public_key(KEY))


@pytest.mark.parametrize("spelling", [PUBLISHED, *OTHER_SPELLINGS])
def test_a_path_of_an_endpoint_may_name_any_spelling(spelling: str) -> None:
    address = parse_address(f"/e/alice/coin@{spelling}/mcp")
    assert address is not None
    assert address.version == spelling


def test_words_that_are_no_version_find_none(client: httpx.Client, package: str) -> None:
    for word in ("one", "1.0.x", "v", "1" * 61, "1.0 or 2"):
        answer = client.get(f"/api/v1/environments/{package}/versions/{word}")
        assert kind_of(answer) == "PackageNotFound"
