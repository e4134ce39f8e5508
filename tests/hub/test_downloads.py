"""Files that are downloaded while others are published: each is whole, and what the index names is there."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hubs import HubProcess, WheelParts, new_name, publish, release

JSON = {"accept": "application/vnd.pypi.simple.v1+json"}


@pytest.mark.parametrize(
    ("publishers", "readers", "versions", "downloads"),
    [(2, 4, 6, 20), pytest.param(8, 16, 12, 300, marks=pytest.mark.suite("hub"))],
)
def test_whatever_the_index_names_is_downloaded_whole_while_versions_are_published_and_yanked(
    hub: HubProcess, publishers: int, readers: int, versions: int, downloads: int
) -> None:
    packages = [f"alice/{new_name()}" for _ in range(publishers)]
    running = set(packages)

    def publishing(package: str) -> int:
        try:
            return publish_all(package)
        finally:
            running.discard(package)

    def publish_all(package: str) -> int:
        name = package.replace("/", "-")
        with hub.client() as client:
            for number in range(versions):
                more = {"alice_data/table.bin": random.Random(number).randbytes(300_000 + number)}
                parts = WheelParts(name, f"1.{number}", more=more)
                assert publish(client, release(package, f"1.{number}", parts=parts)).status_code == 201
                if number % 3 == 0:
                    yanked = client.post(
                        f"/api/v1/environments/{package}/versions/1.{number}/yank", json={"reason": "a test"}
                    )
                    assert yanked.is_success, yanked.text
        return versions

    def reading(package: str) -> int:
        whole = 0
        with hub.client() as client:
            while running or not whole:
                index = client.get(f"/index/simple/{package.replace('/', '-')}/", headers=JSON)
                for file in index.json()["files"] if index.status_code == 200 else ():
                    answer = client.get(file["url"])
                    assert answer.status_code == 200, answer.text
                    assert hashlib.sha256(answer.content).hexdigest() == file["hashes"]["sha256"]
                    part = client.get(file["url"], headers={"range": "bytes=100-199"})
                    assert (part.status_code, part.content) == (206, answer.content[100:200])
                    whole += 1
        return whole

    with ThreadPoolExecutor(publishers + readers) as pool:
        writing = [pool.submit(publishing, package) for package in packages]
        following = [pool.submit(reading, packages[number % publishers]) for number in range(readers)]
        assert sum(future.result() for future in writing) == publishers * versions
        assert sum(future.result() for future in following) >= downloads


def test_a_reader_that_leaves_in_the_middle_of_a_file_costs_the_others_nothing(plain_client: httpx.Client) -> None:
    name = new_name()
    parts = WheelParts(f"alice-{name}", more={"alice_data/table.bin": random.Random(1).randbytes(2_000_000)})
    published = publish(plain_client, release(f"alice/{name}", parts=parts)).json()
    for _ in range(50):
        with plain_client.stream("GET", published["url"]) as answer:
            next(answer.iter_bytes(1024))
    assert len(plain_client.get(published["url"]).content) == published["size"]
