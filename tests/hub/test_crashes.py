"""A hub that is killed while many publish: what was answered is there, and nothing is there by half."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hubs import HubProcess, Release, new_name, publish, release

from ludus.hub.core.blobs import Blobs
from ludus.protocol.errors import PayloadTooLarge
from ludus.registry.types.packages import VersionInfo
from ludus.registry.types.signing import check_contents

KILLS = 4


@pytest.fixture
def mortal(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[HubProcess]:
    """A hub that a test kills."""
    url = request.getfixturevalue("postgres").new_url() if kind == "postgres" else None
    hub = HubProcess(tmp_path / "data", "--no-seed", database=url)
    yield hub
    if hub.process.poll() is None:
        hub.kill()


def check_consistent(client: httpx.Client) -> dict[str, set[str]]:
    """Check everything that the hub shows, and return the digests of each package's versions."""
    found: dict[str, set[str]] = {}
    index = client.get("/index/simple/", headers={"accept": "application/vnd.pypi.simple.v1+json"}).json()
    projects = {project["name"] for project in index["projects"]}
    page, total = 1, 1
    while len(found) < total:
        answer = client.get("/api/v1/environments", params={"page": page, "size": 100}).json()
        total, page = answer["total"], page + 1
        if not answer["packages"]:
            break
        for package in answer["packages"]:
            name = package["id"]
            versions = client.get(f"/api/v1/environments/{name}/versions").json()["versions"]
            found[name] = {row["sha256"] for row in versions}
            for row in versions:
                info = VersionInfo.model_validate(
                    client.get(f"/api/v1/environments/{name}/versions/{row['version']}").json()
                )
                assert info.signature is not None
                check_contents(info.signature, info.manifest, info.card)
                assert len(client.get(info.url).content) == info.size
    assert {name.replace("/", "-") for name in found} == projects
    return found


def publishing(hub: HubProcess, releases: list[Release], answered: set[str], stop: threading.Event) -> None:
    """Publish one after the other until a test says stop; what the hub answered is noted."""
    with hub.client() as client:
        for one in releases:
            if stop.is_set():
                return
            try:
                if publish(client, one).status_code == 201:
                    answered.add(one.sha256)
            except httpx.TransportError:
                return


def kill_while_publishing(hub: HubProcess, publishers: int, kills: int, rounds: int) -> set[str]:
    answered: set[str] = set()
    last: list[Release] = []
    owners = {new_name("owner") for _ in range(8)}
    for _ in range(kills):
        names = [f"{owner}/{new_name()}" for owner in owners for _ in range(publishers // len(owners))]
        work = [[release(name, f"1.{number}.0") for number in range(rounds)] for name in names]
        last = [one for releases in work for one in releases]
        stop = threading.Event()
        before = len(answered)
        with ThreadPoolExecutor(len(work)) as pool:
            futures = [pool.submit(publishing, hub, releases, answered, stop) for releases in work]
            while len(answered) < before + len(work) // 4:
                stop.wait(0.005)
            hub.kill()
            stop.set()
            for future in futures:
                future.result()
        hub.start(hub.port)
        with hub.client() as client:
            found = check_consistent(client)
        assert answered <= {digest for digests in found.values() for digest in digests}
    with hub.client() as client:
        assert {publish(client, one).status_code for one in last} == {201}
        check_consistent(client)
    return answered


@pytest.mark.suite("hub")
@pytest.mark.timeout(120)
def test_a_hub_that_is_killed_while_many_publish_has_what_it_answered_and_nothing_by_half(mortal: HubProcess) -> None:
    answered = kill_while_publishing(mortal, publishers=16, kills=1, rounds=5)
    assert answered


@pytest.mark.suite("hub")
@pytest.mark.timeout(600)
def test_200_publishers_and_kills(mortal: HubProcess) -> None:
    answered = kill_while_publishing(mortal, publishers=200, kills=KILLS, rounds=2)
    assert len(answered) >= KILLS * 50


def test_what_a_killed_upload_leaves_is_removed_a_day_later(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    left, running = tmp_path / "incoming" / "left", tmp_path / "incoming" / "running"
    for path in (left, running):
        path.write_bytes(b"half")
    old = time.time() - 25 * 3600
    os.utime(left, (old, old))
    assert blobs.sweep() == 1
    assert (left.exists(), running.exists()) == (False, True)


def test_a_file_is_at_its_digest_whole_or_not_at_all(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"content")
    with pytest.raises(PayloadTooLarge), blobs.receiving(10) as incoming:
        incoming.write(b"more than 10 bytes")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [blobs.path(digest)]
    blobs.path(digest).write_bytes(b"changed")
    assert blobs.put(b"content") == digest
    assert blobs.path(digest).read_bytes() == b"changed", "what is there is never overwritten"
